"""The attention context of the server: one ragged forward over pages.

The tokens of a forward are spans of several sequences, one behind the other, then padding rows. Each layer first puts
the keys and values of all of them into their slots, then every span attends to its own pages. Spans of one token
(decoding) are attended to together, longer ones (a piece of a prompt) in tiles of at most `MAX_TILE_ROWS` queries,
and every tile has one of the row counts that were found to give the same bits (`engine/row_counts.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from astrai_serve.cache.block_attention import KEY_BLOCK, attend_blocks
from astrai_serve.cache.storage import KeyValueStorage

MAX_TILE_ROWS = 64
"""Bounds the scores held at once: 64 * Hq * context floats."""


@dataclass(frozen=True)
class Span:
    """Tokens [begin, end) of a sequence whose pages are `pages`; all before `begin` are in the cache."""

    pages: Sequence[int]
    begin: int
    end: int


@dataclass(frozen=True)
class Tile:
    """Queries attended to in one call.

    rows: int64 [S, R], their rows in the forward; padding repeats the last one.
    positions: int64 [S, R].
    slots: int64 [S, L], the keys they may see, the zero slot behind the end.
    num_real: how many of the R are no padding.
    """

    rows: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    num_real: int


class PagedAttention:
    """What the tokens of one forward may attend to.

    Args:
        storage: of keys and values.
        page_size: tokens a page.
        spans: of the sequences in this forward, in the order of its rows.
        row_counts: numbers of rows that a matrix product may have, ascending.
        num_rows: of the forward, padding included.
    """

    def __init__(
        self,
        storage: KeyValueStorage,
        page_size: int,
        spans: Sequence[Span],
        row_counts: Sequence[int],
        num_rows: int,
    ) -> None:
        self.storage, self.page_size, self.spans = storage, page_size, spans
        self.row_counts, self.num_rows = row_counts, num_rows
        self.device = storage.keys.device

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q [T, Hq, D], k and v [T, Hkv, D] -> [T, Hq, D]; zeros in padding rows."""
        self.storage.write(layer, self._write_slots, k, v)
        out = torch.zeros_like(q)
        for tile in self._tiles:
            keys, values = self.storage.read(layer, tile.slots)
            found = attend_blocks(q[tile.rows], keys, values, tile.positions)
            real = tile.rows[:, : tile.num_real]
            out[real.flatten()] = found[:, : tile.num_real].flatten(0, 1)
        return out

    @cached_property
    def _write_slots(self) -> torch.Tensor:
        """int64 [T]: where each row's key goes."""
        slots = [slots_of(span.pages, self.page_size, span.end)[span.begin :] for span in self.spans]
        used = sum(map(len, slots))
        waste = torch.full((self.num_rows - used,), self.storage.waste_slot)
        return torch.cat([*slots, waste]).to(self.device)

    @cached_property
    def _tiles(self) -> list[Tile]:
        single, tiles, row = [], [], 0
        for span in self.spans:
            if span.end - span.begin == 1:
                single.append((row, span))
            else:
                tiles += self._span_tiles(row, span)
            row += span.end - span.begin
        return ([self._single_tile(single)] if single else []) + tiles

    def _single_tile(self, single: list[tuple[int, Span]]) -> Tile:
        """One query each of many sequences."""
        num_rows = self.row_counts[0]
        rows = torch.tensor([row for row, _ in single])[:, None].expand(-1, num_rows)
        positions = torch.tensor([span.begin for _, span in single])[:, None].expand(-1, num_rows)
        return self._tile(rows, positions, [span for _, span in single], 1)

    def _span_tiles(self, row: int, span: Span) -> list[Tile]:
        """Many queries of one sequence."""
        tiles = []
        step = max(count for count in self.row_counts if count <= max(MAX_TILE_ROWS, self.row_counts[0]))
        for begin in range(span.begin, span.end, step):
            end = min(begin + step, span.end)
            num_rows = next(count for count in self.row_counts if count >= end - begin)
            positions = torch.arange(begin, begin + num_rows).clamp_(max=end - 1)[None]
            tiles.append(
                self._tile(positions - span.begin + row, positions, [Span(span.pages, begin, end)], end - begin)
            )
        return tiles

    def _tile(self, rows: torch.Tensor, positions: torch.Tensor, spans: list[Span], num_real: int) -> Tile:
        longest = max(span.end for span in spans)
        slots = torch.full((len(spans), -(-longest // KEY_BLOCK) * KEY_BLOCK), self.storage.zero_slot)
        for index, span in enumerate(spans):
            slots[index, : span.end] = slots_of(span.pages, self.page_size, span.end)
        return Tile(*(x.to(self.device) for x in (rows, positions, slots)), num_real)


def slots_of(pages: Sequence[int], page_size: int, num_tokens: int) -> torch.Tensor:
    """int64 [num_tokens]: the slots of a sequence's first tokens."""
    first = torch.tensor(pages[: -(-num_tokens // page_size)], dtype=torch.int64) * page_size
    return (first[:, None] + torch.arange(page_size)).flatten()[:num_tokens]
