"""One part against the tables: its tokens, its segments, its documents."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from astrai_data.pack.segments import Segments
from astrai_data.ragged import Ragged, offsets_of
from astrai_data.store.manifest import Manifest
from astrai_data.store.shards import ShardInfo


class PartCheck:
    """What every part of a store must keep to.

    Args:
        manifest: the store's.
        max_id: the largest id of its tokenizer; None: not known.
    """

    def __init__(self, manifest: Manifest, max_id: int | None) -> None:
        packing = manifest.packing
        self.capacity = None if packing["strategy"] == "simple" else packing["max_packed_len"]
        self.max_id = max_id
        self.trained = np.array([rule.trained for rule in manifest.mask_rules], bool)

    def rows_wrong(self, part: ShardInfo, rows: Ragged, lengths: np.ndarray) -> Iterator[str]:
        """What is wrong with a token column, `lengths` (int32 [num_rows]) being those of the rows table."""
        if rows.offsets[0] != 0 or not np.array_equal(rows.lengths, lengths):
            yield "its row lengths are not those of the rows table"
        if len(rows.values) != part.num_tokens or lengths.sum(dtype=np.int64) != part.num_tokens:
            yield f"it has {len(rows.values):,} tokens, wanted {part.num_tokens:,}"
        if self.capacity is not None and lengths.max(initial=0) > self.capacity:
            yield f"a row has {lengths.max():,} tokens, max_packed_len is {self.capacity:,}"
        if self.max_id is not None and len(rows.values):
            least, most = int(rows.values.min()), int(rows.values.max())
            if least < 0 or most > self.max_id:
                yield f"its ids go from {least} to {most}, the tokenizer's from 0 to {self.max_id}"

    def segments_wrong(
        self, part: ShardInfo, segments: Segments, lengths: np.ndarray, documents: pa.Table
    ) -> Iterator[str]:
        """What is wrong with the segments, given row `lengths` and the task's `documents` (`split`, `domain`)."""
        rows, runs = segments.row, segments.mask_lengths
        if len(rows) and (rows.min() < 0 or rows.max() >= part.num_rows or (np.diff(rows) < 0).any()):
            yield "segments are not in the order of the rows"
        elif not np.array_equal(np.bincount(rows, segments.length, part.num_rows), lengths):
            yield "segments do not cover the rows"
        if not np.array_equal(np.diff(offsets_of(runs.values)[runs.offsets]), segments.length):
            yield "mask runs do not cover the segments"
        if len(runs.values) and segments.mask_rules.values.max() >= len(self.trained):
            yield f"mask rule {segments.mask_rules.values.max()} is not among the manifest's {len(self.trained)}"
        yield from _owners_wrong(part, np.unique(segments.document), documents)


def _owners_wrong(part: ShardInfo, owners: np.ndarray, documents: pa.Table) -> Iterator[str]:
    if len(owners) and (owners[0] < 0 or owners[-1] >= documents.num_rows):
        yield f"a segment is of document {owners[-1]}, the task has {documents.num_rows}"
        return
    groups = documents.select(["split", "domain"]).take(owners).group_by(["split", "domain"]).aggregate([])
    others = [group for group in groups.to_pylist() if group != {"split": part.split, "domain": part.domain}]
    if others:
        yield f"a document of {others[0]} stands in a part of split {part.split!r}, domain {part.domain!r}"
