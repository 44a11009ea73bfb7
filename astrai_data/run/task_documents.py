"""The documents of one task: parked on disk batch by batch, counted when their segments are known.

What a task knows of a document is some 50 bytes, more where fields are kept; a compressed file is one task however
large it is. So only the two counts stay in memory, 8 bytes a document, and memory does not grow with the input. The
file has no name and vanishes with the process, however that ends.
"""

import mmap
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from astrai_data.build import DocumentBatch
from astrai_data.pack import Segments
from astrai_data.run.windows import SPLITS
from astrai_data.store import DOCUMENTS_SCHEMA, ROW_GROUP_ROWS

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
        self._counts = [np.zeros(0, np.int32) for _ in _COUNTED]

    def __len__(self) -> int:
        return self._length

    def append(self, documents: DocumentBatch) -> None:
        """Take the next documents."""
        columns = {
            "input": pa.array(documents.input),
            "position": pa.array(documents.position),
            "text_hash": pa.Array.from_buffers(
                pa.binary(16), len(documents), [None, pa.py_buffer(documents.text_hash)]
            ),
            "text_bytes": pa.array(documents.text_bytes),
            "domain": _strings(documents.domains).take(pa.array(documents.domain)),
            "split": _strings(SPLITS).take(pa.array(documents.validation.astype(np.int8))),
            "meta": documents.meta,
        }
        self._parked.append(columns)
        self._length += len(documents)

    def count(self, segments: Segments, trained: np.ndarray) -> None:
        """Count what stands in a part of each document: tokens and trained labels (`trained`: flag of each rule)."""
        for sums, counted in zip(self._counts, (segments.length, segments.num_trained(trained)), strict=True):
            sums.resize(self._length, refcheck=False)  # in place, filled up with zeros
            np.add.at(sums, segments.document, counted.astype(np.int32))

    def tables(self) -> Iterator[pa.Table]:
        """Tables `DOCUMENTS_SCHEMA` of a row group each, with the struct `meta` where fields are kept.

        Each holds until the next one is asked for; nothing can be appended any more.
        """
        begin = 0
        for parked in self._parked.read(ROW_GROUP_ROWS):
            end = begin + parked.num_rows
            columns = {name: parked[name] for name in parked.column_names}
            for name, sums in zip(_COUNTED, self._counts, strict=True):
                columns[name] = pa.array(sums[begin:end].astype(np.int64))
            yield pa.table([columns[name] for name in self._schema.names], schema=self._schema)
            begin = end

    def close(self) -> None:
        """Let go of the file."""
        self._parked.close()


@lru_cache(maxsize=8)
def _strings(names: tuple[str | None, ...]) -> pa.StringArray:
    """`names` as Arrow has them; made once, since that takes as long as all else that is done with a small batch."""
    return pa.array(names, pa.string())


class _ParkedBatches:
    """Record batches in a nameless file."""

    def __init__(self, folder: Path, fields: list[pa.Field]) -> None:
        self._schema = pa.schema(fields)
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # open for as long as the task runs
        self._writer = pa.ipc.new_stream(self._file, self._schema)

    def append(self, columns: dict[str, pa.Array]) -> None:
        """Write the columns that the schema names."""
        self._writer.write_batch(pa.record_batch([columns[name] for name in self._schema.names], schema=self._schema))

    def read(self, num_rows: int) -> Iterator[pa.Table]:
        """All batches, mapped from the file: tables of `num_rows` or twice that and so on, and one of the rest.

        The pages of a table are given back when the next one is asked for. Without any batch one empty table comes.
        """
        self._writer.close()
        self._file.flush()
        mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        held, num_held, num_given = [], 0, 0
        for batch in pa.ipc.open_stream(pa.py_buffer(mapped)):
            held.append(batch)
            num_held += batch.num_rows
            if num_held >= num_rows:
                table, num_given = pa.Table.from_batches(held), num_held // num_rows * num_rows
                yield table.slice(0, num_given)
                _give_back(mapped)
                held, num_held = table.slice(num_given).to_batches(), num_held - num_given
        if num_held or not num_given:
            yield pa.Table.from_batches(held, self._schema)

    def close(self) -> None:
        self._file.close()


def _give_back(mapped: mmap.mmap) -> None:
    """Let go of the pages of a mapped file, which are read again where they are still needed, and of Arrow's spare.

    Writing a few row groups leaves Arrow with 85 MB of pages that it does not use, against 10 so.
    """
    if hasattr(mapped, "madvise"):
        mapped.madvise(mmap.MADV_DONTNEED)
    pa.default_memory_pool().release_unused()
