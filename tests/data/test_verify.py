import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from astrai_data.errors import StoreError
from astrai_data.ledger import Ledger
from astrai_data.pack import Segments
from astrai_data.ragged import Ragged
from astrai_data.store import TaskWriter, TokenStore, read_manifest
from astrai_data.store.checksums import BLOCK_BYTES
from astrai_data.store.digest import table_digest
from astrai_data.store.tables import DOCUMENTS_SCHEMA, write_table
from astrai_data.store.verify import verify_store
from tests.data import small_stores
from tests.data.small_stores import Document, commit, write_small_store, write_task
from tests.data.toys import write_bpe_tokenizer

WITNESS = "run.json"
PLACES = (0.0, 0.2, 0.5, 0.8, 1.0)


@pytest.fixture(scope="module", params=["arrow", "bin"])
def root(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("verify") / "store"
    write_small_store(path, storage_format=request.param)
    return path


@pytest.fixture
def store(root, tmp_path):
    shutil.copytree(root, tmp_path / "store")
    return tmp_path / "store"


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def found(root: Path) -> dict[str, str]:
    return {finding.path: finding.what for finding in verify_store(root)}


def test_a_whole_store_has_no_findings(root):
    assert verify_store(root) == []
    assert TokenStore.open(root).verify() == []


def test_one_flipped_byte_in_any_file_is_found_and_the_file_named(store):
    assert verify_store(store) == []
    paths = [path for path in sorted(store.rglob("*")) if path.is_file() and path.name != WITNESS]
    kinds = {path.suffix for path in paths}
    assert {".parquet", ".json", ".arrow", ".zst"} <= kinds
    for path in paths:
        whole = path.read_bytes()
        for at in sorted({round(place * (len(whole) - 1)) for place in PLACES}):
            flip(path, at)
            assert path.relative_to(store).as_posix() in found(store), f"byte {at} of {path}"
            path.write_bytes(whole)
    assert verify_store(store) == []


def test_any_byte_of_the_manifest(store):
    path = store / "manifest.json"
    whole = path.read_bytes()
    for at in range(0, len(whole), 11):
        flip(path, at)
        assert "manifest.json" in found(store), f"byte {at}"
        path.write_bytes(whole)


def test_files_cut_short_missing_or_surplus(store):
    for path in [path for path in sorted(store.rglob("*")) if path.is_file() and path.name != WITNESS]:
        whole, name = path.read_bytes(), path.relative_to(store).as_posix()
        if name == "manifest.json":
            continue
        path.write_bytes(whole[:-1])
        assert name in found(store)
        path.unlink()
        assert name in found(store)
        path.write_bytes(whole)
    surplus = ["data/x/part-000.arrow", f"data/{'a' * 32}/part-009.arrow", "meta/old.json", "rejects/x.jsonl.zst"]
    for name in surplus:
        (store / name).parent.mkdir(exist_ok=True)
        (store / name).write_text("x")
    assert found(store) == dict.fromkeys(surplus, "nothing in the store refers to this file")


def test_without_the_witness_the_rest_is_still_checked(store):
    run = next(store.rglob(WITNESS))
    run.write_bytes(b"\0")
    assert set(found(store)) == {run.relative_to(store).as_posix(), "manifest.json"}
    table = next(store.rglob("ledger.parquet"))
    flip(table, 40)
    assert table.relative_to(store).as_posix() in found(store)


def test_no_store_is_no_finding(tmp_path):
    with pytest.raises(StoreError, match="no token store here"):
        verify_store(tmp_path / "missing")


def test_a_damaged_block_is_named_by_range_shard_and_buffer(tmp_path):
    """2.5 MiB of tokens: the block that holds the damage, and no other."""
    n = 5 * BLOCK_BYTES // 4
    rows, root = Ragged.from_lengths(np.zeros(n, np.uint16), np.array([n])), tmp_path / "store"
    segments = one_segment(n, [n])
    write_one(root, rows, segments, num_trained=n - 1)
    commit_one(root, tmp_path)
    assert verify_store(root) == []
    values = TokenStore.open(root).shards[0].buffers[1]
    flip(root / values.path, values.offset + BLOCK_BYTES + 12_345)
    begin, end = values.offset + BLOCK_BYTES, values.offset + 2 * BLOCK_BYTES
    told = f"bytes {begin:,} to {end:,} (shard 0, sequence values) are damaged: wrong xxh3_64"
    assert found(root) == {values.path: told}


# Whole files that contradict each other. Each case writes a store that is wrong in one way.


def one_segment(length: int, runs: list[int], rule: int = 1, document: int = 0) -> Segments:
    return Segments(
        row=np.zeros(1, np.int32),
        length=np.array([length], np.int32),
        document=np.array([document], np.int32),
        token_start=np.zeros(1, np.int64),
        flags=np.zeros(1, np.uint8),
        mask_lengths=Ragged.from_rows([runs], np.int32),
        mask_rules=Ragged.from_rows([[rule] * len(runs)], np.uint16),
    )


def write_one(root, rows, segments, *, num_trained, num_tokens=None, domain=None, kept=1, told_trained=None) -> None:
    n = len(rows.flat)
    writer, ledger = TaskWriter(root, "k" * 32, storage_format="arrow"), Ledger()
    writer.write_part("train", None, rows, segments)
    for balance, what, count in [
        ("records", "read", kept),
        ("records", "kept", kept),
        ("tokens", "from_text", n),
        ("tokens", "trained", num_trained if told_trained is None else told_trained),
        ("tokens", "masked", n - (num_trained if told_trained is None else told_trained)),
    ]:
        ledger.add(balance, None, what, count)
    row = [0, 0, bytes(16), n, n if num_tokens is None else num_tokens, num_trained, domain, "train"]
    writer.finish(pa.table([[value] for value in row], schema=DOCUMENTS_SCHEMA), ledger, [], [])


def commit_one(root, tmp_path, packing=None) -> None:
    tokenizer = write_bpe_tokenizer(tmp_path / "tokenizer")
    packing = packing or {"strategy": "simple", "max_packed_len": None}
    commit(root, ["k" * 32], [[0]], tokenizer, packing=packing)


ROWS, STRANGE = Ragged.from_rows([[5, 6, 7]], np.uint16), Ragged.from_rows([[5, 6, 60_000]], np.uint16)
DOCUMENTS_FILE, SEGMENTS_FILE = f"data/{'k' * 32}/documents.parquet", f"data/{'k' * 32}/part-000.segments.arrow"


@pytest.mark.parametrize(
    ("rows", "segments", "told", "packing", "path", "what"),
    [
        (ROWS, one_segment(3, [2]), {}, None, SEGMENTS_FILE, "mask runs do not cover the segments"),
        (ROWS, one_segment(3, [3], rule=2), {}, None, SEGMENTS_FILE, "mask rule 2 is not among the manifest's 2"),
        (ROWS, one_segment(3, [3], document=1), {}, None, SEGMENTS_FILE, "of document 1, the task has 1"),
        (ROWS, one_segment(3, [3]), {"domain": "x"}, None, SEGMENTS_FILE, "a document of"),
        (ROWS, one_segment(3, [3]), {"num_tokens": 4}, None, DOCUMENTS_FILE, "num_tokens 4, its segments have 3"),
        (ROWS, one_segment(3, [3], rule=0), {}, None, DOCUMENTS_FILE, "num_trained 2, its segments have 0"),
        (ROWS, one_segment(3, [3]), {"kept": 2}, None, "ledger.parquet", "records kept: 2, the manifest says 1"),
        (ROWS, one_segment(3, [3]), {"told_trained": 3}, None, "ledger.parquet", "tokens trained: 3"),
        (ROWS, one_segment(3, [3]), {}, {"strategy": "bfd", "max_packed_len": 2}, "part-000.arrow", "has 3 tokens"),
        (
            STRANGE,
            one_segment(3, [3]),
            {},
            None,
            "part-000.arrow",
            "from 5 to 60000",
        ),
    ],
)
def test_files_that_contradict_each_other(tmp_path, rows, segments, told, packing, path, what):
    root = tmp_path / "store"
    write_one(root, rows, segments, num_trained=2, **told)
    commit_one(root, tmp_path, packing)
    findings = [finding for finding in verify_store(root) if finding.path.endswith(path)]
    assert what in findings[0].what
    assert str(findings[0]) == f"{findings[0].path}: {findings[0].what}"


@pytest.mark.parametrize(
    ("name", "column", "value", "path", "what"),
    [
        ("rows", "num_tokens", 4, "part-000.arrow", "row lengths"),
        ("ledger", "count", 9, "ledger.parquet", "not the sum of the tasks' ledgers"),
        ("shards", "num_tokens", 9, "part-000.arrow", "wanted 9"),
    ],
)
def test_tables_that_contradict_the_files(tmp_path, name, column, value, path, what):
    """As a defect of the commit would leave it: digests agree, content does not."""
    root = tmp_path / "store"
    write_one(root, ROWS, one_segment(3, [3]), num_trained=2)
    commit_one(root, tmp_path)
    store = TokenStore.open(root)
    rows = store.table(name).to_pylist()
    rows[0][column] = value
    table = store.table(name).from_pylist(rows, store.table(name).schema)
    rewrite(store, name, table)
    assert any(f.path.endswith(path) and what in f.what for f in verify_store(root))


def rewrite(store: TokenStore, name: str, table) -> None:
    entry = store.manifest.tables[name] | {"sha256": table_digest(table)}
    write_table(store.root / entry["path"], table)
    dataclasses.replace(store.manifest, tables=store.manifest.tables | {name: entry}).write(store.root)
    (store.root / store.manifest.run["path"]).write_text(f'{{"store_id":"{read_manifest(store.root)[1]}"}}')


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"plan_hash": "0" * 64}, "plan_hash is not the hash"),
        ({"config_hash": "0" * 64}, "config_hash is not the hash"),
        ({"totals": {"num_tokens": 240}}, "totals: num_tokens is 240, counted 239"),
        ({"splits": ({"split": "train", "num_rows": 9},)}, "split train: num_rows is 9, counted 6"),
        ({"domains": ({"domain": None, "num_documents": 0},)}, "domain None: num_documents is 0, counted 3"),
    ],
)
def test_a_manifest_that_says_something_else(store, fields, what):
    opened = TokenStore.open(store, None)
    manifest = opened.manifest
    if "totals" in fields:
        fields = {"totals": manifest.totals | fields["totals"]}
    dataclasses.replace(manifest, **fields).write(store)
    (store / manifest.run["path"]).write_text(f'{{"store_id":"{read_manifest(store)[1]}"}}')
    assert any(f.path == "manifest.json" and what in f.what for f in verify_store(store))


def test_an_unbalanced_ledger(tmp_path, monkeypatch):
    monkeypatch.setattr(small_stores, "_account", lambda ledger, *_: ledger.add("records", None, "read", 3))
    write_task(tmp_path / "s", "a" * 32, [Document("", None, ids=[1, 2])], [])
    commit(tmp_path / "s", ["a" * 32], [[0]], write_bpe_tokenizer(tmp_path / "tokenizer"))
    told = [finding.what for finding in verify_store(tmp_path / "s")]
    assert any("does not balance" in what for what in told)
