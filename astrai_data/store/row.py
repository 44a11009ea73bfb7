"""A row, and a batch of rows, as a reader hands them out: token columns, and what is derived from segments."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from astrai_data.pack.positions import doc_reset
from astrai_data.ragged import Ragged, offsets_of


@dataclass(frozen=True)
class Row:
    """One packed row of `n` tokens.

    Attributes:
        columns: token column -> [n]; each is also an attribute (`row.sequence`).
        loss_mask: bool [n], whether the label is flagged; the first of a segment is never trained all the same.
        segment_lengths: int32 [k], tokens of each segment of the row.
        position_ids: int32 [n]; None where the store's mode is `none`.
    """

    columns: dict[str, np.ndarray]
    loss_mask: np.ndarray
    segment_lengths: np.ndarray
    position_ids: np.ndarray | None

    def __getattr__(self, name: str) -> np.ndarray:
        return _column(self, name)


@dataclass(frozen=True)
class RowBatch:
    """Rows in the order they were asked for; every attribute has one ragged row for each of them.

    Attributes:
        columns: token column -> rows; each is also an attribute (`batch.sequence`).
        loss_mask: Ragged bool.
        segment_lengths: Ragged int32.
        position_ids: Ragged int32; None where the store's mode is `none`.
    """

    columns: dict[str, Ragged]
    loss_mask: Ragged
    segment_lengths: Ragged
    position_ids: Ragged | None

    def __getattr__(self, name: str) -> Ragged:
        return _column(self, name)

    def __len__(self) -> int:
        return len(self.segment_lengths)

    def __getitem__(self, index: int) -> Row:
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of a batch of {len(self)}")
        index %= len(self)
        return Row(
            {name: rows[index] for name, rows in self.columns.items()},
            self.loss_mask[index],
            self.segment_lengths[index],
            None if self.position_ids is None else self.position_ids[index],
        )

    def to_arrow(self, with_loss_mask: bool) -> pa.RecordBatch:
        """Token columns (sharing their buffers), `loss_mask` if asked for, `segment_lengths`: `large_list`s."""
        arrays = {name: rows.to_arrow() for name, rows in self.columns.items()}
        if with_loss_mask:
            arrays["loss_mask"] = self.loss_mask.to_arrow()
        return pa.record_batch(arrays | {"segment_lengths": self.segment_lengths.to_arrow()})


def empty_batch(columns: dict[str, str], mode: str) -> RowBatch:
    """No rows, of token columns with the given dtypes."""
    lengths = Ragged.from_rows([], np.int32)
    tokens = {name: Ragged.from_rows([], dtype) for name, dtype in columns.items()}
    return RowBatch(tokens, Ragged.from_rows([], bool), lengths, row_positions(lengths, mode))


def join(batches: list[RowBatch], order: np.ndarray) -> RowBatch:
    """The rows of all `batches` (at least one) one after the other, then rearranged by `order` int64 [n]."""
    if len(batches) == 1 and (np.diff(order) > 0).all():
        return batches[0]
    first = batches[0]
    return RowBatch(
        {name: _join([batch.columns[name] for batch in batches], order) for name in first.columns},
        _join([batch.loss_mask for batch in batches], order),
        _join([batch.segment_lengths for batch in batches], order),
        None if first.position_ids is None else _join([batch.position_ids for batch in batches], order),
    )


def _join(parts: list[Ragged], order: np.ndarray) -> Ragged:
    return Ragged.concat(parts, parts[0].values.dtype).take(order)


def row_positions(segment_lengths: Ragged, mode: str) -> Ragged | None:
    """`position_ids` of rows: from each segment's begin (`doc_reset`), each row's (`continuous`), or None."""
    if mode == "none":
        return None
    offsets = offsets_of(segment_lengths.flat)[segment_lengths.offsets - segment_lengths.offsets[0]]
    return Ragged(doc_reset(segment_lengths.flat if mode == "doc_reset" else np.diff(offsets)), offsets)


def _column(holder: Row | RowBatch, name: str):
    columns = holder.__dict__.get("columns", {})  # __dict__: unpickling asks before `columns` is there
    if name in columns:
        return columns[name]
    raise AttributeError(f"a row has no {name!r}; its token columns are {', '.join(columns) or 'none'}")
