"""Attention over documents packed in a row: causal inside each, and none of them sees another.

Three ways, chosen once for each device, dtype and head width: a compiled operator of `astrai_kernels` where no
gradient is wanted, torch's own variable-length flash attention on CUDA (half precision), and everywhere else torch's
dense attention on groups of similar segments. None builds a mask over the row: memory grows with T, not T^2.
"""

import functools
import importlib
import logging
from functools import cached_property
from itertools import pairwise

import torch
from torch.nn import functional

from astrai_train.models.errors import ModelError
from astrai_train.models.kernels import compiled_op
from astrai_train.models.segment_groups import SegmentGroups, group_segments


class PackedAttention:
    """The attention context of training: one row of T tokens with document borders.

    Args:
        cu_seqlens: int32 [n + 1], on the device of the model: 0, the end of each segment, the last one T.
        max_seqlen: the longest segment; asked of `cu_seqlens` where it is not given.

    Raises:
        ModelError: borders that do not start at 0 or fall.
    """

    def __init__(self, cu_seqlens: torch.Tensor, max_seqlen: int | None = None) -> None:
        self.cu_seqlens = cu_seqlens.to(torch.int32)
        self._max_seqlen = max_seqlen
        if cu_seqlens.device.type == "cpu":  # elsewhere it would wait for the device
            _check_borders(self._borders)

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Attention inside the segments: q [T, Hq, D], k and v [T, Hkv, D] -> [T, Hq, D]."""
        if (kernel := compiled_op("attention_varlen", q)) is not None:
            return kernel(q, k, v, self.cu_seqlens, self.max_seqlen)
        if flash_serves(q.device, q.dtype, q.shape[-1]):
            return self._flash(q, k, v)
        return self._grouped(q, k, v)

    @cached_property
    def max_seqlen(self) -> int:
        """Tokens of the longest segment."""
        return self._max_seqlen or max(end - begin for begin, end in pairwise(self._borders))

    @cached_property
    def token_lengths(self) -> torch.Tensor:
        """int64 [T]: for each token the length of its segment."""
        lengths = self.cu_seqlens.diff().long()
        return lengths.repeat_interleave(lengths)

    @cached_property
    def _borders(self) -> list[int]:
        return self.cu_seqlens.tolist()

    def _flash(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        varlen = importlib.import_module("torch.nn.attention.varlen").varlen_attn
        borders, longest = self.cu_seqlens, self.max_seqlen
        # One split: more would let the length of one segment change the last bits of another.
        options = {"window_size": (-1, 0), "enable_gqa": q.shape[1] != k.shape[1], "num_splits": 1}
        return varlen(q, k, v, borders, borders, longest, longest, **options)

    @cached_property
    def _groups(self) -> SegmentGroups:
        return group_segments(self._borders)

    def _grouped(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if q.shape[0] != len(self._groups.put):
            raise ModelError(
                "the borders are not those of the row",
                where="cu_seqlens",
                got=f"borders up to {self._borders[-1]} for {q.shape[0]} tokens",
                wanted=f"a last border of {q.shape[0]}",
                hint="take row and borders from the same batch",
            )
        if self._groups.in_place:
            return _attend_blocks(q, k, v, self._groups.blocks)
        take, put = self._index
        spread = (_Spread.apply(x, take, put) for x in (q, k, v))
        return _Collect.apply(_attend_blocks(*spread, self._groups.blocks), put)

    @cached_property
    def _index(self) -> tuple[torch.Tensor, torch.Tensor]:
        device = self.cu_seqlens.device
        return tuple(torch.from_numpy(index).to(device) for index in (self._groups.take, self._groups.put))


@functools.cache
def flash_serves(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """Whether torch's variable-length flash attention takes such tensors; the reason is logged, once."""
    serves, reason = _flash_reason(device, dtype, head_dim)
    way = "torch's variable-length flash attention" if serves else "torch's dense attention on groups of segments"
    logging.getLogger(__name__).info("packed attention on %s in %s: %s (%s)", device, dtype, way, reason)
    return serves


def _flash_reason(device: torch.device, dtype: torch.dtype, head_dim: int) -> tuple[bool, str]:
    if device.type != "cuda":
        return False, "it is for CUDA"
    if dtype not in (torch.float16, torch.bfloat16):
        return False, "it takes half precision only"
    if head_dim > 256 or head_dim % 8:
        return False, f"it takes heads of up to 256 in steps of 8, not {head_dim}"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return False, "it needs compute capability 8.0"
    if importlib.util.find_spec("torch.nn.attention.varlen") is None:
        return False, f"torch {torch.__version__} does not have it"
    return True, "half precision on a capable device"


def _check_borders(borders: list[int]) -> None:
    if len(borders) < 2 or borders[0] != 0 or any(end < begin for begin, end in pairwise(borders)):
        what, wanted = "these are no borders of segments", "0, then the end of each segment"
        hint = "segments of 3 and 2 tokens have the borders [0, 3, 5]"
        raise ModelError(what, where="cu_seqlens", got=borders, wanted=wanted, hint=hint)


def _attend_blocks(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, blocks: tuple) -> torch.Tensor:
    """Causal attention of each block of (count, length) slots: [slots, H, D] -> [slots, Hq, D]."""
    sizes = [count * length for count, length in blocks]
    parts = zip(*(x.split(sizes) for x in (q, k, v)), blocks, strict=True)
    outs = [_attend_block(*part) for part in parts]
    return outs[0] if len(outs) == 1 else torch.cat(outs) if outs else torch.zeros_like(q)


def _attend_block(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    heads_first = (x.unflatten(0, block).transpose(1, 2) for x in (q, k, v))
    out = functional.scaled_dot_product_attention(*heads_first, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
    return out.transpose(1, 2).flatten(0, 1)


class _Spread(torch.autograd.Function):
    """Tokens [T, ...] to slots [S, ...]. Padding gets no gradient: no loss depends on it."""

    @staticmethod
    def forward(ctx, x, take, put):
        ctx.save_for_backward(put)
        return x.index_select(0, take)

    @staticmethod
    def backward(ctx, grad):
        return grad.index_select(0, ctx.saved_tensors[0]), None, None


class _Collect(torch.autograd.Function):
    """Slots [S, ...] back to tokens [T, ...]; what stands in padding is dropped."""

    @staticmethod
    def forward(ctx, x, put):
        ctx.save_for_backward(put)
        ctx.num_slots = x.shape[0]
        return x.index_select(0, put)

    @staticmethod
    def backward(ctx, grad):
        slots = grad.new_zeros((ctx.num_slots, *grad.shape[1:]))
        return slots.index_copy_(0, ctx.saved_tensors[0], grad), None
