"""The logical digest of a table: equal for equal content, however it was stored.

Parquet bytes differ between writer versions, chunking and compression. This digest is SHA-256 over column
names, types and values in one fixed form: offsets from 0 as int64, nulls as one byte an item, strings and
lists of either offset width alike, what stands under a null cleared.
"""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from astrai_data.ragged import offsets_of


def table_digest(table: pa.Table) -> str:
    """SHA-256 (hex) of a table's names, types and values, as if it were one chunk."""
    digest = hashlib.sha256(f"{table.num_rows}".encode())
    for name, column in zip(table.column_names, table.columns, strict=True):
        digest.update(f"\0{name}\0{_type_name(column.type)}\0".encode())
        _add(digest, _one_chunk(column))
    return digest.hexdigest()


def _type_name(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return "struct(" + ",".join(f"{field.name}:{_type_name(field.type)}" for field in kind) + ")"
    if _is_list(kind):
        return f"list({_type_name(kind.value_type)})"
    if _is_bytes(kind):
        return "binary" if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else "string"
    return str(kind)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        wide = pa.large_string() if pa.types.is_string(column.type) else pa.large_binary()
        column = column.cast(wide)  # several GiB would not fit one chunk with 32-bit offsets
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    return pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


def _add(digest, array: pa.Array) -> None:
    digest.update(b"nulls" if array.null_count else b"full")
    if array.null_count:
        digest.update(_bytes_of(array.is_valid()))
    if pa.types.is_struct(array.type):
        for child in array.flatten():  # flatten, unlike field, hands the struct's nulls down
            _add(digest, child)
    elif _is_list(array.type):
        digest.update(offsets_of(_filled(pc.list_value_length(array), 0).to_numpy()))
        _add(digest, array.flatten())
    elif _is_bytes(array.type):
        _add_bytes(digest, array)
    else:
        digest.update(_bytes_of(array))


def _add_bytes(digest, array: pa.Array) -> None:
    digest.update(offsets_of(_filled(pc.binary_length(array), 0).to_numpy()))
    filled = _filled(array, b"" if "binary" in str(array.type) else "")
    width = np.int64 if str(array.type).startswith("large") else np.int32
    _, offsets, data = filled.buffers()
    if len(filled) and data is not None:
        bounds = np.frombuffer(offsets, width, len(filled) + 1, filled.offset * width().itemsize)
        digest.update(memoryview(data)[int(bounds[0]) : int(bounds[-1])])


def _bytes_of(array: pa.Array) -> np.ndarray:
    """Fixed-width values as bytes; bool as one byte each."""
    if pa.types.is_fixed_size_binary(array.type):
        width = array.type.byte_width
        filled = _filled(array, bytes(width))
        return np.frombuffer(filled.buffers()[1] or b"", np.uint8)[filled.offset * width :][: len(filled) * width]
    if pa.types.is_boolean(array.type):
        array = _filled(array, False).cast(pa.uint8())
    return np.ascontiguousarray(_filled(array, 0).to_numpy(zero_copy_only=False))


def _filled(array: pa.Array, value: object) -> pa.Array:
    return array.fill_null(value) if array.null_count else array
