"""What one task writes: its parts, documents, ledger and rejects, and the record that it is done.

Bytes depend on the arguments only, not on the plan, the folder or the day, so two workers that race at one
task write the same files and either may win. `task.json` is written last, durably: a task is finished if and
only if it stands there and every file it lists has its size.
"""

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa

from astrai_data.errors import StoreError
from astrai_data.ledger import Ledger
from astrai_data.pack.segments import Segments
from astrai_data.ragged import Ragged
from astrai_data.store.checksums import FileRecord, file_record
from astrai_data.store.columns import BufferRecord, write_columns
from astrai_data.store.files import write_bytes
from astrai_data.store.identity import canonical_json
from astrai_data.store.rejects import rejects_path, write_rejects
from astrai_data.store.segments_file import write_segments
from astrai_data.store.tables import DOCUMENTS_SCHEMA, write_tables

SPLITS = ("train", "validation")


@dataclass(frozen=True)
class PartRecord:
    """One part as its task recorded it; paths are relative to the store."""

    part: int
    split: str
    domain: str | None
    num_rows: int
    num_tokens: int
    num_segments: int
    buffers: tuple[BufferRecord, ...]


@dataclass(frozen=True)
class TaskRecord:
    """What `task.json` holds.

    Attributes:
        key: the task key.
        storage_format: "arrow" or "bin".
        columns: token column -> dtype name; empty without parts.
        parts: in closing order.
        files: everything else the task wrote, rejects included.
        num_documents: documents kept.
        sums: for each (split, domain) of the documents {"split", "domain", "num_documents", "num_trained"}.
        num_rejects: records rejected.
        ranges: what was read, as the run described it.
    """

    key: str
    storage_format: str
    columns: dict[str, str]
    parts: tuple[PartRecord, ...]
    files: tuple[FileRecord, ...]
    num_documents: int
    sums: tuple[dict, ...]
    num_rejects: int
    ranges: tuple[dict, ...]


class TaskWriter:
    """Writes the files of one task under `data/<key>/`.

    Args:
        root: the store; made if missing.
        key: the task key, letters, digits, "-" and "_".
        storage_format: "arrow" or "bin".
        column: name of the token column.
    """

    def __init__(self, root: Path, key: str, *, storage_format: str, column: str = "sequence") -> None:
        if not re.fullmatch(r"[0-9A-Za-z_-]{1,64}", key):
            raise ValueError(f"{key!r} is no task key")
        self._root, self._key, self._column = Path(root), key, column
        self._storage_format = storage_format
        self._dtype: str | None = None
        self._parts: list[PartRecord] = []

    def write_part(self, split: str, domain: str | None, rows: Ragged, segments: Segments) -> None:
        """Write the next part.

        Args:
            split: "train" or "validation".
            domain: of all its rows; None if unknown.
            rows: tokens in their final dtype, the same one for every part of the store.
            segments: in the order of the rows, covering every token.

        Raises:
            ValueError: segments that do not cover the rows, or another dtype than the parts before.
        """
        self._check(split, rows, segments)
        stem = f"data/{self._key}/part-{len(self._parts):03d}"
        buffers = write_columns(self._root, stem, {self._column: rows}, self._storage_format)
        buffers.append(write_segments(self._root, stem, segments))
        counts = (len(rows), len(rows.flat), len(segments))
        self._parts.append(PartRecord(len(self._parts), split, domain, *counts, tuple(buffers)))

    def finish(
        self,
        documents: pa.Table | Iterable[pa.Table],
        ledger: Ledger,
        rejects: Iterable[dict],
        ranges: Iterable[dict],
    ) -> TaskRecord:
        """Write documents, ledger and rejects, then `task.json`.

        Args:
            documents: `DOCUMENTS_SCHEMA`, and `meta` where fields are kept; `input` counts `ranges`. One table, or one
                or more of `ROW_GROUP_ROWS` rows, the last one shorter, of which one is held at a time.
            ledger: of this task.
            rejects: in the store's form (store-format.md, "Rejects").
            ranges: what was read, JSON; no time may stand in it, or bytes would depend on the day.
        """
        folder = f"data/{self._key}"
        sums = _DocumentSums()
        tables = [documents] if isinstance(documents, pa.Table) else documents
        write_tables(self._root / folder / "documents.parquet", map(sums.count, map(_checked, tables)))
        write_bytes(self._root / folder / "ledger.json", canonical_json(ledger.to_rows()))
        paths = [buffer.path for part in self._parts for buffer in part.buffers]
        paths += [f"{folder}/documents.parquet", f"{folder}/ledger.json"]
        num_rejects = write_rejects(self._root, self._key, rejects)
        paths += [rejects_path(self._key)] if num_rejects else []
        record = TaskRecord(
            key=self._key,
            storage_format=self._storage_format,
            columns={self._column: self._dtype} if self._dtype else {},
            parts=tuple(self._parts),
            files=tuple(file_record(self._root, path) for path in sorted(set(paths))),
            num_documents=sums.num_documents,
            sums=tuple(sums.rows()),
            num_rejects=num_rejects,
            ranges=tuple(ranges),
        )
        write_bytes(_task_path(self._root, self._key), canonical_json(dataclasses.asdict(record)), durable=True)
        return record

    def _check(self, split: str, rows: Ragged, segments: Segments) -> None:
        if split not in SPLITS:
            raise ValueError(f"split is {split!r}, wanted one of {SPLITS}")
        covered = np.bincount(segments.row, segments.length, len(rows)).astype(np.int64)
        if not np.array_equal(covered, rows.lengths):
            raise ValueError("the segments do not cover the rows of the part")
        dtype = rows.values.dtype.name
        if self._dtype not in (None, dtype):
            raise ValueError(f"rows are {dtype}, those before were {self._dtype}")
        self._dtype = dtype


def read_task(root: Path, key: str) -> TaskRecord:
    """The record of a finished task.

    Raises:
        StoreError: the task is not finished, or its record is damaged.
    """
    path = _task_path(Path(root), key)
    try:
        fields = orjson.loads(path.read_bytes())
        parts = tuple(_part(part) for part in fields.pop("parts"))
        files = tuple(FileRecord(**file) for file in fields.pop("files"))
        sums, ranges = tuple(fields.pop("sums")), tuple(fields.pop("ranges"))
        return TaskRecord(parts=parts, files=files, sums=sums, ranges=ranges, **fields)
    except FileNotFoundError as error:
        raise StoreError(
            "this task is not finished",
            where=path,
            got="no task.json",
            wanted="the record of a finished task",
            hint="run the same `astrai preprocess` command again: it continues where it stopped",
        ) from error
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreError(
            "the record of a task is damaged",
            where=path,
            got=error,
            wanted="the JSON that the run wrote",
            hint="delete the task's folder and run the same `astrai preprocess` command again",
        ) from error


def finished(root: Path, key: str) -> bool:
    """Whether the task stands whole in the store: its record, and every file in its size."""
    root = Path(root)
    try:
        return all((root / file.path).stat().st_size == file.size for file in read_task(root, key).files)
    except (StoreError, OSError):
        return False


def _task_path(root: Path, key: str) -> Path:
    return root / "data" / key / "task.json"


def _part(fields: dict) -> PartRecord:
    buffers = tuple(BufferRecord(**buffer) for buffer in fields.pop("buffers"))
    return PartRecord(buffers=buffers, **fields)


def _checked(documents: pa.Table) -> pa.Table:
    kept = ["meta"] if "meta" in documents.column_names else []
    schema = pa.schema(list(DOCUMENTS_SCHEMA) + [documents.schema.field(name) for name in kept])
    return documents.select(schema.names).cast(schema)


class _DocumentSums:
    """Documents and trained labels of each (split, domain), table by table."""

    def __init__(self) -> None:
        self.num_documents = 0
        self._sums: dict[tuple[str, str | None], list[int]] = {}

    def count(self, documents: pa.Table) -> pa.Table:
        """Add a table, and hand it on."""
        self.num_documents += documents.num_rows
        grouped = documents.group_by(["split", "domain"], use_threads=False)
        for row in grouped.aggregate([([], "count_all"), ("num_trained", "sum")]).to_pylist():
            sums = self._sums.setdefault((row["split"], row["domain"]), [0, 0])
            sums[0] += row["count_all"]
            sums[1] += row["num_trained_sum"]
        return documents

    def rows(self) -> list[dict]:
        """One entry each, train before validation, then by domain, the nameless first."""
        rows = [
            {"split": split, "domain": domain, "num_documents": num_documents, "num_trained": num_trained}
            for (split, domain), (num_documents, num_trained) in self._sums.items()
        ]
        return sorted(rows, key=lambda row: (row["split"], row["domain"] is not None, row["domain"] or ""))
