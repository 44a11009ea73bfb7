"""Whole files that contradict each other: what checksums cannot see.

Ids fit the vocabulary, segments cover rows, mask runs cover segments, and the sums of parts, documents, ledgers and
manifest agree. A defect of the writer shows here.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from astrai_data.errors import RunError, StoreError
from astrai_data.ledger import SCHEMA as LEDGER_SCHEMA
from astrai_data.ledger import Ledger
from astrai_data.pack.segments import Segments
from astrai_data.ragged import Ragged, offsets_of
from astrai_data.store.columns import read_column
from astrai_data.store.finding import Finding
from astrai_data.store.manifest import FILE_NAME, Manifest
from astrai_data.store.rollup import COUNTS, read_ledger
from astrai_data.store.segments_file import SEGMENTS, read_segments
from astrai_data.store.shards import ShardInfo, Shards
from astrai_data.store.tables import read_table


class Contents:
    """The contents of a store's undamaged files.

    Args:
        root: the store.
        manifest: its manifest.
        tables: all its tables.
        damaged: paths of files that are not to be looked into.
        max_id: the largest id of the tokenizer; None: not known.
    """

    def __init__(
        self, root: Path, manifest: Manifest, tables: dict[str, pa.Table], damaged: set[str], max_id: int | None
    ) -> None:
        self.root, self.manifest, self.tables, self.damaged, self.max_id = root, manifest, tables, damaged, max_id
        self.trained = np.array([rule.trained for rule in manifest.mask_rules], bool)
        self.row_lengths = tables["rows"]["num_tokens"].to_numpy()
        self.counts: dict[tuple[str, str | None], Counter] = {}
        self.complete = True  # until something could not be looked into

    def check(self) -> Iterator[Finding]:
        """Look into every task, then compare the sums."""
        shards = Shards(self.tables["shards"], None)
        task_of = self.tables["shards"]["task"].to_numpy()
        ledger = Ledger()
        for task, key in enumerate(self.tables["tasks"]["key"].to_pylist()):
            yield from self._check_task(key, [shards[i] for i in np.flatnonzero(task_of == task).tolist()])
            yield from self._add_ledger(ledger, key)
        if self.complete:
            yield from self._check_sums()
            yield from self._check_ledger(ledger)

    def _check_task(self, key: str, parts: list[ShardInfo]) -> Iterator[Finding]:
        path = f"data/{key}/documents.parquet"
        paths = {path} | {buffer.path for part in parts for buffer in part.buffers}
        if paths & self.damaged:
            self.complete = False
            return
        documents = read_table(self.root / path, ["num_tokens", "num_trained", "split", "domain"])
        sums = np.zeros((2, documents.num_rows), np.int64)
        for part in parts:
            findings = list(self._check_part(part, documents, sums))
            yield from findings
            self.complete &= not findings
        for found, name in zip(sums, ("num_tokens", "num_trained"), strict=True):
            if not np.array_equal(found, documents[name].to_numpy()):
                number = int(np.flatnonzero(found != documents[name].to_numpy())[0])
                told = f"document {number} has {name} {documents[name][number]}, its segments {found[number]}"
                yield Finding(path, told)
        for entry in documents.select(["split", "domain"]).group_by(["split", "domain"]).aggregate([([], "count_all")]).to_pylist():
            self._count(entry["split"], entry["domain"], num_documents=entry["count_all"])

    def _check_part(self, part: ShardInfo, documents: pa.Table, sums: np.ndarray) -> Iterator[Finding]:
        path = next(buffer.path for buffer in part.buffers if buffer.column == SEGMENTS)
        try:
            segments = read_segments(self.root, path)
            columns = {n: read_column(self.root, part.buffers, n, d) for n, d in self.manifest.columns.items()}
        except StoreError as error:
            yield Finding(path, f"{error.what}: {error.got}")
            return
        for name, rows in columns.items():
            token_path = next(buffer.path for buffer in part.buffers if buffer.column == name)
            yield from (Finding(token_path, what) for what in self._rows_wrong(part, rows))
        wrong = list(self._segments_wrong(part, segments, documents))
        yield from (Finding(path, what) for what in wrong)
        if not wrong:
            trained = segments.num_trained(self.trained)
            np.add.at(sums[0], segments.document, segments.length)
            np.add.at(sums[1], segments.document, trained)
            told = {"num_segments": len(segments), "num_trained": int(trained.sum()), "num_shards": 1}
            self._count(part.split, part.domain, num_rows=part.num_rows, num_tokens=part.num_tokens, **told)

    def _rows_wrong(self, part: ShardInfo, rows: Ragged) -> Iterator[str]:
        expected = self._row_lengths(part)
        if rows.offsets[0] != 0 or not np.array_equal(rows.lengths, expected):
            yield "its row lengths are not those of the rows table"
        if len(rows.values) != part.num_tokens or expected.sum() != part.num_tokens:
            yield f"it has {len(rows.values):,} tokens, wanted {part.num_tokens:,}"
        capacity = self.manifest.packing["max_packed_len"]
        if capacity is not None and self.manifest.packing["strategy"] != "simple" and expected.max(initial=0) > capacity:
            yield f"a row has {expected.max():,} tokens, max_packed_len is {capacity:,}"
        if self.max_id is not None and len(rows.values):
            least, most = int(rows.values.min()), int(rows.values.max())
            if least < 0 or most > self.max_id:
                yield f"its ids go from {least} to {most}, the tokenizer's from 0 to {self.max_id}"

    def _row_lengths(self, part: ShardInfo) -> np.ndarray:
        return self.row_lengths[part.row_begin : part.row_begin + part.num_rows]

    def _segments_wrong(self, part: ShardInfo, segments: Segments, documents: pa.Table) -> Iterator[str]:
        rows, runs = segments.row, segments.mask_lengths
        if len(rows) and (rows.min() < 0 or rows.max() >= part.num_rows or (np.diff(rows) < 0).any()):
            yield "segments are not in the order of the rows"
        elif not np.array_equal(np.bincount(rows, segments.length, part.num_rows), self._row_lengths(part)):
            yield "segments do not cover the rows"
        if not np.array_equal(np.diff(offsets_of(runs.values)[runs.offsets]), segments.length):
            yield "mask runs do not cover the segments"
        if segments.mask_rules.values.max(initial=0) >= max(len(self.trained), 1):
            yield f"a mask rule is unknown; there are {len(self.trained)}"
        owners = np.unique(segments.document)
        if len(owners) and (owners[0] < 0 or owners[-1] >= documents.num_rows):
            yield f"a segment is of document {owners[-1]}, the task has {documents.num_rows}"
        elif len(owners):
            owned = documents.take(owners)
            if {(part.split, part.domain)} != set(zip(owned["split"].to_pylist(), owned["domain"].to_pylist(), strict=True)):
                yield f"a document is of another split or domain than {part.split}, {part.domain}"

    def _add_ledger(self, ledger: Ledger, key: str) -> Iterator[Finding]:
        path = f"data/{key}/ledger.json"
        try:
            ledger.merge(read_ledger(self.root, key))
        except StoreError as error:
            self.complete = False
            if path not in self.damaged:
                yield Finding(path, f"{error.what}: {error.got}")

    def _count(self, split: str, domain: str | None, **counts: int) -> None:
        self.counts.setdefault((split, domain), Counter()).update(counts)

    def _check_sums(self) -> Iterator[Finding]:
        groups = [("totals", self.manifest.totals, list(self.counts.values()))]
        for entry in self.manifest.splits:
            groups.append((f"split {entry['split']}", entry, [c for k, c in self.counts.items() if k[0] == entry["split"]]))
        for entry in self.manifest.domains:
            groups.append((f"domain {entry['domain']}", entry, [c for k, c in self.counts.items() if k[1] == entry["domain"]]))
        for title, told, counters in groups:
            for name in COUNTS:
                found = sum(counter[name] for counter in counters)
                if told.get(name) != found:
                    yield Finding(FILE_NAME, f"{title}: {name} is {told.get(name)}, counted {found}")

    def _check_ledger(self, ledger: Ledger) -> Iterator[Finding]:
        path, totals = self.manifest.tables["ledger"]["path"], self.manifest.totals
        if ledger.to_table().cast(LEDGER_SCHEMA) != self.tables["ledger"].combine_chunks():
            yield Finding(path, "it is not the sum of the tasks' ledgers")
        try:
            ledger.check()
        except RunError as error:
            yield Finding(path, f"{error.what}: {error.got}")
        stored = ledger.total("tokens", "trained") + ledger.total("tokens", "masked")
        for what, found, told in (
            ("records kept", ledger.total("records", "kept"), totals["num_documents"]),
            ("tokens trained", ledger.total("tokens", "trained"), totals["num_trained"]),
            ("tokens trained and masked", stored, totals["num_tokens"]),
        ):
            if found != told:
                yield Finding(path, f"{what}: {found:,}, the manifest says {told:,}")
