"""Which segments of a packed row are attended to together.

A dense attention call takes segments of one length. One call for each segment is slow where there are many; padding
all to the longest is slow where one is long. So similar lengths share a call, padded at their ends. Under a causal
mask no real token sees the padding, so the result is exact and needs no mask. Worked example, lengths 5, 100, 6:

    blocks   1 x 100, 2 x 6
    take     5..104 (the long one), 105..110, 0..4 and 4 again (padding repeats the segment's own last token)
    put      for token 0: slot 106, ...; for token 5: slot 0, ...
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

CALL_COST = 10_000
"""What one more attention call costs, forward and backward, in pairs of tokens (one CPU thread, float32, 4 heads of 64:
0.36 ms against 37 ns a pair)."""
TOKEN_COST = 48
"""What one slot costs besides its pairs (copying it in and out), in pairs of tokens."""


@dataclass(frozen=True)
class SegmentGroups:
    """Blocks of (count, length) slots that follow one another; see the module for `take` and `put`."""

    blocks: tuple[tuple[int, int], ...]
    take: np.ndarray
    """int64 [slots]: the token in each slot."""
    put: np.ndarray
    """int64 [T]: the slot of each token."""

    @cached_property
    def in_place(self) -> bool:
        """Whether the slots are the tokens as they stand, so that nothing needs to be copied."""
        return len(self.take) == len(self.put) and bool((self.take == np.arange(len(self.take))).all())


def group_segments(cu_seqlens: list[int]) -> SegmentGroups:
    """The cheapest grouping of segments with these borders, [n + 1]; empty segments take no part."""
    borders = np.asarray(cu_seqlens, np.int64)
    lengths = np.diff(borders)
    order = np.argsort(-lengths, kind="stable")[: int(np.count_nonzero(lengths))]
    cuts = _cheapest_cuts(lengths[order])
    blocks = [(end - begin, int(lengths[order[begin]])) for begin, end in pairwise(cuts)]
    parts = [_block_tokens(borders, order[begin:end]) for begin, end in pairwise(cuts)]
    take = np.concatenate([tokens for tokens, _ in parts]) if parts else np.empty(0, np.int64)
    real = np.concatenate([is_real for _, is_real in parts]) if parts else np.empty(0, bool)
    put = np.empty(int(borders[-1]), np.int64)
    put[take[real]] = np.flatnonzero(real)
    return SegmentGroups(tuple(blocks), take, put)


def _block_tokens(borders: np.ndarray, segments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The token of each slot of one block, and whether the slot is real rather than padding. Longest first."""
    begins, ends = borders[segments], borders[segments + 1]
    tokens = begins[:, None] + np.arange(ends[0] - begins[0])
    return np.minimum(tokens, ends[:, None] - 1).ravel(), (tokens < ends[:, None]).ravel()


def _cheapest_cuts(lengths: np.ndarray) -> list[int]:
    """Where to cut falling `lengths` [n] into blocks: dynamic programming over the last block's begin."""
    n = len(lengths)
    pairs = lengths * (lengths + TOKEN_COST)  # of a segment padded to each length
    cost, came_from = np.zeros(n + 1), np.zeros(n + 1, np.int64)
    for end in range(1, n + 1):
        totals = cost[:end] + CALL_COST + (end - np.arange(end)) * pairs[:end]
        came_from[end] = np.argmin(totals)
        cost[end] = totals[came_from[end]]
    cuts = [n]
    while cuts[-1] > 0:
        cuts.append(int(came_from[cuts[-1]]))
    return cuts[::-1]
