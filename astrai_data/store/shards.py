"""The shards of a store, or of one split of it, as columns: none is a Python object until it is looked at."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from astrai_data.ragged import offsets_of
from astrai_data.store.columns import BufferRecord


@dataclass(frozen=True)
class ShardInfo:
    """One part, placed in the whole store.

    Attributes:
        task: row of the tasks table.
        part: number in the task.
        split, domain: of all its rows.
        row_begin, num_rows: row ids, counted over all splits.
        token_begin, num_tokens: places in the flat stream of all splits.
        num_segments: documents, or pieces of them, in its rows.
        document_begin: document id of the first document of its task.
        buffers: where its bytes lie.
    """

    task: int
    part: int
    split: str
    domain: str | None
    row_begin: int
    num_rows: int
    token_begin: int
    num_tokens: int
    num_segments: int
    document_begin: int
    buffers: tuple[BufferRecord, ...]


class Shards(Sequence):
    """Shards in manifest order.

    Args:
        table: the shards table.
        split: only this split; None for all.

    Attributes:
        row_offsets: int64 [n + 1], rows before each shard, counted inside the split.
        token_offsets: int64 [n + 1], tokens before each shard, counted inside the split.
    """

    def __init__(self, table: pa.Table, split: str | None) -> None:
        if split is not None:
            table = table.filter(pc.equal(table["split"], split))
        self._table = table.combine_chunks()
        self.row_offsets = offsets_of(self._table["num_rows"].to_numpy())
        self.token_offsets = offsets_of(self._table["num_tokens"].to_numpy())

    def __len__(self) -> int:
        return self._table.num_rows

    def __getitem__(self, index: int) -> ShardInfo:
        if not -len(self) <= index < len(self):
            raise IndexError(f"shard {index} of {len(self)}")
        fields = self._table.slice(index % len(self), 1).to_pylist()[0]
        buffers = tuple(BufferRecord(**buffer) for buffer in fields.pop("buffers"))
        return ShardInfo(buffers=buffers, **fields)

    def of_rows(self, rows: np.ndarray | int) -> np.ndarray:
        """The shard of each of `rows`, which are counted inside the split: int64, in the shape of `rows`."""
        return np.searchsorted(self.row_offsets, rows, side="right") - 1

    def pieces(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """What each shard gives to tokens `begin` to `end` of the split's flat stream.

        Yields:
            (shard, begin, end) inside the shard, in order; an empty range gives one empty piece.
        """
        first = int(np.searchsorted(self.token_offsets, begin, side="right")) - 1
        last = max(first + 1, int(np.searchsorted(self.token_offsets, end, side="left")))
        for shard in range(first, last):
            start, stop = self.token_offsets[shard : shard + 2].tolist()
            yield shard, max(begin - start, 0), min(end, stop) - start
