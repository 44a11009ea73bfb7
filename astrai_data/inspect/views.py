"""The SQL views of a store: their columns (design.md §11), types and where each value comes from.

`rows`, `segments` and `documents` are ranges of ids with one vectorised Python function a column; DuckDB calls only
those that a query reads, for ids that passed its filters. The other views are small tables, `rejects` a stream that is
opened anew by each query.

`loss_mask` and `mask_runs` hold flags, one a token, as the configuration set them. `num_trained` counts labels: flagged
tokens but for the first of each segment, which no token predicts and so is nobody's label.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from astrai_data.inspect.columns import PartColumn, StoreColumns
from astrai_data.inspect.documents import StoreDocuments
from astrai_data.inspect.part_view import PartView
from astrai_data.inspect.rejects import Rejects

IdColumn = Callable[[np.ndarray], pa.Array]

LIST_TYPES = {
    "bool": "BOOLEAN[]",
    "uint8": "UTINYINT[]",
    "int8": "TINYINT[]",
    "uint16": "USMALLINT[]",
    "int16": "SMALLINT[]",
    "int32": "INTEGER[]",
    "int64": "BIGINT[]",
    "float32": "FLOAT[]",
    "float64": "DOUBLE[]",
}
RUNS_TYPE = "STRUCT(rule VARCHAR, trained BOOLEAN, length INTEGER)[]"


@dataclass(frozen=True)
class Column:
    """One column of a view: its SQL type and the function from ids (int64 [n]) to values (Arrow [n])."""

    name: str
    sql_type: str
    values: IdColumn


def row_columns(columns: StoreColumns) -> list[Column]:
    """The columns of `rows` after `row_id`."""

    def of(part_column: PartColumn) -> IdColumn:
        return lambda ids: columns.rows(part_column, ids)

    return [
        Column("domain", "VARCHAR", lambda ids: columns.shard_values("domain", ids)),
        Column("split", "VARCHAR", lambda ids: columns.shard_values("split", ids)),
        *[Column(name, kind, of(_row_tokens)) for name, kind in token_types(columns)],
        Column("loss_mask", "UTINYINT[]", of(lambda part, rows: part.row_mask(rows).to_arrow())),
        Column("segment_lengths", "INTEGER[]", of(lambda part, rows: part.lengths_of_rows(rows).to_arrow())),
        Column("num_tokens", "BIGINT", lambda ids: _int64(columns.row_lengths[ids])),
        Column("num_trained", "BIGINT", of(lambda part, rows: pa.array(part.row_trained[rows]))),
    ]


def segment_columns(columns: StoreColumns) -> list[Column]:
    """The columns of `segments` after `segment_id`."""

    def of(part_column: PartColumn) -> IdColumn:
        return lambda ids: columns.segments(part_column, ids)

    return [
        Column("row_id", "BIGINT", of(lambda part, some: _int64(part.segments.row[some], part.row_begin))),
        Column(
            "document_id", "BIGINT", of(lambda part, some: _int64(part.segments.document[some], part.document_begin))
        ),
        Column("piece", "BIGINT", of(lambda part, some: pa.array(part.pieces[some]))),
        Column("num_tokens", "BIGINT", of(lambda part, some: _int64(part.segments.length[some]))),
        Column("num_trained", "BIGINT", of(lambda part, some: pa.array(part.segment_trained[some]))),
        *[Column(name, kind, of(_segment_tokens)) for name, kind in token_types(columns)],
        Column("mask_runs", RUNS_TYPE, of(lambda part, some: part.mask_runs(some))),
    ]


def document_columns(documents: StoreDocuments) -> list[Column]:
    """The columns of `documents` after `document_id`."""

    def of(name: str) -> IdColumn:
        return lambda ids: documents.column(name, ids)

    return [
        Column("domain", "VARCHAR", of("domain")),
        Column("split", "VARCHAR", of("split")),
        Column("source", "VARCHAR", lambda ids: documents.inputs("name", ids)),
        Column("position", "BIGINT", of("position")),
        Column("text_hash", "VARCHAR", lambda ids: _hex(documents.column("text_hash", ids))),
        Column("num_tokens", "BIGINT", of("num_tokens")),
        Column("num_trained", "BIGINT", of("num_trained")),
        Column("meta", _meta_type(documents.meta_fields), of("meta") if documents.meta_fields else _nulls),
    ]


def token_types(columns: StoreColumns) -> list[tuple[str, str]]:
    """(name, SQL type) of every token column."""
    return [(name, LIST_TYPES[dtype]) for name, dtype in columns.store.manifest.columns.items()]


def _int64(values: np.ndarray, begin: int = 0) -> pa.Array:
    return pa.array(values.astype(np.int64) + begin)


def _hex(digests: pa.FixedSizeBinaryArray) -> pa.Array:
    width, begin = digests.type.byte_width, digests.offset
    data = memoryview(digests.buffers()[1])[begin * width : (begin + len(digests)) * width]
    offsets = np.arange(len(digests) + 1, dtype=np.int32) * (2 * width)
    return pa.StringArray.from_buffers(len(digests), pa.py_buffer(offsets), pa.py_buffer(data.hex().encode()))


def _meta_type(names: list[str]) -> str:
    fields = ", ".join('"' + name.replace('"', '""') + '" VARCHAR' for name in names)
    return f"STRUCT({fields})" if names else "VARCHAR"


def _nulls(ids: np.ndarray) -> pa.Array:
    return pa.nulls(len(ids), pa.string())


def _row_tokens(part: PartView, rows: np.ndarray) -> pa.Array:
    return part.tokens_of_rows(rows).to_arrow()


def _segment_tokens(part: PartView, segments: np.ndarray) -> pa.Array:
    return part.tokens_of_segments(segments).to_arrow()


def register_views(
    connection, columns: StoreColumns, register: Callable, noted_failure: Callable[[], AbstractContextManager]
) -> dict[str, list[str]]:
    """Create all views in a DuckDB `connection`; `register` and `noted_failure` as in `Session`.

    Returns:
        The column names of each view.
    """
    store = columns.store
    ranges = [
        ("rows", "row_id", store.num_rows, row_columns(columns)),
        ("segments", "segment_id", store.num_segments, segment_columns(columns)),
        ("documents", "document_id", store.num_documents, document_columns(StoreDocuments(store))),
    ]
    views = {}
    for name, id_column, count, view_columns in ranges:
        connection.execute(_range_view(name, id_column, count, view_columns, register))
        views[name] = [id_column, *[column.name for column in view_columns]]
    for name in ("shards", "inputs", "ledger"):
        connection.register(name, store.table(name))
        views[name] = store.table(name).column_names
    connection.register("rejects", Rejects(store, noted_failure))
    return views | {"rejects": Rejects.schema.names}


def _range_view(name: str, id_column: str, count: int, columns: list[Column], register: Callable) -> str:
    for column in columns:
        register(f"_{name}_{column.name}", _of_ids(column.values), "BIGINT", column.sql_type)
    selected = ", ".join(f'"_{name}_{column.name}"(range) AS "{column.name}"' for column in columns)
    return f"CREATE VIEW {name} AS SELECT range AS {id_column}, {selected} FROM range({count})"


def _of_ids(values: IdColumn) -> Callable[[pa.ChunkedArray], pa.Array]:
    return lambda ids: values(ids.to_numpy())
