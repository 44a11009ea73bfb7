"""Which numbers of rows give a row the same bits.

A matrix product may compute a row in another order when it has other company: on one machine a product of three rows
differs in the last bits from one of four or more, and of two nearly equal logits the other one wins. So every forward
is padded to one of a few row counts, and which ones may be mixed is found out at start, on the model, the device and
the number of threads at hand: four rows of tokens, repeated, must give the same bits at every place and in every count,
in the whole model but for attention, and in attention. The largest count is the yardstick; a count that differs from
it is not used. If the largest does not even agree with itself, nothing is promised, and the log says so.

Measured: float32 on an AMD EPYC with MKL, one and two threads: all of 4, 8, ..., 512 agree; 1, 2 and 3 do not.
"""

import logging
from dataclasses import dataclass

import torch

from astrai_serve.cache.block_attention import KEY_BLOCK, attend_blocks
from astrai_serve.cache.paged_attention import MAX_TILE_ROWS
from astrai_train.models import Transformer

SMALLEST = 4
"""Rows of the smallest forward; also how many different rows are tried."""


@dataclass(frozen=True)
class RowCounts:
    """The row counts in use.

    counts: ascending; the last one is the budget of a step.
    same_bits: whether they were all found to agree.
    """

    counts: tuple[int, ...]
    same_bits: bool

    def padded(self, num_rows: int) -> int:
        """The smallest count for so many rows."""
        return next(count for count in self.counts if count >= num_rows)


class _OwnValue:
    """An attention context without company: every token sees itself."""

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Values [rows, KV heads, D], each for the queries of its head: [rows, heads, D]."""
        return v.repeat_interleave(q.shape[1] // k.shape[1], 1)


@torch.inference_mode()
def find_row_counts(model: Transformer, largest: int) -> RowCounts:
    """Powers of two from 4 to `largest` (itself one, at least 4) that agree with `largest`."""
    candidates = [SMALLEST << step for step in range((largest // SMALLEST).bit_length())]
    wanted = _bits(model, largest)
    if wanted is None:
        _log().warning(
            "on this machine a row's bits depend on its place: answers may depend on what else is served in the same "
            "step, within rounding"
        )
        return RowCounts(tuple(candidates), False)
    agreeing = [count for count in candidates if count == largest or _agree(_bits(model, count), wanted)]
    if len(agreeing) < len(candidates):
        _log().info("row counts in use: %s (others give other bits)", agreeing)
    return RowCounts(tuple(agreeing), True)


def _agree(got: list[torch.Tensor] | None, wanted: list[torch.Tensor]) -> bool:
    return got is not None and all(torch.equal(*pair) for pair in zip(got, wanted, strict=True))


def _bits(model: Transformer, count: int) -> list[torch.Tensor] | None:
    """Everything the four different rows give in a forward of `count` rows; None if they depend on the place."""
    found = [_model_rows(model, count), *_attention_rows(model, min(count, MAX_TILE_ROWS))]
    repeats = [x.unflatten(0, (-1, SMALLEST)) for x in found]
    if any(not torch.equal(x, x[:1].expand_as(x)) for x in repeats):
        return None
    return [x[0] for x in repeats]


def _model_rows(model: Transformer, count: int) -> torch.Tensor:
    device = model.head_weight.device
    rows = torch.arange(SMALLEST, device=device).repeat(count // SMALLEST)
    ids = rows * (model.config.vocab_size // SMALLEST)
    positions = rows * (min(model.config.num_positions, 1000) // SMALLEST)
    return model(ids, positions, _OwnValue())


def _attention_rows(model: Transformer, count: int) -> list[torch.Tensor]:
    """Attention of the same four queries, over two blocks of keys, in one and in five sequences."""
    config, weight = model.config, model.head_weight
    generator = torch.Generator().manual_seed(0)

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(weight)

    q = noise(1, SMALLEST, config.num_attention_heads, config.head_dim).repeat(1, count // SMALLEST, 1, 1)
    k, v = (noise(1, 2 * KEY_BLOCK, config.num_key_value_heads, config.head_dim) for _ in range(2))
    positions = torch.full((1, count), 2 * KEY_BLOCK - 3, device=weight.device)
    many = [x.expand(5, *x.shape[1:]) for x in (q, k, v, positions)]
    # Five sequences side by side count as rows of one: all must agree.
    alone, together = attend_blocks(q, k, v, positions), attend_blocks(*many)
    return [torch.cat([alone.flatten(0, 1), together.flatten(0, 1)])]


def _log() -> logging.Logger:
    return logging.getLogger("astrai.serve")
