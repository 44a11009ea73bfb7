"""Token columns on disk: ragged rows as raw buffers, in an Arrow file or as bare `.bin` files.

Both forms hold the same two buffers a column, `offsets` (int64 [rows + 1], from 0) and `values`; a reader
needs only their path, place and dtype, so one reader serves both and no Arrow metadata is parsed to open a
part. What limits is the copy into the page cache (`benchmarks/packing.py`, write).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from astrai_data.ragged import Ragged
from astrai_data.store.checksums import block_checksums
from astrai_data.store.files import map_file, replacing, unreadable

OFFSETS, VALUES, FILE = "offsets", "values", "file"


@dataclass(frozen=True)
class BufferRecord:
    """Where a buffer lies.

    Attributes:
        column: a token column, or "segments".
        role: `offsets`, `values`, or `file` (the whole segments file).
        path: relative to the store.
        offset: bytes from the file's start.
        length: bytes.
        block_xxh3: xxh3_64 of every MiB of the buffer.
    """

    column: str
    role: str
    path: str
    offset: int
    length: int
    block_xxh3: list[int]


def write_columns(root: Path, stem: str, columns: dict[str, Ragged], storage_format: str) -> list[BufferRecord]:
    """Write one part's token columns below `root`.

    Args:
        root: the store.
        stem: path of the part without suffix, relative to the store ("data/KEY/part-000").
        columns: rows of each column; all columns have the same number of rows.
        storage_format: "arrow" or "bin".

    Returns:
        Two buffers a column.
    """
    rebased = {name: _rebased(rows) for name, rows in columns.items()}
    return {"arrow": _write_arrow, "bin": _write_bin}[storage_format](root, stem, rebased)


def read_column(root: Path, buffers: Iterable[BufferRecord], column: str, dtype: str) -> Ragged:
    """Map one column's rows, read-only, zero-copy.

    Raises:
        StoreError: a file that cannot be read or is too short.
    """
    by_role = {buffer.role: buffer for buffer in buffers if buffer.column == column}
    offsets = map_buffer(root, by_role[OFFSETS], np.dtype(np.int64))
    return Ragged(map_buffer(root, by_role[VALUES], np.dtype(dtype)), offsets)


def map_buffer(root: Path, buffer: BufferRecord, dtype: np.dtype) -> np.ndarray:
    """The buffer's items, mapped read-only: [length / itemsize].

    Raises:
        StoreError: its file cannot be read or is too short.
    """
    path = root / buffer.path
    try:
        mapped = map_file(path)
    except OSError as error:
        raise unreadable(path, error) from error
    end = buffer.offset + buffer.length
    if mapped.size < end:
        what = "a file of the store is too short"
        raise unreadable(path, f"{mapped.size:,} bytes", what=what, wanted=f"at least {end:,}")
    return np.frombuffer(mapped, dtype, buffer.length // dtype.itemsize, buffer.offset)


def _rebased(rows: Ragged) -> Ragged:
    values = np.ascontiguousarray(rows.flat)
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return Ragged(little, np.ascontiguousarray(rows.offsets - rows.offsets[0], np.int64))


def _write_arrow(root: Path, stem: str, columns: dict[str, Ragged]) -> list[BufferRecord]:
    fields = [pa.field(name, _list_type(rows.values.dtype), nullable=False) for name, rows in columns.items()]
    arrays = [
        pa.LargeListArray.from_arrays(rows.offsets, rows.values, type=field.type)
        for field, rows in zip(fields, columns.values(), strict=True)
    ]
    path = f"{stem}.arrow"
    with replacing(root / path) as temporary:
        write_ipc(temporary, pa.record_batch(arrays, schema=pa.schema(fields)))
    return _locate(root, path)


def write_ipc(path: Path, batch: pa.RecordBatch) -> None:
    """Write an Arrow file of one uncompressed record batch."""
    options = pa.ipc.IpcWriteOptions(compression=None, use_threads=False)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)


def _list_type(dtype: np.dtype) -> pa.DataType:
    return pa.large_list(pa.field("item", pa.from_numpy_dtype(dtype), nullable=False))


def _locate(root: Path, path: str) -> list[BufferRecord]:
    """Find each buffer by its address in the mapped file: Arrow only knows places inside the batch."""
    mapped = map_file(root / path)
    batch = pa.ipc.open_file(mapped).get_batch(0)
    records = []
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        _, offsets, _, values = array.buffers()
        total = len(array.values) * array.type.value_type.bit_width // 8
        for role, buffer, length in ((OFFSETS, offsets, (len(array) + 1) * 8), (VALUES, values, total)):
            place = buffer.address - mapped.address if length else 0
            records.append(_record(name, role, path, place, mapped.slice(place, length)))
    return records


def _write_bin(root: Path, stem: str, columns: dict[str, Ragged]) -> list[BufferRecord]:
    records = []
    for name, rows in columns.items():
        files = {
            OFFSETS: (f"{stem}/{name}.offsets.bin", rows.offsets),
            VALUES: (f"{stem}/{name}.bin", rows.values),
        }
        for role, (path, array) in files.items():
            with replacing(root / path) as temporary:
                temporary.write_bytes(array)
            records.append(_record(name, role, path, 0, map_file(root / path)))
    return records


def _record(column: str, role: str, path: str, offset: int, data: pa.Buffer) -> BufferRecord:
    return BufferRecord(column, role, path, offset, data.size, block_checksums(data))
