"""The store's Parquet tables: their schemas, and writing and reading them the same way always.

Settings are fixed and no time is written, so one version of the writer gives equal bytes for equal tables.
Pages carry checksums: a damaged page is an error when it is read, not a wrong number.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from astrai_data.store.files import replacing, unreadable

if TYPE_CHECKING:
    import pyarrow.parquet as pq

ROW_GROUP_ROWS = 1 << 17


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


def _list_of(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("item", kind, nullable=False))


_INT64 = pa.int64()
_STRING = pa.string()

DOCUMENTS_SCHEMA = pa.schema(
    [
        _required("input", pa.int32()),  # in a task's file: ordinal of the range in the task
        _required("position", _INT64),
        _required("text_hash", pa.binary(16)),
        _required("text_bytes", _INT64),
        _required("num_tokens", _INT64),  # tokens of it that stand in rows
        _required("num_trained", _INT64),  # labels of it that can be trained, summed over its segments
        pa.field("domain", _STRING),
        _required("split", _STRING),
    ]
)
"""Documents of one task; a nullable struct column `meta` follows where fields are kept."""

INPUTS_SCHEMA = pa.schema(
    [
        _required("name", _STRING),
        _required("size", _INT64),
        _required("format", _STRING),
        _required("records", _INT64),
    ]
)

BUFFER_TYPE = pa.struct(
    [
        _required("column", _STRING),
        _required("role", _STRING),
        _required("path", _STRING),
        _required("offset", _INT64),
        _required("length", _INT64),
        _required("block_xxh3", _list_of(pa.uint64())),
    ]
)

SHARDS_SCHEMA = pa.schema(
    [
        _required("task", pa.int32()),  # row of the tasks table
        _required("part", pa.int32()),
        _required("split", _STRING),
        pa.field("domain", _STRING),
        _required("row_begin", _INT64),
        _required("num_rows", _INT64),
        _required("token_begin", _INT64),
        _required("num_tokens", _INT64),
        _required("num_segments", _INT64),
        _required("document_begin", _INT64),  # document id of the task's first document
        _required("buffers", _list_of(BUFFER_TYPE)),
    ]
)

ROWS_SCHEMA = pa.schema([_required("num_tokens", pa.int32())])

_FILE_TYPE = pa.struct([_required("path", _STRING), _required("size", _INT64), _required("xxh3_128", _STRING)])

TASKS_SCHEMA = pa.schema(
    [
        _required("key", _STRING),
        _required("inputs", _list_of(pa.int32())),  # row of the inputs table, for each range of the task
        _required("files", _list_of(_FILE_TYPE)),
    ]
)


def write_table(path: Path, table: pa.Table) -> None:
    """Write a Parquet file, whole or not at all."""
    write_tables(path, [table])


def write_tables(path: Path, tables: Iterable[pa.Table]) -> None:
    """Write one Parquet file of one or more tables, the same as joined if all but the last have `ROW_GROUP_ROWS`."""
    import pyarrow.parquet as pq

    tables = (table.replace_schema_metadata(None) for table in tables)
    first = next(tables)
    settings = {"version": "2.6", "compression": "zstd", "compression_level": 3, "write_page_checksum": True}
    with replacing(path) as temporary, pq.ParquetWriter(temporary, first.schema, **settings) as writer:
        for table in chain([first], tables):
            writer.write_table(table, row_group_size=ROW_GROUP_ROWS)


def read_table(path: Path, columns: list[str] | None = None, num_rows: int | None = None) -> pa.Table:
    """Read a Parquet file, or some `columns` of it; `num_rows` is how many it must have, where that is known.

    Raises:
        StoreError: it is missing, damaged, or another than it was.
    """
    with _opened(path) as file:
        table = file.read(columns)
    if num_rows not in (None, table.num_rows):
        what = "a table of the store is not the one that was written"
        raise unreadable(path, f"{table.num_rows:,} rows", what=what, wanted=f"{num_rows:,} rows")
    return table


def read_table_schema(path: Path) -> pa.Schema:
    """The columns of a Parquet file.

    Raises:
        StoreError: it is missing or damaged.
    """
    with _opened(path) as file:
        return file.schema_arrow


@contextmanager
def _opened(path: Path) -> Iterator["pq.ParquetFile"]:
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        raise unreadable(path, error, what="a table of the store cannot be read") from error
