"""Packed rows as samples: a row is a sample, its segments are what attention may see."""

import numpy as np
import pyarrow.compute as pc

from astrai_data.load.batch import IGNORED, Batch
from astrai_data.pack.positions import doc_reset
from astrai_data.ragged import Ragged, offsets_of
from astrai_data.store import TokenStore

COLUMN = "sequence"


class PackedRows:
    """The rows of a packed store, or of one split of it. Pickles as the store's address."""

    def __init__(self, store: TokenStore) -> None:
        self.store = store

    def __len__(self) -> int:
        return self.store.num_rows

    def max_tokens(self) -> int:
        """Tokens that no row exceeds: the capacity it was packed to, or else the longest row of the store."""
        capacity = self.store.manifest.packing.get("max_packed_len")
        return capacity or pc.max(self.store.table("rows")["num_tokens"]).as_py() or 1

    def state_dict(self) -> dict:
        """What a sample is."""
        return {"kind": "rows"}

    def read(self, samples: np.ndarray) -> Batch:
        """The given rows (int64 [n]) as one sequence, read in one gather.

        The label of a token is the next one of its segment; the last token of a segment has none.
        """
        rows = self.store.rows(samples)
        segments = _without_empty(rows.segment_lengths)
        batch = Batch.empty(segments.flat)
        ids, trained = rows.columns[COLUMN].flat, rows.loss_mask.flat
        starts = np.zeros(len(ids), bool)
        starts[batch.cu_seqlens[:-1]] = True
        batch.input_ids[:] = ids
        batch.labels.fill(IGNORED)
        np.copyto(batch.labels[:-1], ids[1:], where=trained[1:] & ~starts[1:])
        batch.position_ids[:] = _positions(segments, self.store.manifest.position_ids_mode)
        return batch


def _positions(segments: Ragged, mode: str) -> np.ndarray:
    """int32 [T]: `doc_reset` restarts at every segment; `continuous` runs on through a row.

    So it does for `none`, which is what a model without position ids does.
    """
    if mode == "doc_reset":
        return doc_reset(segments.flat)
    borders = offsets_of(segments.flat)[segments.offsets]
    return doc_reset(np.diff(borders))


def _without_empty(lengths: Ragged) -> Ragged:
    """The same rows without segments of length 0, which would be borders between nothing."""
    kept = lengths.flat > 0
    if kept.all():
        return Ragged(lengths.flat, lengths.offsets - lengths.offsets[0])
    counts = offsets_of(kept)[lengths.offsets - lengths.offsets[0]]
    return Ragged(lengths.flat[kept], counts)
