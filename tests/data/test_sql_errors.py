"""What SQL over stores refuses, and what its errors say: where, and the nearest name that exists."""

import os

import numpy as np
import pytest

from astrai_data.errors import StoreError
from astrai_data.inspect import query
from astrai_data.store import TokenStore
from tests.data.small_stores import write_small_store


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("sql") / "store"
    write_small_store(root, dtype=np.int32)
    return TokenStore.open(root, split=None)


REFUSED = [
    ("INSERT INTO rows VALUES (1)", "INSERT"),
    ("DROP VIEW rows", "DROP"),
    ("SELECT 1; DROP VIEW rows", "DROP"),
    ("CREATE TABLE t AS SELECT 1", "CREATE"),
    ("ATTACH ':memory:' AS other", "ATTACH"),
    ("COPY (SELECT 1) TO '{dir}/out.csv'", "COPY"),
    ("EXPORT DATABASE '{dir}/out'", "EXPORT"),
    ("INSTALL httpfs", "LOAD"),
    ("LOAD json", "LOAD"),
    ("SET enable_external_access = true", "SET"),
    ("PRAGMA enable_profiling", "refused"),
    ("CALL pragma_version()", "CALL"),
    ("SELECT * FROM read_csv('{dir}/in.csv')", "disabled"),
    ("SELECT * FROM '{dir}/in.csv'", "disabled"),
    ("SELECT * FROM read_text('{dir}/in.csv')", "disabled"),
    ("SELECT * FROM read_blob('/etc/hostname')", "disabled"),
    ("SELECT * FROM glob('{dir}/*')", "disabled"),
    ("SELECT * FROM sniff_csv('{dir}/in.csv')", "disabled"),
    ("SELECT * FROM read_parquet('https://example.org/x.parquet')", "cannot be answered"),
    ("EXPLAIN ANALYZE COPY (SELECT 1) TO '{dir}/out.csv'", "disabled"),
    ("SELECT * FROM store", "does not exist"),
]


@pytest.mark.parametrize(("sql", "fragment"), REFUSED)
def test_a_query_only_reads_the_store(store, tmp_path, sql, fragment):
    (tmp_path / "in.csv").write_text("a,b\n1,2\n")
    with pytest.raises(StoreError, match=fragment):
        query(store, sql.format(dir=tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["in.csv"]


ERRORS = [
    ("SELECT * FROM segmnts", "line 1, column 15", "'segments'"),
    ("SELECT num_tokns FROM rows", "line 1, column 8", "'num_tokens'"),
    ("SELECT rows.num_trainned FROM rows", "line 1", "'num_trained'"),
    ("SELECT\n  decodd(sequence) FROM rows", "line 2, column 3", "'decode'"),
    ("SELECT num_row FROM shards", "line 1, column 8", "'num_rows'"),
    ("SELECT resaon FROM rejects", "line 1, column 8", "'reason'"),
    ("SELECT nothing.row_id FROM rows", "line 1, column 8", "views: rows, segments"),
    ("SELECT foo FROM segments", "line 1, column 8", "segments: segment_id, row_id"),
    ("SELEC 1", "line 1, column 1", None),
    ("SELECT domain + 1 FROM rows", "line 1, column 15", None),
    ("SELECT 1; SELECT 2", "the SQL query", "one at a time"),
    ("SELECT piece(99999)", "the SQL query", "ids of this store"),
    ("SELECT decode([-1])", "the SQL query", "ids of this store"),
    ("", None, "views: rows, segments"),
    ("SELECT 9223372036854775807::HUGEINT + 1", "the SQL query", "CAST"),
    ("SELECT * FROM (SELECT sum(num_tokens) AS n FROM rows) WHERE n / 0 > error('no')", "the SQL query", None),
]


@pytest.mark.parametrize(("sql", "where", "hint"), ERRORS)
def test_errors_say_where_and_name_what_is_near(store, sql, where, hint):
    with pytest.raises(StoreError) as raised:
        query(store, sql)
    if where:
        assert where in str(raised.value.where)
    assert hint in raised.value.hint if hint else raised.value.hint is None


@pytest.mark.parametrize("columns", [50, 90, 300])
@pytest.mark.parametrize("name", ["num_tokns", "nothing_like_it"])
def test_hints_fit_the_terminal_and_begin_with_what_is_near(store, monkeypatch, columns, name):
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(StoreError) as raised:
        query(store, f"SELECT {name} FROM documents JOIN segments USING (document_id)")
    lines = str(raised.value).splitlines()
    assert max(map(len, lines[4:])) <= columns
    assert lines[4].startswith("  try: " + ("did you mean 'num_tokens'" if name == "num_tokns" else "segments: "))
    told = " ".join(lines)
    assert "mask_runs" in told
    assert "text_hash" in told
    assert "row_begin" not in told, "views that the query does not name are not listed"


def test_a_query_that_is_no_text(store):
    with pytest.raises(StoreError, match="not UTF-8"):
        query(store, "SELECT '\udcff'")


def test_a_long_query_is_not_repeated_whole(store):
    with pytest.raises(StoreError) as raised:
        query(store, "SELECT error('no') FROM rows -- " + "x" * 5000)
    assert len(str(raised.value)) < 600
