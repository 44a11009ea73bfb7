"""Answers on paper: a stream of Arrow batches as a table for people, or as JSON, CSV or Parquet for programs.

JSON, CSV and Parquet are written batch by batch and hold everything; the table holds the first rows, shortened lists
and texts, and notes tell what it leaves out. Bytes are written as hexadecimal digits, lists in CSV as JSON.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO

import orjson
import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from astrai_data.inspect.printable import printable_cell

MAX_LIST_ITEMS = 8
MAX_CELL_CHARS = 300


@dataclass(frozen=True)
class Shown:
    """What a table showed: rows, whether the answer has more of them, whether something was shortened."""

    num_rows: int
    has_more: bool
    shortened: bool


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

    with parquet.ParquetWriter(out, reader.schema, compression="zstd") as writer:
        for batch in reader:
            writer.write_batch(batch)


def write_table(reader: pa.RecordBatchReader, console: Console, max_rows: int) -> Shown:
    """The first `max_rows` rows, drawn; the rest of the stream is not read."""
    rows = rows_of(reader)
    shown = list(islice(rows, max_rows))
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for field in reader.schema:
        number = _is_number(field.type)
        table.add_column(Text(printable_cell(field.name)), justify="right" if number else "left", no_wrap=number)
    cells = [[cell(value) for value in row.values()] for row in shown]
    for row, values in zip(cells, shown, strict=True):
        table.add_row(*[_ink(text, value) for (text, _), value in zip(row, values.values(), strict=True)])
    if reader.schema.names:
        console.print(table)
    return Shown(len(shown), next(rows, None) is not None, any(cut for row in cells for _, cut in row))


def rows_of(reader: pa.RecordBatchReader) -> Iterator[dict]:
    """One dict a row, bytes as hexadecimal digits; of columns with the same name, later ones get a number."""
    names = _unique(reader.schema.names)
    for batch in reader:
        columns = [_readable(column) for column in batch.columns]
        yield from (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def cell(value: object) -> tuple[str, bool]:
    """`value` as the text of a table cell, and whether it had to be shortened."""
    if isinstance(value, list):
        shown = ", ".join(cell(item)[0] for item in value[:MAX_LIST_ITEMS])
        more = len(value) - MAX_LIST_ITEMS
        return (f"[{shown}, … {more:,} more]", True) if more > 0 else (f"[{shown}]", False)
    if isinstance(value, dict):
        return _cut("{" + ", ".join(f"{name}: {cell(item)[0]}" for name, item in value.items()) + "}")
    if isinstance(value, bool) or value is None:
        return ("" if value is None else str(value).lower()), False
    return _cut(printable_cell(str(value)))


def _ink(text: str, value: object) -> Text:
    """Text is folded where a terminal is too narrow for it, lists are cut."""
    folds = not isinstance(value, list | dict)
    return Text(text, overflow="fold" if folds else "ellipsis", no_wrap=not folds)


def _cut(text: str) -> tuple[str, bool]:
    return (text[:MAX_CELL_CHARS] + "…", True) if len(text) > MAX_CELL_CHARS else (text, False)


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


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _is_flat(kind: pa.DataType) -> bool:
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_boolean(kind)
    return text or _is_number(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)


def _flat(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    values = _readable(column)
    return pa.array(
        [v if v is None or isinstance(v, str) else orjson.dumps(v, default=str).decode() for v in values], kind
    )
