"""SQL over stores: every view and function against the plain truth, and what queries may do."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from astrai_data.errors import StoreError
from astrai_data.inspect import connect, query
from astrai_data.inspect.columns import by_owner
from astrai_data.inspect.part_view import PartView
from astrai_data.pack import Segments
from astrai_data.ragged import Ragged
from astrai_data.store import TokenStore
from tests.data.small_stores import DOCUMENTS, REJECTS, write_small_store

VIEWS = {
    "rows": "row_id domain split sequence loss_mask segment_lengths num_tokens num_trained",
    "segments": "segment_id row_id document_id piece num_tokens num_trained sequence mask_runs",
    "documents": "document_id domain split source position text_hash num_tokens num_trained meta",
    "ledger": "balance domain what reason count",
    "rejects": "source position reason message length raw",
}


@pytest.fixture(scope="module", params=[("arrow", np.uint16, True), ("bin", np.int32, False)], ids=["arrow", "bin"])
def small(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("sql") / "store"
    storage_format, dtype, keep_fields = request.param
    documents = write_small_store(root, storage_format=storage_format, dtype=dtype, keep_fields=keep_fields)
    return TokenStore.open(root, split=None), documents


def ask(store: TokenStore, sql: str) -> list[tuple]:
    return [tuple(row.values()) for row in query(store, sql).to_pylist()]


@pytest.mark.parametrize("view", VIEWS)
def test_views_have_exactly_the_columns_of_the_contract(small, view):
    assert query(small[0], f"FROM {view}").column_names == VIEWS[view].split()
    assert [name for name, *_ in ask(small[0], f"DESCRIBE {view}")] == VIEWS[view].split()


def test_plain_tables_are_those_of_the_store(small):
    store, _ = small
    for name in ("shards", "inputs", "ledger"):
        assert query(store, f"FROM {name}").to_pylist() == store.table(name).to_pylist()


def test_rows_are_what_the_store_reads(small):
    store, _ = small
    batch = store.rows(np.arange(store.num_rows))
    answer = query(store, "FROM rows").to_pylist()
    shards = [shard for shard in store.shards for _ in range(shard.num_rows)]
    trained = np.array([rule.trained for rule in store.mask_rules])
    by_row = [store.segments(i).num_trained(trained) for i in range(len(store.shards))]
    assert [row["row_id"] for row in answer] == list(range(store.num_rows))
    assert [(row["domain"], row["split"]) for row in answer] == [(shard.domain, shard.split) for shard in shards]
    for name in ("sequence", "loss_mask", "segment_lengths"):
        assert [row[name] for row in answer] == [row.tolist() for row in getattr(batch, name)]
    assert [row["num_tokens"] for row in answer] == [len(row["sequence"]) for row in answer]
    assert sum(row["num_trained"] for row in answer) == sum(counts.sum() for counts in by_row) == store.num_trained


def test_trained_labels_of_a_row_exclude_segment_starts(small):
    for mask, lengths, count in ask(small[0], "SELECT loss_mask, segment_lengths, num_trained FROM rows"):
        starts = np.cumsum([0, *lengths[:-1]])
        assert count == sum(mask) - sum(mask[start] for start in starts)


def test_pieces_of_every_document_join_to_its_tokens_and_mask(small):
    store, documents = small
    pieces = ask(store, "SELECT document_id, piece, sequence, mask_runs, num_tokens FROM segments ORDER BY ALL")
    for number, document in enumerate(documents):
        own = [piece for piece in pieces if piece[0] == number]
        assert [piece[1] for piece in own] == list(range(len(own)))
        assert [token for piece in own for token in piece[2]] == document.ids
        runs = [run for piece in own for run in piece[3]]
        assert np.repeat([run["trained"] for run in runs], [r["length"] for r in runs]).tolist() == document.mask
        assert {run["rule"] for run in runs} <= {"prompt", "response"}
        assert sum(piece[4] for piece in own) == len(document.ids)


def test_documents_are_the_ones_written(small):
    store, documents = small
    answer = query(store, "FROM documents").to_pylist()
    has_meta = isinstance(query(store, "FROM documents").schema.field("meta").type, pa.StructType)
    names = ["text.jsonl", "more.jsonl"]
    for number, (row, document) in enumerate(zip(answer, documents, strict=True)):
        assert row["document_id"] == number
        assert row["text_hash"] == xxhash.xxh3_128_hexdigest(document.text.encode())
        assert (row["domain"], row["split"], row["position"]) == (document.domain, document.split, document.position)
        assert (row["source"], row["num_tokens"]) == (names[document.input], len(document.ids))
        assert row["meta"] == (document.meta if has_meta else None)
    trained = ask(store, "SELECT sum(num_trained) FROM segments GROUP BY document_id ORDER BY document_id")
    assert [(row["num_trained"],) for row in answer] == trained


def test_metadata_is_a_struct(tmp_path):
    write_small_store(tmp_path / "store")
    store = TokenStore.open(tmp_path / "store", split=None)
    assert ask(store, "SELECT meta.url, meta.score::DOUBLE FROM documents WHERE meta.url IS NOT NULL") == [
        ("a", 0.5),
        ("b", None),
    ]


def test_rejects_are_read_anew_by_each_query(small):
    store, _ = small
    with connect(store) as session:
        for _ in range(2):
            rows = session.stream("FROM rejects").read_all().to_pylist()
            wanted = [reject for task in REJECTS for reject in task]
            assert [row["reason"] for row in rows] == [reject["reason"] for reject in wanted]
            assert [row["position"] for row in rows] == [reject["position"] for reject in wanted]
            assert [row["raw"] for row in rows] == ["{broken", "\\xff\x1b1", "{]"]
            assert [row["source"] for row in rows] == ["text.jsonl", "more.jsonl", "more.jsonl"]


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("decode(encode('Über 😀 今日は'))", "Über 😀 今日は"),
        ("decode(encode('<|im_end|>'))", "<|im_end|>"),
        ("len(encode('<|im_end|>'))", 1),
        ("encode('')", []),
        ("decode([]::INTEGER[])", ""),
        ("decode(NULL)", None),
        ("decode([1, NULL])", None),
        ("encode(NULL)", None),
        ("piece(NULL)", None),
        ("decode([0, 1])", "<|bos|><|eos|>"),
        ("decode([0]::BIGINT[])", "<|bos|>"),
        ("piece(1)", "<|eos|>"),
        ("piece(encode('😀')[1])", "\\xf0"),
        ("decode(encode('😀')[:2])", "�"),
        ("list_transform([[0], NULL, [1]], lambda x: decode(x))", ["<|bos|>", None, "<|eos|>"]),
        ("(SELECT count(*) FROM segments WHERE decode(sequence) ILIKE '%gipfeln%')", 1),
    ],
)
def test_functions(small, expression, wanted):
    assert ask(small[0], f"SELECT {expression}") == [(wanted,)]


def test_text_comes_back_from_segments(small):
    store, documents = small
    joined = "SELECT document_id, flatten(list(sequence ORDER BY piece)) AS ids FROM segments GROUP BY ALL"
    texts = ask(store, f"SELECT decode(ids) FROM ({joined}) ORDER BY document_id")
    assert [text for (text,) in texts] == [document.text for document in documents]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM segments",
        "SELECT count(*) FROM documents",
        "SELECT count(*), sum(num_tokens), max(domain) FROM rows WHERE split = 'train'",
    ],
)
def test_columns_are_computed_only_where_asked_for(tmp_path, sql):
    write_small_store(tmp_path / "store")
    store = TokenStore.open(tmp_path / "store", split=None)
    wanted = ask(store, sql)
    for path in (tmp_path / "store" / "data").rglob("part-*"):
        path.unlink()
    assert ask(TokenStore.open(tmp_path / "store", split=None), sql) == wanted


@pytest.mark.parametrize("condition", ["row_id = 0", "domain IS NULL AND split = 'train' AND row_id < 3"])
def test_tokens_are_read_for_filtered_rows_only(tmp_path, condition):
    write_small_store(tmp_path / "store")
    for path in (tmp_path / "store" / "data").rglob("part-*"):
        if path.parent.name != "a" * 32 or not path.name.startswith("part-000"):
            path.unlink()
    store = TokenStore.open(tmp_path / "store", split=None)
    assert ask(store, f"SELECT decode(sequence) FROM rows WHERE {condition}") == [(DOCUMENTS[0][0].text,)]


def test_a_missing_part_is_named(tmp_path):
    write_small_store(tmp_path / "store")
    store = TokenStore.open(tmp_path / "store", split=None)
    gone = next((tmp_path / "store" / "data").rglob("part-001.arrow"))
    gone.unlink()
    with pytest.raises(StoreError, match="part-001"):
        query(store, "SELECT sequence FROM rows")


def test_allow_files_reaches_files(small, tmp_path):
    store, _ = small
    out = tmp_path / "out.csv"
    with connect(store, allow_files=True) as session:
        session.stream(f"COPY (SELECT row_id, num_tokens FROM rows) TO '{out}'").read_all()
        assert session.count(f"FROM read_csv('{out}')") == store.num_rows
    assert query(store, f"FROM '{out}'", allow_files=True).column_names == ["row_id", "num_tokens"]


def test_nothing_is_left_in_the_working_directory(small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    query(small[0], "SELECT * FROM rows a, rows b, rows c ORDER BY hash(a.row_id, b.row_id, c.row_id)")
    assert list(tmp_path.iterdir()) == []


READING = ["SHOW TABLES", "SUMMARIZE rows", "EXPLAIN FROM rows", "PIVOT documents ON domain", "SELECT 'ü;'; -- done;"]


@pytest.mark.parametrize("sql", READING)
def test_statements_that_read_are_welcome(small, sql):
    with connect(small[0]) as session:
        assert session.stream(sql).read_all().num_rows == session.count(sql) > 0


def test_sums_are_int64(small):
    assert query(small[0], "SELECT sum(num_tokens) AS n FROM rows").schema.field("n").type == pa.int64()


def test_an_answer_can_be_joined_filtered_and_sorted(small):
    store, _ = small
    sql = """SELECT d.source, sum(s.num_tokens) FROM segments s JOIN documents d USING (document_id)
             JOIN rows r USING (row_id) WHERE r.split = d.split GROUP BY ALL ORDER BY 1"""
    assert sum(count for _, count in ask(store, sql)) == store.num_tokens


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.data())
def test_gathering_by_owner_equals_asking_one_by_one(sizes, data):
    begins = np.concatenate([[0], np.cumsum(sizes)])
    if begins[-1] == 0:
        return
    ids = np.array(data.draw(st.lists(st.integers(0, int(begins[-1]) - 1), min_size=1, max_size=20)))
    values = [pa.array([f"{owner}:{i}" for i in range(size)], pa.string()) for owner, size in enumerate(sizes)]
    answer = by_owner(begins, ids, lambda owner, local: values[owner].take(pa.array(local)))
    everything = [text for column in values for text in column.to_pylist()]
    assert answer.to_pylist() == [everything[i] for i in ids]


@st.composite
def parts(draw):
    """(segments of cut and whole documents in any order, as (document, piece, length))."""
    counts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    pieces = [(d, p, draw(st.integers(1, 3)), count > 1) for d, count in enumerate(counts) for p in range(count)]
    return draw(st.permutations(pieces))


@settings(max_examples=60, deadline=None)
@given(parts())
def test_pieces_are_numbered_in_token_order(pieces):
    n = len(pieces)
    lengths = np.array([length for _, _, length, _ in pieces], np.int32)
    segments = Segments(
        row=np.arange(n, dtype=np.int32),
        length=lengths,
        document=np.array([d for d, *_ in pieces], np.int32),
        token_start=np.array([p * 3 for _, p, *_ in pieces], np.int64),
        flags=np.array([cut for *_, cut in pieces], np.uint8),
        mask_lengths=Ragged.from_lengths(lengths, np.ones(n, np.int64)),
        mask_rules=Ragged.from_lengths(np.zeros(n, np.uint16), np.ones(n, np.int64)),
    )
    tokens = Ragged.from_lengths(np.zeros(lengths.sum(), np.uint16), lengths)
    view = PartView(tokens, segments, np.array([True]), pa.array(["text"]), 0, 0)
    assert view.pieces.tolist() == [p for _, p, *_ in pieces]


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_rows_in_any_order_equal_rows_one_by_one(tmp_path_factory, data):
    root = tmp_path_factory.getbasetemp() / "any-order" / "store"
    if not Path(root).exists():
        write_small_store(root)
    store = TokenStore.open(root, split=None)
    ids = data.draw(st.lists(st.integers(0, store.num_rows - 1), min_size=1, max_size=12))
    asked = ", ".join(f"({place}, {row})" for place, row in enumerate(ids))
    sql = f"""SELECT r.sequence, r.loss_mask, r.domain FROM (VALUES {asked}) t(place, row_id)
              JOIN rows r USING (row_id) ORDER BY place"""
    batch = store.rows(ids)
    domains = [store.shards[int(shard)].domain for shard in store.shards.of_rows(np.array(ids))]
    wanted = zip(batch.sequence, batch.loss_mask, domains, strict=True)
    assert ask(store, sql) == [(tokens.tolist(), mask.tolist(), domain) for tokens, mask, domain in wanted]


def test_one_stream_at_a_time(small):
    with connect(small[0]) as session:
        first = session.stream("SELECT segment_id FROM segments", batch_rows=1)
        assert session.count("FROM rows") == small[0].num_rows
        with pytest.raises(StoreError, match="later query"):
            first.read_next_batch()
        last = session.stream("SELECT segment_id FROM segments")
    with pytest.raises(StoreError, match="closing"):
        last.read_next_batch()


OUTLIVING = """
import sys
from astrai_data.inspect import connect
from astrai_data.store import TokenStore
session = connect(TokenStore.open(sys.argv[1], split=None))
stream = session.stream("SELECT a.segment_id, b.sequence FROM segments a, segments b, range(10000)")
stream.read_next_batch()
session.close()
"""


def test_a_stream_that_outlives_its_session_does_no_harm(small):
    assert subprocess.run([sys.executable, "-c", OUTLIVING, str(small[0].root)]).returncode == 0


ENDLESS = """
import sys
from astrai_data.inspect import query
from astrai_data.store import TokenStore
store = TokenStore.open(sys.argv[1], split=None)
print("ready", flush=True)
try:
    query(store, "SELECT count(*) FROM range(1000000) a(i), range(1000000) b(i) WHERE a.i + b.i = 7")
except KeyboardInterrupt:
    sys.exit(130)
"""


ENDLESS_START = """
import sys
from astrai_data.inspect import connect, sql
from astrai_data.store import TokenStore
store = TokenStore.open(sys.argv[1], split=None)
endless = "SELECT count(*) FROM range(1000000) a(i), range(1000000) b(i) WHERE a.i + b.i = 7"
sql.register_views = lambda connection, *_: connection.execute(endless)
print("ready", flush=True)
try:
    connect(store)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("script", [ENDLESS, ENDLESS_START], ids=["a query", "the start of a session"])
def test_control_c_ends(small, script):
    command = [sys.executable, "-c", script, str(small[0].root)]
    # Where tests run in the background, children inherit an ignored SIGINT.
    with subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=_restore_interrupts) as running:
        running.stdout.readline()
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=10) == 130


def _restore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
