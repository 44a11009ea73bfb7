"""Answers for programs: a stream of Arrow batches as JSON, CSV or Parquet.

They are written batch by batch and hold everything. Bytes are written as hexadecimal digits, lists in CSV as JSON.
`table.py` draws answers for people.
"""

from collections.abc import Iterator
from typing import BinaryIO

import orjson
import pyarrow as pa

from astrai_data.errors import StoreError


def write_json(reader: pa.RecordBatchReader, out: BinaryIO) -> None:
    """A JSON array with one object a row."""
    begin = b"[\n"
    for row in rows_of(reader):
        out.write(begin + orjson.dumps(row, default=str))
        begin = b",\n"
    out.write(b"[]\n" if begin == b"[\n" else b"\n]\n")


def write_csv(reader: pa.RecordBatchReader, out: BinaryIO) -> None:
    """A header and one line a row."""
    from pyarrow import csv

    schema = pa.schema([pa.field(f.name, f.type if _is_flat(f.type) else pa.string()) for f in reader.schema])
    with csv.CSVWriter(out, schema, write_options=csv.WriteOptions(quoting_style="needed")) as writer:
        for batch in reader:
            columns = [_flat(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
            writer.write_batch(pa.record_batch(columns, schema=schema))


def write_parquet(reader: pa.RecordBatchReader, out: BinaryIO) -> None:
    """One Parquet file."""
    from pyarrow import parquet

    try:
        writer = parquet.ParquetWriter(out, reader.schema, compression="zstd")
    except pa.ArrowNotImplementedError as error:
        raise StoreError(
            "Parquet has no type for a column of the answer",
            where="the SQL query",
            got=error,
            wanted="numbers, texts, dates, times, lists and structs of them",
            hint="cast it in the query: CAST(... AS VARCHAR)",
        ) from error
    with writer:
        for batch in reader:
            writer.write_batch(batch)


def rows_of(reader: pa.RecordBatchReader) -> Iterator[dict]:
    """One dict a row, bytes as hexadecimal digits; of columns with the same name, later ones get a number."""
    names = _unique(reader.schema.names)
    for batch in reader:
        columns = [_readable(column) for column in batch.columns]
        yield from (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def _unique(names: list[str]) -> list[str]:
    earlier = [names[:place].count(name) for place, name in enumerate(names)]
    return [f"{name}_{count}" if count else name for name, count in zip(names, earlier, strict=True)]


def _readable(column: pa.Array) -> list:
    values = column.to_pylist()
    return [_hex(value) for value in values] if _has_bytes(column.type) else values


def _hex(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return [_hex(item) for item in value]
    return {name: _hex(item) for name, item in value.items()} if isinstance(value, dict) else value


def _has_bytes(kind: pa.DataType) -> bool:
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or any(_has_bytes(part) for part in inner)


def is_number(kind: pa.DataType) -> bool:
    """Whether values of this type are written as numbers."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _is_flat(kind: pa.DataType) -> bool:
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_boolean(kind)
    return text or is_number(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)


def _flat(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    values = _readable(column)
    return pa.array(
        [v if v is None or isinstance(v, str) else orjson.dumps(v, default=str).decode() for v in values], kind
    )
