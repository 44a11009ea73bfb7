"""Columns of a file that is typed already (Parquet) to the wanted columns and rejects.

Strings are checked to be UTF-8, which a Parquet writer need not have done; nested values become JSON bytes. A
column of another type than wanted rejects the rows that have a value in it, not the file.
"""

from collections.abc import Sequence

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from astrai_data.records.chunk import RAW_BYTES, RecordChunk, Reject, WantedField, make_chunk

Misfits = dict[int, tuple[str, str]]  # row of the batch -> (reason, message)


def batch_chunk(
    batch: pa.RecordBatch, position: int, wanted: Sequence[WantedField], max_record_bytes: int
) -> RecordChunk:
    """The rows of `batch`, of which the first has the ordinal `position` in its file."""
    misfits: Misfits = {}
    arrays = []
    for field in wanted:
        array, unfit = _convert(_column(batch, field), field)
        misfits = unfit | _too_large(array, field, max_record_bytes) | misfits
        arrays.append(array)
    positions = position + np.arange(batch.num_rows)
    rejects = [_reject(batch, row, position, wanted, *misfits[row]) for row in sorted(misfits)]
    if misfits:
        keep = np.setdiff1d(np.arange(batch.num_rows), list(misfits))
        positions, arrays = positions[keep], [array.take(pa.array(keep)) for array in arrays]
    return make_chunk(positions, arrays, wanted, rejects)


def _column(batch: pa.RecordBatch, field: WantedField) -> pa.Array:
    if field.own_name not in batch.schema.names:
        return pa.nulls(batch.num_rows)
    array = batch.column(field.own_name)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _convert(array: pa.Array, field: WantedField) -> tuple[pa.Array, Misfits]:
    kind, type_ = field.spec.kind, field.spec.type
    if pa.types.is_null(array.type) or (kind == "domain" and not _is_stringy(array.type)):
        return pa.nulls(len(array), type_), {}
    if kind != "json" and _is_stringy(array.type):
        return _strings(array, field)
    if kind == "text":
        message = f"field {field.own_name!r}: got {array.type}, wanted a string"
        rows = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False)).tolist()
        return pa.nulls(len(array), type_), dict.fromkeys(rows, ("wrong_type", message))
    return _json(array, field)


def _is_stringy(type_: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(type_) for test in tests) or pa.types.is_binary(type_) or pa.types.is_large_binary(type_)


def _strings(array: pa.Array, field: WantedField) -> tuple[pa.Array, Misfits]:
    """`array` as large strings; only the cast from binary looks at the bytes."""
    array = array.cast(pa.large_binary())
    try:
        return array.cast(pa.large_string()), {}
    except pa.ArrowInvalid:
        pass
    values: list[str | None] = []
    misfits: Misfits = {}
    for row, value in enumerate(array.to_pylist()):
        try:
            values.append(None if value is None else value.decode())
        except UnicodeDecodeError as error:
            values.append(None)
            misfits[row] = _not_utf8(error, field)
    return pa.array(values, pa.large_string()), misfits


def _not_utf8(error: UnicodeDecodeError, field: WantedField) -> tuple[str, str]:
    found = f"byte {error.start} of a string is {error.object[error.start]:#04x}: {error.reason}"
    return "invalid_utf8", f"field {field.own_name!r}: {found}"


def _json(array: pa.Array, field: WantedField) -> tuple[pa.Array, Misfits]:
    """Each value of `array` as JSON."""
    values: list[bytes | None] = []
    misfits: Misfits = {}
    for row in range(len(array)):
        try:
            value = _python(array[row])
            values.append(None if value is None else orjson.dumps(value, default=_plain))
        except UnicodeDecodeError as error:
            values.append(None)
            misfits[row] = _not_utf8(error, field)
        except TypeError as error:
            values.append(None)
            misfits[row] = "wrong_type", f"field {field.own_name!r}: got {array.type}, not JSON: {error}"
    return pa.array(values, pa.large_binary()).cast(field.spec.type), misfits


def _python(scalar: pa.Scalar) -> object:
    """The value as Python has it; times that are finer or further than Python's own as text, or as their number."""
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        raise
    except (ValueError, OverflowError):
        try:
            return scalar.cast(pa.string()).as_py()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return getattr(scalar, "value", None)


def _plain(value: object) -> str:
    """Decimals, durations and the like as text; bytes have no JSON."""
    if isinstance(value, bytes):
        raise TypeError("binary value")
    return str(value)


def _too_large(array: pa.Array, field: WantedField, max_record_bytes: int) -> Misfits:
    # An array's values are no longer than its buffers, so the usual batch needs no look at each.
    if array.nbytes <= max_record_bytes:
        return {}
    lengths = pc.fill_null(pc.binary_length(array), 0).to_numpy()
    return {
        row: (
            "record_too_large",
            f"field {field.own_name!r}: {int(lengths[row]):,} bytes, "
            f"wanted at most {max_record_bytes:,} (data.max_record_bytes)",
        )
        for row in np.flatnonzero(lengths > max_record_bytes).tolist()
    }


def _reject(
    batch: pa.RecordBatch, row: int, position: int, wanted: Sequence[WantedField], reason: str, message: str
) -> Reject:
    """`raw` is the wanted columns of the row as JSON."""
    names = {field.own_name for field in wanted} & set(batch.schema.names)
    record = {name: _readable(batch.column(name)[row]) for name in sorted(names)}
    raw = orjson.dumps(record, default=str)
    return Reject(position + row, len(raw), reason, message, raw[:RAW_BYTES])


def _readable(scalar: pa.Scalar) -> object:
    """The value, with replacement characters for what is not UTF-8 in it."""
    try:
        return _python(scalar)
    except UnicodeDecodeError:
        pass
    match scalar:
        case pa.DictionaryScalar():
            return _readable(scalar.value)
        case pa.ListScalar():
            return [_readable(item) for item in scalar.values]
        case pa.StructScalar():
            return {name: _readable(scalar[name]) for name in scalar}
    return scalar.as_buffer().to_pybytes().decode("utf-8", "replace")
