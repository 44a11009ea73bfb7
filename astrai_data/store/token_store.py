"""Reading a store: rows and the flat token stream, tables, documents, rejects.

Opening reads the manifest and one table; parts are mapped when first touched and the least recently used are
let go. A store pickles as its address and reopens there, holds no descriptors, threads or locks, and so
survives fork and spawn. 10,000 shards of 2^24 tokens open in 0.1 s (`benchmarks/store.py`).
"""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from astrai_data.errors import StoreError
from astrai_data.mask_rule import MaskRule
from astrai_data.pack.segments import Segments
from astrai_data.ragged import Ragged
from astrai_data.store.columns import read_column
from astrai_data.store.documents import iterate_rejects, read_documents
from astrai_data.store.locate import SPLITS, local_root, read_manifest, split_counts
from astrai_data.store.part import Part
from astrai_data.store.row import Row, RowBatch, empty_batch, join
from astrai_data.store.segments_file import SEGMENTS, read_segments
from astrai_data.store.shards import Shards
from astrai_data.store.tables import read_table
from astrai_data.store.tokenizer_copy import open_tokenizer


class StoreRangeError(StoreError, IndexError, ValueError):
    """A row or a range of tokens that the store does not have."""


class TokenStore:
    """A token store, or one split of it. Use `TokenStore.open`.

    Attributes:
        root: the store's directory.
        split: "train", "validation" or None (all).
        manifest: what the store says of itself, all splits together.
        store_id: SHA-256 of the manifest.
        shards: a sequence of `ShardInfo`, this split's.
    """

    def __init__(self, root: Path, split: str | None, max_open_parts: int) -> None:
        self.root, self.split, self._max_open_parts = root, split, max_open_parts
        self.manifest, self.store_id = read_manifest(root)
        self._counts = split_counts(self.manifest, split, root)
        self.shards = Shards(self.table("shards"), split)
        self._mode = self.manifest.position_ids_mode
        self._trained = np.array([rule.trained for rule in self.manifest.mask_rules], bool)
        # lru_cache is thread-safe without a lock that a fork could leave locked.
        self._part = lru_cache(max_open_parts)(self._open_part)

    @classmethod
    def open(cls, url: str | Path, split: str | None = "train", *, max_open_parts: int = 64) -> "TokenStore":
        """Open the store at `url`.

        Args:
            url: its directory.
            split: "train", "validation", or None for all.
            max_open_parts: how many parts stay mapped.

        Raises:
            StoreError: no store, or one that is unfinished, damaged, unknown, or without that split.
        """
        return cls(local_root(url), split, max_open_parts)

    def __reduce__(self):
        return _reopen, (str(self.root), self.split, self._max_open_parts, self.store_id)

    def __repr__(self) -> str:
        return f"TokenStore({str(self.root)!r}, split={self.split!r})"

    def __len__(self) -> int:
        return self.num_rows

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the token columns."""
        return tuple(self.manifest.columns)

    @property
    def mask_rules(self) -> tuple[MaskRule, ...]:
        """What the segments' `mask_rules` refer to."""
        return self.manifest.mask_rules

    @property
    def num_rows(self) -> int:
        """Rows of the split."""
        return self._counts["num_rows"]

    @property
    def num_segments(self) -> int:
        """Segments of the split."""
        return self._counts["num_segments"]

    @property
    def num_documents(self) -> int:
        """Documents of the split; one that was cut counts once."""
        return self._counts["num_documents"]

    @property
    def num_tokens(self) -> int:
        """Tokens of the split."""
        return self._counts["num_tokens"]

    @property
    def num_trained(self) -> int:
        """Labels of the split that can be trained: flagged and not the first of a segment."""
        return self._counts["num_trained"]

    def row(self, index: int) -> Row:
        """Row `index`, counted inside the split.

        Raises:
            StoreRangeError: not 0 <= index < num_rows.
        """
        self._check_rows(np.array([index]))
        shard = int(self.shards.of_rows(index))
        local = index - int(self.shards.row_offsets[shard])
        return self._part(shard).row(local, self._mode)

    def rows(self, indices: np.ndarray | list[int]) -> RowBatch:
        """The rows of the given indices, in their order, repeats allowed.

        Raises:
            StoreRangeError: an index that is not 0 <= index < num_rows.
        """
        indices = np.asarray(indices, np.int64)
        self._check_rows(indices)
        shard_of = self.shards.of_rows(indices)
        order = np.argsort(shard_of, kind="stable")
        touched, begins = np.unique(shard_of[order], return_index=True)
        chosen = np.split(indices[order], begins[1:])
        pairs = zip(touched.tolist(), chosen, strict=True) if len(touched) else []
        batches = [self._part(shard).batch(rows - self.shards.row_offsets[shard], self._mode) for shard, rows in pairs]
        return join(batches or [empty_batch(self.manifest.columns, self._mode)], np.argsort(order, kind="stable"))

    def slice(self, begin: int, end: int, keys: tuple[str, ...] | None = None) -> dict[str, np.ndarray]:
        """Tokens `begin` to `end` of the flat stream of all shards of the split, in order.

        Args:
            begin: first token, below `num_tokens`.
            end: after the last token; `begin` for an empty range.
            keys: token columns, "loss_mask" (bool) and "position_ids" (int32; along the shard if `continuous`);
                None: all token columns.

        Returns:
            key -> [end - begin]; read-only and mapped where one shard holds the range.

        Raises:
            StoreRangeError: a range outside the stream.
            KeyError: an unknown key.
        """
        if not (0 <= begin <= end <= self.num_tokens and begin < self.num_tokens):
            wanted = f"0 <= begin <= end <= {self.num_tokens:,}, begin < {self.num_tokens:,}"
            raise StoreRangeError(
                "no such range of tokens", where=self.root, got=(begin, end), wanted=wanted, hint=SPLITS
            )
        pieces = [(self._part(shard), *bounds) for shard, *bounds in self.shards.pieces(begin, end)]
        return {
            key: _joined([part.read(key, *bounds, self._mode) for part, *bounds in pieces])
            for key in keys or self.columns
        }

    def tokens(self, shard: int, column: str | None = None) -> Ragged:
        """The rows of one shard (counted inside the split), mapped."""
        return self._part(shard).columns[column or self.columns[0]]

    def segments(self, shard: int) -> Segments:
        """The segments of one shard (counted inside the split); `document` counts from `document_begin`."""
        return self._part(shard).segments

    def table(self, name: str) -> pa.Table:
        """A table of the whole store: "rows", "shards", "inputs", "tasks" or "ledger".

        Raises:
            StoreError: an unknown name, or a damaged table.
        """
        if name not in self.manifest.tables:
            wanted, hint = ", ".join(self.manifest.tables), "documents and rejects have methods of their own"
            raise StoreError("no such table", where=self.root, got=name, wanted=wanted, hint=hint)
        entry = self.manifest.tables[name]
        return read_table(self.root / entry["path"], num_rows=entry["num_rows"])

    def documents(self) -> pa.Table:
        """Every document of the store, all splits, in order of id; `input` is a row of `inputs`."""
        return read_documents(self.root, self.table("tasks"))

    def rejects(self) -> Iterator[dict]:
        """Every rejected record of the store, with the name of its input as `source`."""
        return iterate_rejects(self.root, self.table("tasks"), self.table("inputs")["name"].to_pylist())

    def tokenizer(self):
        """The store's own copy of its tokenizer."""
        return open_tokenizer(self.root, self.manifest.tokenizer)

    def to_arrow(self) -> pa.Table:
        """All rows of the split: token columns (mapped), `loss_mask` where the store has one, `segment_lengths`.

        Every part stays mapped as long as the table lives; the mask takes one bit a token.
        """
        batches = [self._part(shard).all_rows() for shard in range(len(self.shards))]
        batches = batches or [empty_batch(self.manifest.columns, "none")]
        return pa.Table.from_batches([batch.to_arrow(self.manifest.has_loss_mask) for batch in batches])

    def verify(self) -> list:
        """Read the whole store, all splits, and return what is wrong with it: a list of `Finding`."""
        from astrai_data.store.verify import verify_store

        return verify_store(self.root)

    def _check_rows(self, indices: np.ndarray) -> None:
        outside = indices[(indices < 0) | (indices >= self.num_rows)]
        if len(outside):
            wanted = f"0 to {self.num_rows - 1}" if self.num_rows else "nothing: this split has no rows"
            raise StoreRangeError("no such row", where=self.root, got=int(outside[0]), wanted=wanted, hint=SPLITS)

    def _open_part(self, shard: int) -> Part:
        buffers = self.shards[shard].buffers
        columns = {n: read_column(self.root, buffers, n, kind) for n, kind in self.manifest.columns.items()}
        path = next(buffer.path for buffer in buffers if buffer.column == SEGMENTS)
        return Part(columns, read_segments(self.root, path), self._trained)


def _reopen(root: str, split: str | None, max_open_parts: int, store_id: str) -> TokenStore:
    store = TokenStore.open(root, split, max_open_parts=max_open_parts)
    if store.store_id != store_id:
        raise StoreError(
            "the store was replaced while it was in use",
            where=root,
            got=f"store id {store.store_id}",
            wanted=store_id,
            hint="open it anew",
        )
    return store


def _joined(pieces: list[np.ndarray]) -> np.ndarray:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
