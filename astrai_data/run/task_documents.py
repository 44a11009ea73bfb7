"""The documents of one task: parked on disk batch by batch, counted when their segments are known.

What a task knows of a document is some 50 bytes, more where fields are kept; a compressed file is one task however
large it is. So only the two counts stay in memory, 8 bytes a document, and memory does not grow with the input. The
file has no name and vanishes with the process, however that ends.
"""

import mmap
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from astrai_data.build import DocumentBatch
from astrai_data.pack import Segments
from astrai_data.store import DOCUMENTS_SCHEMA

_COUNTED = ("num_tokens", "num_trained")


class TaskDocuments:
    """Columns of `documents.parquet`, in the order in which the documents were read.

    Args:
        folder: where documents are parked.
        keep_fields: names of the fields that the pipeline keeps.
    """

    def __init__(self, folder: Path, keep_fields: tuple[str, ...]) -> None:
        meta = [pa.field("meta", pa.struct([(name, pa.large_string()) for name in keep_fields]))]
        self._schema = pa.schema([*DOCUMENTS_SCHEMA, *(meta if keep_fields else [])])
        self._parked = _ParkedBatches(folder, [field for field in self._schema if field.name not in _COUNTED])
        self._length = 0
        self._counts = np.zeros((len(_COUNTED), 0), np.int32)

    def __len__(self) -> int:
        return self._length

    def append(self, documents: DocumentBatch) -> None:
        """Take the next documents."""
        domains, splits = pa.array(documents.domains, pa.string()), pa.array(["train", "validation"])
        columns = {
            "input": pa.array(documents.input),
            "position": pa.array(documents.position),
            "text_hash": pa.array(documents.text_hash, pa.binary(16)),
            "text_bytes": pa.array(documents.text_bytes),
            "domain": domains.take(pa.array(documents.domain)),
            "split": splits.take(pa.array(documents.validation.astype(np.int8))),
            "meta": documents.meta,
        }
        self._parked.append(columns)
        self._length += len(documents)

    def count(self, segments: Segments, trained: np.ndarray) -> None:
        """Count what stands in a part of each document: tokens and trained labels (`trained`: flag of each rule)."""
        surplus = self._length - self._counts.shape[1]
        self._counts = np.pad(self._counts, ((0, 0), (0, surplus)))
        for sums, counted in zip(self._counts, (segments.length, segments.num_trained(trained)), strict=True):
            np.add.at(sums, segments.document, counted.astype(np.int32))

    def to_table(self) -> pa.Table:
        """The table `DOCUMENTS_SCHEMA`, with the struct `meta` where fields are kept; nothing can follow."""
        parked = self._parked.read()
        counts = {name: sums.astype(np.int64) for name, sums in zip(_COUNTED, self._counts, strict=True)}
        columns = [pa.array(counts[name]) if name in counts else parked[name] for name in self._schema.names]
        return pa.table(columns, schema=self._schema)

    def close(self) -> None:
        """Let go of the file; a table made from it stays."""
        self._parked.close()


class _ParkedBatches:
    """Record batches in a nameless file."""

    def __init__(self, folder: Path, fields: list[pa.Field]) -> None:
        self._schema = pa.schema(fields)
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # open for as long as the task runs
        self._writer = pa.ipc.new_stream(self._file, self._schema)

    def append(self, columns: dict[str, pa.Array]) -> None:
        """Write the columns that the schema names."""
        self._writer.write_batch(pa.record_batch([columns[name] for name in self._schema.names], schema=self._schema))

    def read(self) -> pa.Table:
        """All batches, a chunk each, mapped from the file."""
        self._writer.close()
        self._file.flush()
        mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        return pa.ipc.open_stream(pa.py_buffer(mapped)).read_all()

    def close(self) -> None:
        self._file.close()
