"""How fast the compiled CPU kernels are, beside torch's own: attention by segments, its gradient, rotary embedding.

Run: python benchmarks/kernels.py [--tokens 1024 4096] [--segments 1 8 64] [--heads 8x2x64] [--threads 2]

Rivals take turns inside one process and the fastest of `--repeat` turns counts, so that a busy machine slows both
alike. Peers of attention: `scaled_dot_product_attention` once for each segment, with grouped heads (what the torch path
does), and once over the row with a mask of all segments. GFLOP/s count what causality leaves: 4 Hq D sum L (L + 1) / 2.
"""

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from rich.console import Console
from rich.table import Table

from astrai_kernels import attention_varlen, native, rotary

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def fastest(works: dict[str, Callable], repeat: int) -> dict[str, float]:
    """Milliseconds of the fastest turn of each work; the first turn is not counted."""
    best: dict[str, float] = {}
    for turn in range(repeat + 1):
        for name, work in works.items():
            begin = time.perf_counter()
            work()
            if turn:
                best[name] = min((time.perf_counter() - begin) * 1e3, best.get(name, float("inf")))
    return best


class Case:
    """One row of `num_tokens` in equal segments."""

    def __init__(self, num_tokens: int, num_segments: int, heads: tuple[int, int, int], dtype: torch.dtype) -> None:
        q_heads, kv_heads, head_dim = heads
        self.length = num_tokens // num_segments
        self.cu_seqlens = torch.arange(num_segments + 1, dtype=torch.int32) * self.length
        shapes = [(self.length * num_segments, count, head_dim) for count in (q_heads, kv_heads, kv_heads)]
        self.qkv = [torch.randn(shape).to(dtype) for shape in shapes]
        self.gflop = 4e-9 * q_heads * head_dim * num_segments * self.length * (self.length + 1) / 2

    def run(self, backend: str) -> torch.Tensor:
        """The operator, on one path."""
        return attention_varlen(*self.qkv, self.cu_seqlens, self.length, backend=backend)

    def masked(self) -> torch.Tensor:
        """One call over the row; the mask of all pairs is made beforehand."""
        q, k, v = (x.transpose(0, 1)[None] for x in self.qkv)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask, enable_gqa=True)

    def make_mask(self) -> None:
        """bool [T, T]: the same segment and not later."""
        segment = torch.arange(self.qkv[0].shape[0]) // self.length
        self.mask = (segment[:, None] == segment).tril()

    def train(self, backend: str) -> tuple[torch.Tensor, ...]:
        """Forward and backward."""
        leaves = [x.detach().requires_grad_() for x in self.qkv]
        out = attention_varlen(*leaves, self.cu_seqlens, self.length, backend=backend)
        return torch.autograd.grad(out.sum(), leaves)

    def train_peer(self) -> tuple[torch.Tensor, ...]:
        """The same through torch's autograd, segment by segment."""
        leaves = [x.detach().requires_grad_() for x in self.qkv]
        parts = zip(*(x.split(self.length) for x in leaves), strict=True)
        outs = [
            F.scaled_dot_product_attention(*(x.transpose(0, 1)[None] for x in part), is_causal=True, enable_gqa=True)
            for part in parts
        ]
        return torch.autograd.grad(sum(out.sum() for out in outs), leaves)


def attention(args: argparse.Namespace, heads: tuple[int, int, int]) -> Table:
    table = Table(
        "dtype", "tokens", "segments", "sdpa ms", "masked ms", "ours ms", "GFLOP/s", "of sdpa", title=_title(heads)
    )
    for dtype, num_tokens, num_segments in _cases(args):
        case = Case(num_tokens, num_segments, heads, DTYPES[dtype])
        case.make_mask()
        works = {"sdpa": lambda c=case: c.run("torch"), "masked": case.masked, "ours": lambda c=case: c.run("cpu")}
        best = fastest(works, args.repeat)
        ours = best["ours"]
        times = [f"{best[name]:.2f}" for name in works]
        rate, ratio = f"{case.gflop / ours * 1e3:.0f}", f"{best['sdpa'] / ours:.2f}x"
        table.add_row(dtype, f"{num_tokens:,}", f"{num_segments}", *times, rate, ratio)
    return table


def training(args: argparse.Namespace, heads: tuple[int, int, int]) -> Table:
    title = f"Forward and backward, {_title(heads)}"
    table = Table("dtype", "tokens", "segments", "sdpa ms", "ours ms", "of sdpa", title=title)
    for dtype, num_tokens, num_segments in _cases(args):
        case = Case(num_tokens, num_segments, heads, DTYPES[dtype])
        best = fastest({"sdpa": case.train_peer, "ours": lambda c=case: c.train("cpu")}, args.repeat)
        ratio = f"{best['sdpa'] / best['ours']:.2f}x"
        times = [f"{milliseconds:.2f}" for milliseconds in best.values()]
        table.add_row(dtype, f"{num_tokens:,}", f"{num_segments}", *times, ratio)
    return table


def turning(args: argparse.Namespace, heads: tuple[int, int, int]) -> Table:
    """Query and key in one call; bytes are those read and written, tables included."""
    table = Table("dtype", "tokens", "torch ms", "ours ms", "GB/s", "of torch", title=f"Rotary, {_title(heads)}")
    for dtype in args.dtypes:
        for num_tokens in args.tokens:
            q, k, _ = Case(num_tokens, 1, heads, DTYPES[dtype]).qkv
            cos, sin = torch.rand(2, num_tokens, heads[2] // 2)
            works = {
                backend: lambda q=q, k=k, c=cos, s=sin, b=backend: rotary((q, k), c, s, backend=b)
                for backend in ("torch", "cpu")
            }
            best = fastest(works, args.repeat * 4)
            size = 2 * (q.nbytes + k.nbytes) + cos.nbytes + sin.nbytes
            rate, ratio = f"{size / best['cpu'] / 1e6:.1f}", f"{best['torch'] / best['cpu']:.1f}x"
            table.add_row(dtype, f"{num_tokens:,}", f"{best['torch']:.3f}", f"{best['cpu']:.3f}", rate, ratio)
    return table


def _cases(args: argparse.Namespace) -> list[tuple[str, int, int]]:
    return [(dtype, tokens, count) for dtype in args.dtypes for tokens in args.tokens for count in args.segments]


def _title(heads: tuple[int, int, int]) -> str:
    return "{} query heads, {} key-value heads, head_dim {}".format(*heads)


def _heads(text: str) -> tuple[int, int, int]:
    q_heads, kv_heads, head_dim = map(int, text.split("x"))
    return q_heads, kv_heads, head_dim


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--segments", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--heads", type=_heads, nargs="+", default=[(8, 2, 64)], help="query x key-value x head_dim")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    console = Console(width=110)
    console.print(f"{native.require().reason}; {args.threads} threads; torch {torch.__version__}")
    for heads in args.heads:
        for part in (attention, training, turning):
            console.print(part(args, heads))


if __name__ == "__main__":
    main()
