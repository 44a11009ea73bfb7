"""What the operators accept, checked once for every path: shapes, dtypes, devices, and the values of `cu_seqlens`.

Shape checks also run on fake tensors, so `torch.compile` refuses what an eager call refuses.
"""

import math
from itertools import pairwise

import torch

from astrai_kernels.errors import KernelArgumentError

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
LAYOUTS = ("half", "interleaved")


def refuse(name: str, got: object, wanted: str) -> None:
    """Raise for argument `name`."""
    raise KernelArgumentError(f"{name}: got {got}, wanted {wanted}")


def check_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens: torch.Tensor) -> None:
    """Raise `KernelArgumentError` unless the four fit together; see `ops.attention_varlen` for their shapes."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dim() != 3:
            refuse(name, tuple(x.shape), "[tokens, heads, head_dim]")
        if x.dtype not in FLOATS or x.dtype != q.dtype:
            refuse(name, x.dtype, f"a floating dtype, the same as q's {q.dtype}")
        if x.device != q.device:
            refuse(name, x.device, f"the device of q, {q.device}")
        if x.shape[0] != q.shape[0] or x.shape[2] != q.shape[2]:
            refuse(name, tuple(x.shape), f"q's {q.shape[0]} tokens and head_dim {q.shape[2]}")
    if v.shape != k.shape:
        refuse("v", tuple(v.shape), f"the shape of k, {tuple(k.shape)}")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        refuse("q", f"{q.shape[1]} heads", f"a multiple of the {k.shape[1]} key-value heads")
    if cu_seqlens.dtype != torch.int32 or cu_seqlens.dim() != 1 or cu_seqlens.shape[0] == 0:
        refuse("cu_seqlens", f"{cu_seqlens.dtype} {tuple(cu_seqlens.shape)}", "int32 [num_segments + 1]")
    if cu_seqlens.device != q.device:
        refuse("cu_seqlens", cu_seqlens.device, f"the device of q, {q.device}")


def segment_borders(cu_seqlens: torch.Tensor, num_tokens: int, max_seqlen: int) -> list[int]:
    """`cu_seqlens` as a list; raises unless it starts at 0, never falls, and stays within tokens and `max_seqlen`."""
    borders = cu_seqlens.tolist()
    longest = max((end - begin for begin, end in pairwise(borders)), default=0)
    if borders[0] != 0 or borders != sorted(borders) or borders[-1] > num_tokens:
        refuse("cu_seqlens", _short(borders), f"borders from 0 that never fall, up to {num_tokens} tokens at most")
    if longest > max_seqlen:
        refuse("max_seqlen", max_seqlen, f"at least the longest segment, {longest}")
    return borders


def resolve_scale(scale: float | None, head_dim: int) -> float:
    """The softmax scale: `scale`, or 1/sqrt(head_dim) for None and 0."""
    if not scale:
        return 1.0 / math.sqrt(max(head_dim, 1))
    if not 0 < scale < math.inf:
        refuse("scale", scale, "a positive number, or None for 1/sqrt(head_dim)")
    return float(scale)


def check_rotary(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, positions: torch.Tensor | None, layout: str
) -> None:
    """Raise `KernelArgumentError` unless `x` [tokens, heads, head_dim] can be turned by the tables."""
    if x.dim() != 3 or x.dtype not in FLOATS:
        refuse("x", f"{x.dtype} {tuple(x.shape)}", "floating [..., heads, head_dim]")
    if layout not in LAYOUTS:
        refuse("layout", repr(layout), f"one of {', '.join(LAYOUTS)}")
    for name, table in (("cos", cos), ("sin", sin)):
        if table.dim() != 2 or not table.is_floating_point() or table.shape != cos.shape:
            refuse(name, f"{table.dtype} {tuple(table.shape)}", "floating [..., pairs], cos and sin alike")
        if table.device != x.device:
            refuse(name, table.device, f"the device of x, {x.device}")
    if x.shape[2] % 2 or 2 * cos.shape[1] > x.shape[2]:
        refuse("x", f"head_dim {x.shape[2]}", f"an even head_dim of at least twice the {cos.shape[1]} pairs of cos")
    if positions is None and cos.shape[0] != x.shape[0]:
        refuse("cos", f"{cos.shape[0]} rows", f"one for each of the {x.shape[0]} tokens, or positions beside it")
    if positions is not None:
        _check_positions(positions, x)


def check_position_values(positions: torch.Tensor | None, num_rows: int) -> None:
    """Raise unless all `positions` lie in a table of `num_rows`; a look at another device's would cost a wait."""
    if positions is not None and positions.device.type == "cpu" and positions.numel():
        smallest, largest = (int(bound) for bound in positions.aminmax())
        if smallest < 0 or largest >= num_rows:
            refuse("positions", f"{smallest} to {largest}", f"0 to {num_rows - 1}, the rows of cos")


def _check_positions(positions: torch.Tensor, x: torch.Tensor) -> None:
    if positions.dtype != torch.int64 or positions.shape != x.shape[:1] or positions.device != x.device:
        got = f"{positions.dtype} {tuple(positions.shape)} on {positions.device}"
        refuse("positions", got, f"int64 [{x.shape[0]}] on {x.device}")


def _short(borders: list[int]) -> str:
    shown = ", ".join(map(str, borders[:8]))
    return f"[{shown}, ... {borders[-1]}]" if len(borders) > 8 else f"[{shown}]"
