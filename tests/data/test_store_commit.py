import dataclasses
import hashlib
import json
import os
from pathlib import Path

import orjson
import pyarrow as pa
import pytest

from astrai_data.errors import StoreError
from astrai_data.store import INPUTS_SCHEMA, Manifest, TokenStore, assemble, config_hash, plan_hash, read_manifest
from astrai_data.store.identity import pipeline_document
from tests.data.small_stores import DOCUMENTS, REJECTS, commit, write_small_store, write_task
from tests.data.toys import write_bpe_tokenizer


def files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir()}


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    root = tmp_path_factory.mktemp("commit") / "store"
    write_small_store(root)
    return root


def test_the_manifest_names_everything(sample):
    manifest, store_id = read_manifest(sample)
    data = (sample / "manifest.json").read_bytes()
    assert hashlib.sha256(data).hexdigest() == store_id
    assert manifest.to_bytes() == data
    assert data == json.dumps(json.loads(data), sort_keys=True, separators=(",", ":")).encode()
    assert (manifest.format, manifest.format_version, manifest.kind) == ("astrai-token-store", "1.0", "packed")
    assert manifest.columns == {"sequence": "uint16"}
    assert set(manifest.tables) == {"rows", "shards", "inputs", "tasks", "ledger"}
    meta = f"meta/{manifest.plan_hash[:16]}"
    assert all(entry["path"] == f"{meta}/tables/{name}.parquet" for name, entry in manifest.tables.items())
    assert (
        files(sample / meta / "tokenizer")
        == set(manifest.tokenizer["files"])
        == {"tokenizer.json", "tokenizer_config.json"}
    )
    assert (sample / manifest.pipeline["path"]).read_bytes() == pipeline_document(
        {"output": {"storage_format": "arrow"}}, "0" * 64, "1" * 64
    )
    assert manifest.pipeline["sha256"] == manifest.config_hash


def test_sums_by_domain_and_split_make_the_totals(sample):
    manifest, _ = read_manifest(sample)
    assert [entry["domain"] for entry in manifest.domains] == [None, "code", "web"]
    assert [entry["split"] for entry in manifest.splits] == ["train", "validation"]
    for name, total in manifest.totals.items():
        assert sum(entry[name] for entry in manifest.domains) == total
        assert sum(entry[name] for entry in manifest.splits) == total
    assert manifest.totals["num_shards"] == 6


def test_shards_follow_each_other(sample):
    shards = list(TokenStore.open(sample, None).shards)
    rows = tokens = 0
    for info in shards:
        assert (info.row_begin, info.token_begin) == (rows, tokens)
        rows, tokens = rows + info.num_rows, tokens + info.num_tokens
    assert [(info.task, info.part, info.document_begin) for info in shards] == [
        (0, 0, 0), (0, 1, 0), (0, 2, 0), (1, 0, 4), (1, 1, 4), (1, 2, 4),
    ]  # fmt: skip


def test_run_json_is_the_witness(sample):
    manifest, store_id = read_manifest(sample)
    run = json.loads((sample / manifest.run["path"]).read_bytes())
    assert run["store_id"] == store_id
    assert run["table_files"] == {
        name: hashlib.sha256((sample / entry["path"]).read_bytes()).hexdigest()
        for name, entry in manifest.tables.items()
    }


def test_the_task_table_lists_every_file_of_a_task(sample):
    listed = {f["path"] for entry in TokenStore.open(sample).table("tasks")["files"].to_pylist() for f in entry}
    assert listed == {path for path in files(sample) if path.startswith(("data/", "rejects/"))}


def test_a_commit_sweeps_what_nothing_names_and_nothing_else(tmp_path):
    root = tmp_path / "store"
    write_small_store(root)
    outside = tmp_path / "outside"
    outside.mkdir()
    litter = ("data/dead/part-000.arrow", "meta/old/run.json", "rejects/dead.jsonl.zst")
    for path in (*litter, "README.txt", ".work/lock.json"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x")
    (outside / "kept").write_text("x")
    os.symlink(outside, root / "data" / "link")
    os.symlink(outside / "kept", root / "data" / "file-link")
    before = files(root)
    commit(root, ["a" * 32, "b" * 32], [[0], [0, 1]], tmp_path / "tokenizer")
    assert before - files(root) == {*litter, "data/file-link"}
    assert not (root / "data" / "dead").exists()
    assert (outside / "kept").exists()


def test_another_plan_replaces_the_store_whole(tmp_path):
    root = tmp_path / "store"
    write_small_store(root)
    old = TokenStore.open(root, None)
    write_task(root, "c" * 32, DOCUMENTS[0], REJECTS[0])
    assert TokenStore.open(root, None).store_id == old.store_id  # nothing counts before the manifest does
    commit(root, ["b" * 32, "a" * 32], [[0, 1], [0]], tmp_path / "tokenizer")
    new = TokenStore.open(root, None)
    assert new.store_id != old.store_id
    assert new.num_tokens == old.num_tokens
    assert new.documents()["position"].to_pylist() == [0, 500, 600, 0, 60, 120, 200]
    assert len(list((root / "meta").iterdir())) == 1
    assert new.verify() == []


def test_a_kill_before_the_manifest_leaves_the_old_store(tmp_path, monkeypatch):
    root = tmp_path / "store"
    write_small_store(root)
    before = TokenStore.open(root, None)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            commit(root, ["b" * 32], [[0, 1]], tmp_path / "tokenizer")
    again = TokenStore.open(root, None)
    assert again.store_id == before.store_id
    litter = {finding.path.split("/")[0] for finding in again.verify()}
    assert litter == {"meta"}
    commit(root, ["b" * 32], [[0, 1]], tmp_path / "tokenizer")
    assert TokenStore.open(root, None).verify() == []


def test_only_tokenizer_files_are_copied(tmp_path):
    tokenizer = write_bpe_tokenizer(tmp_path / "tokenizer")
    (tokenizer / "model.safetensors").write_bytes(b"x" * 100)
    (tokenizer / "chat_template.jinja").write_text("{{ messages }}")
    write_task(tmp_path / "s", "a" * 32, DOCUMENTS[0], [])
    commit(tmp_path / "s", ["a" * 32], [[0]], tokenizer)
    manifest, _ = read_manifest(tmp_path / "s")
    assert set(manifest.tokenizer["files"]) == {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}


def arguments(root: Path, keys: list[str]) -> dict:
    hashed = config_hash({"output": {}}, "", "")
    return {
        "root": root,
        "task_keys": keys,
        "task_inputs": [[0]] * len(keys),
        "inputs": INPUTS_SCHEMA.empty_table(),
        "columns": {"sequence": "uint16"},
        "config": {"output": {}},
        "config_hash": hashed,
        "plan_hash": plan_hash(hashed, keys),
        "tokenizer_files": {},
        "ids_sha256": "",
        "template_sha256": "",
        "mask_rules": [],
        "packing": {"strategy": "simple", "max_packed_len": None},
        "has_loss_mask": False,
        "run": {},
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config_hash": "0" * 64}, "config_hash"),
        ({"plan_hash": "0" * 64}, "plan_hash"),
        ({"columns": {"sequence": "int32"}}, "wanted .*int32"),
        ({"task_inputs": []}, "zip"),
    ],
)
def test_a_commit_of_what_does_not_fit(tmp_path, change, message):
    write_task(tmp_path, "a" * 32, DOCUMENTS[0], [])
    with pytest.raises(ValueError, match=message):
        assemble(**arguments(tmp_path, ["a" * 32]) | change)
    assert not (tmp_path / "manifest.json").exists()


def test_a_commit_of_unfinished_work(tmp_path):
    with pytest.raises(StoreError, match="not finished"):
        assemble(**arguments(tmp_path, ["a" * 32]))
    with pytest.raises(ValueError, match="at least one task"):
        assemble(**arguments(tmp_path, []))


def changed(sample: Path, target: Path, **fields) -> Path:
    manifest = json.loads((sample / "manifest.json").read_bytes())
    target.mkdir()
    (target / "manifest.json").write_bytes(orjson.dumps({**manifest, **fields}))
    return target


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"format_version": "2.0"}, "does not read"),
        ({"required_features": ["lz4 columns"]}, "lz4 columns"),
        ({"kind": "records"}, "kind 'records'"),
        ({"format": "something else"}, "damaged"),
        ({"columns": None, "tables": None}, "damaged"),
        ({"tables": {"rows": {"path": "../../etc/passwd"}}}, "outside the store"),
        ({"run": {"path": "/etc/passwd"}}, "outside the store"),
    ],
)
def test_manifests_that_are_refused(sample, tmp_path, fields, message):
    with pytest.raises(StoreError, match=message):
        read_manifest(changed(sample, tmp_path / "s", **fields))


def test_a_newer_minor_format_is_read(sample, tmp_path):
    manifest, _ = read_manifest(changed(sample, tmp_path / "s", format_version="1.7", novelty=1))
    assert dataclasses.replace(manifest, format_version="1.0") == read_manifest(sample)[0]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"format":1}', b"\xff"])
def test_damaged_manifests(tmp_path, content):
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(StoreError, match="manifest is damaged"):
        TokenStore.open(tmp_path)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (None, "no token store here"),
        ([], "an empty directory"),
        (["a.txt", "b.txt", "c.txt", "d.txt", "e.txt", "f.txt"], r"got: a.txt, b.txt, c.txt, d.txt, e.txt, \.\.\."),
        (["data/x/part-000.arrow"], "not finished"),
        ([".work/lock.json"], "not finished"),
        (["manifest.json/x"], "cannot be read"),
    ],
)
def test_what_stands_there_instead_of_a_store(tmp_path, names, message):
    root = tmp_path / "place"
    for name in names or []:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    if names == []:
        root.mkdir()
    with pytest.raises(StoreError, match=message):
        TokenStore.open(root)


def test_a_file_is_no_store(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="is a directory"):
        TokenStore.open(tmp_path / "file")


def test_a_store_without_its_tables(sample, tmp_path):
    with pytest.raises(StoreError, match="table of the store cannot be read"):
        TokenStore.open(changed(sample, tmp_path / "s"))


def test_an_unknown_table(sample):
    with pytest.raises(StoreError, match="no such table"):
        TokenStore.open(sample).table("row")


def test_inputs_are_cast_to_their_schema(tmp_path):
    write_task(tmp_path, "a" * 32, DOCUMENTS[0], [])
    inputs = pa.table({"records": [1], "format": ["jsonl"], "size": [2], "name": ["x"], "surplus": [0]})
    assemble(**arguments(tmp_path, ["a" * 32]) | {"inputs": inputs})
    assert TokenStore.open(tmp_path).table("inputs").schema == INPUTS_SCHEMA
