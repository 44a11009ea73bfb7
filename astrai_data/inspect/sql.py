"""SQL over a store: `query(store, sql)` answers with an Arrow table, `connect(store)` with a stream.

DuckDB plans and runs the query in memory over the views of `views.py`. It is shut in before it sees the query: no
files, no extensions, no settings, no Python variables, and only statements that read.
"""

import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from astrai_data.errors import StoreError
from astrai_data.inspect.columns import StoreColumns
from astrai_data.inspect.functions import register_functions
from astrai_data.inspect.printable import shorten_middle
from astrai_data.inspect.sql_errors import MAX_QUERY_CHARS, as_store_error, fit_terminal
from astrai_data.inspect.views import register_views
from astrai_data.store import TokenStore

if TYPE_CHECKING:
    import duckdb

READING = ("SELECT", "EXPLAIN", "MULTI")
"""DuckDB's kinds of statements that read; MULTI is what a PIVOT becomes."""


def query(store: TokenStore, sql: str, allow_files: bool = False) -> pa.Table:
    """The whole answer to `sql` as an Arrow table; sums are int64.

    Raises:
        StoreError: the query is wrong or wants more than to read the store.
    """
    with connect(store, allow_files) as session:
        return session.stream(sql).read_all()


def connect(store: TokenStore, allow_files: bool = False) -> "Session":
    """A session over the views and functions of `store`; `allow_files` lets its queries reach files."""
    return Session(store, allow_files)


class Session:
    """A DuckDB connection that knows one store and, unless `allow_files`, nothing else.

    Attributes:
        views: the column names of every view.
    """

    def __init__(self, store: TokenStore, allow_files: bool = False) -> None:
        import duckdb  # 0.15 s, and only queries need it

        self._duckdb, self._allow_files = duckdb, allow_files
        self._lock = threading.Lock()
        self._failure: Exception | None = None
        self._reader: pa.RecordBatchReader | None = None
        self._connection = duckdb.connect(":memory:", config=_settings(allow_files))
        self.views = self._interruptible(lambda: self._set_up(store))

    def _set_up(self, store: TokenStore) -> dict[str, list[str]]:
        """Make the views and functions known, then lock the settings; the views' columns."""
        self._connection.execute("SET enable_progress_bar = false")
        views = register_views(self._connection, StoreColumns(store), self.register, self.noted_failure)
        register_functions(store, self._connection, self.register)
        if not self._allow_files:
            self._connection.execute("SET lock_configuration = true")
        return views

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the stream and let go of the store's files."""
        self._end_stream()
        self._connection.close()

    def register(self, name: str, function: Callable, parameter: str, returns: str) -> None:
        """Make an Arrow function of one column known to SQL; DuckDB's threads call it one at a time."""

        def guarded(argument: pa.ChunkedArray) -> pa.Array:
            with self._lock, self.noted_failure():
                return function(argument)

        self._connection.create_function(name, guarded, [parameter], returns, type="arrow", null_handling="special")

    @contextmanager
    def noted_failure(self) -> Iterator[None]:
        """What fails inside is what the query fails with; DuckDB would hand on its text alone."""
        try:
            yield
        except Exception as error:
            self._failure = error
            raise

    def stream(self, sql: str, batch_rows: int = 2048) -> pa.RecordBatchReader:
        """The answer to `sql`, one statement, in batches. The next query, and `close`, end a stream.

        Raises:
            StoreError: at once if the query is wrong, while reading if it fails on the data.
        """
        relation = self._relation(sql)
        if relation is None:
            return pa.table({}).to_reader()
        reader = self._ask(sql, lambda: relation.to_arrow_reader(batch_rows))
        self._reader = reader
        schema = pa.schema([_plain_field(field) for field in reader.schema])
        return pa.RecordBatchReader.from_batches(schema, self._batches(sql, reader, schema))

    def count(self, sql: str) -> int:
        """How many rows the answer to `sql` has; columns that do not matter for that are not computed."""
        relation = self._relation(sql)
        return 0 if relation is None else self._ask(sql, lambda: relation.aggregate("count(*)").fetchall()[0][0])

    def _batches(self, sql: str, reader: pa.RecordBatchReader, schema: pa.Schema):
        while reader is self._reader:
            batch = self._ask(sql, lambda: next(reader, None))
            if batch is None:
                return
            yield _plain(batch, schema)
        raise StoreError(
            "the stream was ended by a later query or by closing the session",
            where="the SQL query",
            got=shorten_middle(" ".join(sql.split()), MAX_QUERY_CHARS),
            wanted="one stream at a time, read to its end",
            hint="read it with `read_all` before the next query, or open another session",
        )

    def _end_stream(self) -> None:
        """One stream at a time is DuckDB's rule; and one that outlives its connection would crash the process."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _relation(self, sql: str) -> "duckdb.DuckDBPyRelation | None":
        self._end_stream()
        if any("\ud800" <= letter <= "\udfff" for letter in sql):
            got = ascii(sql[:MAX_QUERY_CHARS])
            wanted, hint = "text of whole characters", "take out the bytes that are shown as \\ud8.. to \\udf.."
            raise StoreError("the query is not UTF-8", where="the SQL query", got=got, wanted=wanted, hint=hint)
        self._check(self._ask(sql, lambda: self._duckdb.extract_statements(sql)))
        sql = self._without_end(sql)
        return self._ask(sql, lambda: self._bound(sql))

    def _without_end(self, sql: str) -> str:
        """One statement up to its semicolon: DuckDB cannot count the rows of `SELECT 1; -- done`."""
        data = sql.encode()
        marks = [at for at, _ in self._duckdb.tokenize(sql) if data[at : at + 1] == b";" and data[:at].strip(b"; \n")]
        return data[: marks[0]].decode() if marks else sql

    def _bound(self, sql: str) -> "duckdb.DuckDBPyRelation | None":
        """The query, bound and not run. A relation's errors do not say where in the query; those of a cursor do."""
        try:
            return self._connection.sql(sql)
        except (self._duckdb.BinderException, self._duckdb.CatalogException):
            self._connection.execute(sql)
            raise

    def _check(self, statements: list) -> None:
        if not statements:
            hint = fit_terminal([f"views: {', '.join(self.views)}", "`DESCRIBE rows` lists the columns of one"])
            got = "no statement"
            raise StoreError("the query is empty", where="the SQL query", got=got, wanted="one SELECT", hint=hint)
        if len(statements) > 1:
            raise _refused(
                "a query is one statement",
                f"{len(statements)} of them; the second is: {_brief(statements[1])}",
                "one SELECT",
                "ask them one at a time, or join them with UNION ALL BY NAME or WITH",
            )
        kind = statements[0].type.name
        if kind not in READING and not self._allow_files:
            raise _refused(
                f"a store is only read: {kind} is refused",
                _brief(statements[0]),
                "SELECT, DESCRIBE, SUMMARIZE, SHOW or EXPLAIN",
                "--allow-files lets a query write and reach files",
            )

    def _ask(self, sql: str, step: Callable):
        """Run one step of DuckDB's work; its errors become ours, and ours come out as they were raised."""
        self._failure = None
        try:
            return self._interruptible(step)
        except (self._duckdb.Error, pa.ArrowException) as error:
            raise self._failure or as_store_error(error, sql, self.views) from None

    def _interruptible(self, step: Callable):
        """Run `step` beside this thread: in it, DuckDB overlooks Ctrl-C while it works, or tells it as an error."""
        running: Future = Future()
        try:
            # Not of a pool: Ctrl-C while a pool starts its thread makes the end of the process wait for it forever.
            threading.Thread(target=_run, args=(step, running), daemon=True).start()
            return running.result()
        except KeyboardInterrupt:
            self._connection.interrupt()
            wait([running], timeout=10)
            raise


def _run(step: Callable, running: Future) -> None:
    try:
        running.set_result(step())
    except BaseException as error:
        running.set_exception(error)


def _refused(what: str, got: str, wanted: str, hint: str) -> StoreError:
    return StoreError(what, where="the SQL query", got=got, wanted=wanted, hint=hint)


def _brief(statement: "duckdb.Statement") -> str:
    return shorten_middle(" ".join(statement.query.split()), MAX_QUERY_CHARS)


def _settings(allow_files: bool) -> dict[str, str]:
    return {
        "enable_external_access": str(allow_files).lower(),
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": str(allow_files).lower(),
        "python_enable_replacements": "false",
        "temp_directory": str(Path(tempfile.gettempdir()) / "astrai-sql"),
    }


def _plain_field(field: pa.Field) -> pa.Field:
    """DuckDB sums integers to 128 bits, which Arrow knows as decimals: int64 is what a reader wants."""
    whole = pa.types.is_decimal(field.type) and field.type.scale == 0 and field.type.precision == 38
    return field.with_type(pa.int64()) if whole else field


def _plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    try:
        return batch.cast(schema)
    except pa.ArrowInvalid as error:
        raise StoreError(
            "a number of the answer does not fit 64 bits",
            where="the SQL query",
            got=error,
            wanted="numbers between -2^63 and 2^63 - 1",
            hint="cast it in the query: CAST(... AS DOUBLE) or CAST(... AS VARCHAR)",
        ) from None
