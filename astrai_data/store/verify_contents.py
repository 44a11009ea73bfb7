"""Whole files that contradict each other: what checksums cannot see.

Ids fit the vocabulary, segments cover rows, mask runs cover segments, and the sums of parts, documents,
ledgers and manifest agree. A defect of the writer shows here.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from astrai_data.errors import RunError, StoreError
from astrai_data.ledger import Ledger
from astrai_data.store.columns import read_column
from astrai_data.store.finding import Finding
from astrai_data.store.manifest import FILE_NAME, Manifest
from astrai_data.store.rollup import COUNTS, read_ledger
from astrai_data.store.segments_file import SEGMENTS, read_segments
from astrai_data.store.shards import ShardInfo, Shards
from astrai_data.store.tables import read_table
from astrai_data.store.verify_part import PartCheck

_COLUMNS = ["num_tokens", "num_trained", "split", "domain"]


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
        self.root, self.manifest, self.tables, self.damaged = root, manifest, tables, damaged
        self.part_check = PartCheck(manifest, max_id)
        self.row_lengths = tables["rows"]["num_tokens"].to_numpy()
        self.counts: dict[tuple[str, str | None], Counter] = {}
        self.ledger = Ledger()
        self.complete = True  # until something could not be looked into

    def check(self) -> Iterator[Finding]:
        """Look into every task, then compare the sums."""
        shards = Shards(self.tables["shards"], None)
        task_of = self.tables["shards"]["task"].to_numpy()
        for task, key in enumerate(self.tables["tasks"]["key"].to_pylist()):
            try:
                yield from self._check_task(key, [shards[i] for i in np.flatnonzero(task_of == task).tolist()])
            except StoreError as error:
                self.complete = False
                yield Finding(f"data/{key}", f"{error.what}: {error.where}: {error.got}")
        if self.complete:
            yield from self._check_sums()
            yield from self._check_ledger()

    def _check_task(self, key: str, parts: list[ShardInfo]) -> Iterator[Finding]:
        documents_path = f"data/{key}/documents.parquet"
        paths = {buffer.path for part in parts for buffer in part.buffers}
        if (paths | {documents_path, f"data/{key}/ledger.json"}) & self.damaged:
            self.complete = False
            return
        documents = read_table(self.root / documents_path, _COLUMNS)
        sums = np.zeros((2, documents.num_rows), np.int64)
        for part in parts:
            findings = list(self._check_part(part, documents, sums))
            self.complete &= not findings
            yield from findings
        if self.complete:
            yield from (Finding(documents_path, what) for what in _documents_wrong(documents, sums))
        self._count_documents(documents)
        self.ledger.merge(read_ledger(self.root, key))

    def _check_part(self, part: ShardInfo, documents: pa.Table, sums: np.ndarray) -> Iterator[Finding]:
        """Look into one part; add the tokens and trained labels of its segments to their documents' `sums` [2, n]."""
        path = next(buffer.path for buffer in part.buffers if buffer.column == SEGMENTS)
        lengths = self.row_lengths[part.row_begin : part.row_begin + part.num_rows]
        try:
            segments = read_segments(self.root, path)
            for name, dtype in self.manifest.columns.items():
                rows = read_column(self.root, part.buffers, name, dtype)
                token_path = next(buffer.path for buffer in part.buffers if buffer.column == name)
                yield from (Finding(token_path, what) for what in self.part_check.rows_wrong(part, rows, lengths))
        except StoreError as error:
            yield Finding(path, f"{error.what}: {error.got}")
            return
        wrong = list(self.part_check.segments_wrong(part, segments, lengths, documents))
        if wrong:
            yield from (Finding(path, what) for what in wrong)
            return
        trained = segments.num_trained(self.part_check.trained)
        np.add.at(sums[0], segments.document, segments.length)
        np.add.at(sums[1], segments.document, trained)
        counts = {"num_segments": len(segments), "num_trained": int(trained.sum()), "num_shards": 1}
        self._count(part.split, part.domain, num_rows=part.num_rows, num_tokens=part.num_tokens, **counts)

    def _count_documents(self, documents: pa.Table) -> None:
        groups = documents.group_by(["split", "domain"]).aggregate([([], "count_all")])
        for group in groups.to_pylist():
            self._count(group["split"], group["domain"], num_documents=group["count_all"])

    def _count(self, split: str, domain: str | None, **counts: int) -> None:
        self.counts.setdefault((split, domain), Counter()).update(counts)

    def _check_sums(self) -> Iterator[Finding]:
        yield from self._check_sum("totals", self.manifest.totals, list(self.counts.values()))
        for entry in self.manifest.splits:
            counters = [counter for (split, _), counter in self.counts.items() if split == entry["split"]]
            yield from self._check_sum(f"split {entry['split']}", entry, counters)
        for entry in self.manifest.domains:
            counters = [counter for (_, domain), counter in self.counts.items() if domain == entry["domain"]]
            yield from self._check_sum(f"domain {entry['domain']}", entry, counters)

    def _check_sum(self, title: str, told: dict, counters: list[Counter]) -> Iterator[Finding]:
        for name in COUNTS:
            found = sum(counter[name] for counter in counters)
            if told.get(name) != found:
                yield Finding(FILE_NAME, f"{title}: {name} is {told.get(name)}, counted {found}")

    def _check_ledger(self) -> Iterator[Finding]:
        path, totals, total = self.manifest.tables["ledger"]["path"], self.manifest.totals, self.ledger.total
        if not self.ledger.to_table().equals(self.tables["ledger"]):
            yield Finding(path, "it is not the sum of the tasks' ledgers")
        try:
            self.ledger.check()
        except RunError as error:
            yield Finding(path, f"{error.what}: {error.got}")
        trained = total("tokens", "trained")
        for what, found, told in (
            ("records kept", total("records", "kept"), totals["num_documents"]),
            ("tokens trained", trained, totals["num_trained"]),
            ("tokens trained and masked", trained + total("tokens", "masked"), totals["num_tokens"]),
        ):
            if found != told:
                yield Finding(path, f"{what}: {found:,}, the manifest says {told:,}")


def _documents_wrong(documents: pa.Table, sums: np.ndarray) -> Iterator[str]:
    for name, found in zip(("num_tokens", "num_trained"), sums, strict=True):
        told = documents[name].to_numpy()
        for number in np.flatnonzero(found != told)[:1].tolist():
            yield f"document {number} has {name} {told[number]}, its segments have {found[number]}"
