"""One mapped part: its tokens, its segments, and what follows from them.

Loss mask, positions and segment lengths are nowhere stored; they are computed here, for a range of tokens or
for a choice of rows, from the runs of the segments concerned and no others.
"""

from functools import cached_property

import numpy as np

from astrai_data.pack.positions import doc_reset
from astrai_data.pack.segments import Segments
from astrai_data.ragged import Ragged, offsets_of
from astrai_data.store.row import Row, RowBatch, row_positions

DERIVED = ("loss_mask", "position_ids")
"""What can be read of a range of tokens beside the token columns."""


class Part:
    """Tokens and segments of one part.

    Args:
        columns: token column -> rows, mapped; all have the same offsets.
        segments: in the order of the rows.
        trained: bool [num_rules], whether the labels under a mask rule are trained.
    """

    def __init__(self, columns: dict[str, Ragged], segments: Segments, trained: np.ndarray) -> None:
        self.columns, self.segments, self._trained = columns, segments, trained
        self._row_offsets = next(iter(columns.values())).offsets
        self.num_rows = len(self._row_offsets) - 1

    @cached_property
    def _segment_offsets(self) -> np.ndarray:
        return offsets_of(self.segments.length)

    def read(self, key: str, begin: int, end: int, mode: str) -> np.ndarray:
        """One token column (a view), or one of `DERIVED`, for tokens `begin` to `end` of the part's flat stream."""
        if key == "loss_mask":
            return self.loss_mask(begin, end)
        if key == "position_ids":
            return self.position_ids(begin, end, mode)
        if key not in self.columns:
            raise KeyError(f"{key!r} is none of {', '.join([*self.columns, *DERIVED])}")
        return self.columns[key].values[begin:end]

    def loss_mask(self, begin: int, end: int) -> np.ndarray:
        """Whether each token of the range is a flagged label: bool [end - begin]."""
        first, last = self._segments_at(begin, end)
        mask = self._mask_between(first, last)
        skipped = begin - self._segment_offsets[first]
        return mask[skipped : skipped + end - begin]

    def position_ids(self, begin: int, end: int, mode: str) -> np.ndarray:
        """int32 [end - begin]: from each segment's begin (`doc_reset`) or the part's (`continuous`)."""
        if mode == "continuous":
            return np.arange(begin, end, dtype=np.int32)
        first, last = self._segments_at(begin, end)
        positions = doc_reset(self.segments.length[first:last])
        skipped = begin - self._segment_offsets[first]
        return positions[skipped : skipped + end - begin]

    def row(self, row: int, mode: str) -> Row:
        """One row: token columns are views; `position_ids` as `row_positions` makes them."""
        begin, end = self._row_offsets[row : row + 2].tolist()
        first, last = np.searchsorted(self.segments.row, np.array([row, row + 1], np.int32)).tolist()
        lengths = self.segments.length[first:last]
        columns = {name: rows.values[begin:end] for name, rows in self.columns.items()}
        positions = None if mode == "none" else np.arange(end - begin, dtype=np.int32)
        if mode == "doc_reset" and last - first > 1:
            positions = doc_reset(lengths)
        return Row(columns, self._mask_between(first, last), lengths, positions)

    def batch(self, rows: np.ndarray, mode: str) -> RowBatch:
        """The given rows (int64 [n], at least one), copied."""
        columns = {name: self._rows_of(column, rows) for name, column in self.columns.items()}
        return self._with_derived(columns, rows, mode)

    def all_rows(self) -> RowBatch:
        """Every row, without `position_ids`; token columns are views."""
        return self._with_derived(self.columns, np.arange(self.num_rows), "none")

    def _with_derived(self, columns: dict[str, Ragged], rows: np.ndarray, mode: str) -> RowBatch:
        row_segments = self._row_segments(rows)
        lengths = Ragged(self.segments.length[row_segments.flat], row_segments.offsets)
        mask = Ragged.from_lengths(self._mask_of(row_segments.flat), self._row_lengths(rows))
        return RowBatch(columns, mask, lengths, row_positions(lengths, mode))

    def _rows_of(self, column: Ragged, rows: np.ndarray) -> Ragged:
        values = np.concatenate([column[row] for row in rows.tolist()])
        return Ragged.from_lengths(values, self._row_lengths(rows))

    def _row_lengths(self, rows: np.ndarray) -> np.ndarray:
        return self._row_offsets[rows + 1] - self._row_offsets[rows]

    def _row_segments(self, rows: np.ndarray) -> Ragged:
        """For each of the given rows (int64 [n]), the indices of its segments."""
        wanted = rows.astype(np.int32)  # another dtype than the segments' would copy them all
        begins = np.searchsorted(self.segments.row, wanted, side="left")
        ends = np.searchsorted(self.segments.row, wanted, side="right")
        return Ragged.from_lengths(ranges(begins, ends), ends - begins)

    def _segments_at(self, begin: int, end: int) -> tuple[int, int]:
        """The segments that hold tokens `begin` to `end`."""
        first = int(np.searchsorted(self._segment_offsets, begin, side="right")) - 1
        return first, max(first, int(np.searchsorted(self._segment_offsets, end, side="left")))

    def _mask_between(self, first: int, last: int) -> np.ndarray:
        """`_mask_of` for segments `first` to `last`, which follow each other."""
        lengths, rules = self.segments.mask_lengths, self.segments.mask_rules
        begin, end = int(lengths.offsets[first]), int(lengths.offsets[last])
        return np.repeat(self._trained[rules.values[begin:end]], lengths.values[begin:end])

    def _mask_of(self, chosen: np.ndarray) -> np.ndarray:
        """bool: whether the tokens of the chosen segments (int [n]) are trained, joined."""
        offsets = self.segments.mask_lengths.offsets
        runs = ranges(offsets[chosen], offsets[chosen + 1])
        flags = self._trained[self.segments.mask_rules.values[runs]]
        return np.repeat(flags, self.segments.mask_lengths.values[runs])


def ranges(begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """int64: begin .. end - 1 for each pair, joined. (2, 0), (4, 1) give 2 3 0."""
    lengths = ends - begins
    starts = offsets_of(lengths)
    return np.arange(starts[-1]) + np.repeat(begins - starts[:-1], lengths)
