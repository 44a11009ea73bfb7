import json
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from astrai_data.cli.export import command
from astrai_data.errors import StoreError
from astrai_data.ledger import Ledger
from astrai_data.pack import gather, plan
from astrai_data.ragged import Ragged
from astrai_data.store import (
    DOCUMENTS_SCHEMA,
    INPUTS_SCHEMA,
    MaskRule,
    TaskWriter,
    TokenStore,
    assemble,
    config_hash,
    plan_hash,
    read_tokenizer_files,
)
from astrai_data.store.domain_names import folder_of
from astrai_data.store.export import export_store
from astrai_data.store.reference import load_bin
from tests.data.small_stores import write_small_store
from tests.data.toys import write_toy_tokenizer


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    root = tmp_path_factory.mktemp("export") / "store"
    return root, write_small_store(root)


def make_store(tmp_path, parts, *, dtype=None, capacity=6, strategy="bfd", cuts=None, **manifest) -> TokenStore:
    """Parts of (domain, [(ids, number of masked leading tokens)]); `cuts` are flags of every document."""
    root, key, count = tmp_path / "store", "k" * 32, 0
    writer = TaskWriter(root, key, storage_format="arrow")
    for domain, documents in parts:
        n, runs = len(documents), [[masked, len(ids) - masked] for ids, masked in documents]
        tokens = Ragged.from_rows([ids for ids, _ in documents], np.uint16)
        lengths, rules = Ragged.from_rows(runs, np.int32), Ragged.from_rows([[0, 1]] * n, np.uint16)
        planned = plan(strategy, tokens.lengths, capacity, split=capacity is not None)
        ordinals, flags = np.arange(count, count + n, dtype=np.int32), np.full(n, cuts or 0, np.uint8)
        starts = np.full(n, 9 if cuts else 0)
        writer.write_part("train", domain, *gather(tokens, lengths, rules, starts, ordinals, flags, planned))
        count += n
    row = {"input": 0, "position": 7, "text_hash": bytes(16), "text_bytes": 0, "num_tokens": 0, "num_trained": 0}
    documents = pa.Table.from_pylist([row | {"domain": None, "split": "train"}] * count, DOCUMENTS_SCHEMA)
    writer.finish(documents, Ledger(), [], [])
    config = {"output": {"dtype": dtype or {}}}
    hashed = config_hash(config, "", "")
    fixed = {
        "task_keys": [key],
        "task_inputs": [[0]],
        "inputs": pa.table([["x"], [0], ["jsonl"], [count]], schema=INPUTS_SCHEMA),
        "columns": {"sequence": "uint16"},
        "config": config,
        "config_hash": hashed,
        "plan_hash": plan_hash(hashed, [key]),
        "tokenizer_files": read_tokenizer_files(write_toy_tokenizer(tmp_path / "tokenizer")),
        "ids_sha256": "",
        "template_sha256": "",
        "mask_rules": [MaskRule("prompt", False), MaskRule("answer", True)],
        "packing": {"strategy": strategy, "max_packed_len": capacity},
        "has_loss_mask": True,
        "run": {},
    }
    assemble(root, **fixed | manifest)
    return TokenStore.open(root)


def tree(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def texts(folder: Path) -> dict[str, str]:
    return {
        path.parent.relative_to(folder).as_posix(): "".join(map(chr, np.fromfile(path, np.int32)))
        for path in sorted(folder.rglob("sequence.bin"))
    }


CHAT = [1, 60, 117, 62, 104, 105, 124, 60, 97, 62, 111, 107, 124]
"""Acceptance case 4: BOS, <u>hi|, <a>ok| with the assistant's turn trained."""


def test_a_chat_has_three_keys_of_thirteen(tmp_path):
    """Acceptance 40."""
    store = make_store(tmp_path, [(None, [(CHAT, 7)])], capacity=None, strategy="simple")
    export_store(store, tmp_path / "out")
    shard = tmp_path / "out" / "__default__" / "shard_0000"
    meta = (shard / "meta.json").read_text()
    entry = '{"shape": [13], "dtype": "int32"}'
    assert meta == f'{{"sequence": {entry}, "loss_mask": {entry}, "position_ids": {entry}}}'
    assert np.fromfile(shard / "sequence.bin", np.int32).tolist() == CHAT
    assert np.fromfile(shard / "loss_mask.bin", np.int32).tolist() == [0] * 7 + [1] * 6
    assert np.fromfile(shard / "position_ids.bin", np.int32).tolist() == list(range(13))


def test_dtypes_follow_the_configuration(tmp_path):
    dtype = {"loss_mask": "bool", "sequence": "auto", "position_ids": "int64"}
    store = make_store(tmp_path, [(None, [(CHAT, 7)])], capacity=None, strategy="simple", dtype=dtype)
    export_store(store, tmp_path / "out")
    shard = tmp_path / "out" / "__default__" / "shard_0000"
    assert {key: entry["dtype"] for key, entry in json.loads((shard / "meta.json").read_text()).items()} == {
        "sequence": "int32",
        "loss_mask": "bool",
        "position_ids": "int64",
    }
    assert (shard / "loss_mask.bin").read_bytes().hex() == "00" * 7 + "01" * 6


def test_values_that_do_not_fit_are_refused_and_leave_nothing(tmp_path):
    store = make_store(tmp_path, [(None, [([300, 2], 0)])], dtype={"sequence": "uint8"})
    with pytest.raises(StoreError, match=r"sequence does not fit"):
        export_store(store, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "tokenizer"]


@pytest.mark.parametrize(
    ("strategy", "rows", "positions"),
    [
        ("bfd", "lmnopq" + "cdefg" + "hijkab" + "rst", [*range(6), *range(5), *range(4), 0, 1, *range(3)]),
        ("simple", "ab" + "cdefg" + "hijk" + "lmnopq" + "rst", [0, 1, *range(5), *range(4), *range(6), *range(3)]),
        ("concat", "abcdef" + "ghijkl" + "mnopqr" + "st", [0, 1, *range(4), 0, *range(4), 0, *range(6), 0, 1]),
    ],
)
def test_positions_restart_with_every_segment(tmp_path, strategy, rows, positions):
    """Acceptance 32, as wanted: pieces of a split document restart too."""
    documents = [([*map(ord, text)], 0) for text in ("ab", "cdefg", "hijk", "lmnopqrst")]
    store = make_store(tmp_path, [(None, documents)], strategy=strategy, has_loss_mask=False)
    export_store(store, tmp_path / "out")
    shard = tmp_path / "out" / "__default__" / "shard_0000"
    assert tree(shard) == ["meta.json", "position_ids.bin", "sequence.bin"]
    assert texts(tmp_path / "out") == {"__default__/shard_0000": rows}
    assert np.fromfile(shard / "position_ids.bin", np.int32).tolist() == positions


@pytest.mark.parametrize(("mode", "expected"), [("continuous", list(range(5))), ("none", None)])
def test_other_position_modes(tmp_path, mode, expected):
    store = make_store(
        tmp_path, [("a", [([1, 2, 3], 0), ([4, 5], 0)])], position_ids_mode=mode, dtype={"position_ids": "int64"}
    )
    export_store(store, tmp_path / "out")
    shard = load_bin(tmp_path / "out" / "a" / "shard_0000")
    if expected is None:
        assert set(shard) == {"sequence", "loss_mask"}
    else:
        assert (shard["position_ids"][0].tolist(), shard["position_ids"][0].dtype) == (expected, np.int32)


def test_every_domain_counts_its_own_shards(tmp_path):
    """The tree of acceptance 34, with the ruling of design.md §12 about its parts."""
    parts = [("A", "abc"), ("B", "de"), ("A", "fi"), (None, "gg"), ("B", "hh")]
    store = make_store(tmp_path, [(domain, [([*map(ord, text)], 0)]) for domain, text in parts])
    assert export_store(store, tmp_path / "out") == 5
    assert texts(tmp_path / "out") == {
        "A/shard_0000": "abc",
        "A/shard_0001": "fi",
        "B/shard_0000": "de",
        "B/shard_0001": "hh",
        "__default__/shard_0000": "gg",
    }


EVIL = [
    "../evil",
    "/etc",
    "..",
    ".",
    "",
    "a/b",
    "a\\b",
    "C:",
    "\0",
    "__default__",
    ".hidden",
    "x" * 300,
    "今日",
    "%2E",
    "%empty",
]


def test_domains_stay_inside(tmp_path):
    """Acceptance 43: neither the store nor an export has a domain for a path."""
    parts = [(domain, [([1, 2], 0)]) for domain in [*EVIL, None]]
    store = make_store(tmp_path, parts)
    assert all("evil" not in name for name in tree(tmp_path / "store"))
    export_store(store, tmp_path / "out" / "deep")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "store", "tokenizer"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["deep"]
    folders = {path.name for path in (tmp_path / "out" / "deep").iterdir()}
    assert folders == {folder_of(domain) for domain in [*EVIL, None]}
    assert len(folders) == len(EVIL) + 1
    assert {name.split("/")[0] for name in tree(tmp_path / "out" / "deep")} == folders


@pytest.mark.parametrize(
    ("domain", "folder"),
    [
        (None, "__default__"),
        ("wiki", "wiki"),
        ("en_US-v1.2", "en_US-v1.2"),
        ("../evil", "%2E.%2Fevil"),
        ("", "%empty"),
        ("__default__", "%5F_default__"),
        ("a b%", "a%20b%25"),
        ("-rf", "%2Drf"),
    ],
)
def test_folder_names(domain, folder):
    assert folder_of(domain) == folder


@given(st.text(max_size=260), st.text(max_size=260))
def test_folder_names_are_safe_and_never_shared(one, other):
    name = folder_of(one)
    assert name.isascii()
    assert 0 < len(name) <= 200
    assert not set(name) & set('/\\:*?"<>|\0 ')
    assert name[0] not in ".~-"
    assert (name == folder_of(other)) == (one == other)
    assert name != folder_of(None)


def test_only_free_destinations(tmp_path, sample):
    store = TokenStore.open(sample[0])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for dest, to in [("full", "reference"), ("file", "reference"), ("file", "jsonl"), ("full", "jsonl")]:
        with pytest.raises(StoreError, match="something at the destination"):
            export_store(store, tmp_path / dest, to)
    (tmp_path / "empty").mkdir()
    export_store(store, tmp_path / "empty")
    assert (tmp_path / "full" / "x").read_text() == (tmp_path / "file").read_text() == "mine"
    with pytest.raises(StoreError, match="did you mean 'jsonl'"):
        export_store(store, tmp_path / "new", "json")


@pytest.mark.parametrize(
    ("name", "to", "made"),
    [
        ("x.jsonl", None, "file"),
        ("x.NDJSON", None, "file"),
        ("x.jsonl", "reference", "folder"),
        ("x", "jsonl", "file"),
        ("x", None, "folder"),
        ("jsonl", None, "folder"),
        ("x.jsonl.d", None, "folder"),
        ("x.jsonl.gz", "reference", "folder"),
    ],
)
def test_the_name_of_the_destination_tells_the_format(tmp_path, sample, name, to, made):
    result = run(sample[0], tmp_path / name, *(["--to", to] if to else []))
    assert result.exit_code == 0, result.output
    assert ("document" in result.output, "shard" in result.output) == (made == "file", made == "folder")
    assert (tmp_path / name).is_file() == (made == "file")
    export_store(TokenStore.open(sample[0]), tmp_path / "again" / name, to)
    assert (tmp_path / "again" / name).is_file() == (made == "file")


@pytest.mark.parametrize(("name", "to"), [("x.jsonl.gz", None), ("x.jsonl.zst", "jsonl"), ("x.gz", "jsonl")])
def test_no_plain_lines_under_the_name_of_a_compressed_file(tmp_path, sample, name, to):
    with pytest.raises(StoreError, match="not compressed") as caught:
        export_store(TokenStore.open(sample[0]), tmp_path / name, to)
    assert f"export to {(tmp_path / name).with_suffix('')}, and" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def lines(path: Path) -> list[dict]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def test_a_document_is_a_line(tmp_path, sample):
    root, documents = sample
    count = export_store(TokenStore.open(root, None), tmp_path / "out.jsonl", "jsonl")
    told = lines(tmp_path / "out.jsonl")
    assert count == len(told) == len(documents)
    names = ["text.jsonl", "more.jsonl"]
    for line, document in zip(told, documents, strict=True):
        assert line == {
            "text": document.text,
            "domain": document.domain,
            "split": document.split,
            "source": names[document.input],
            "position": document.position,
            "meta": document.meta or {},
            "truncated": False,
        }


def test_a_split_is_exported_alone(tmp_path, sample):
    root, documents = sample
    export_store(TokenStore.open(root, "validation"), tmp_path / "held.jsonl", "jsonl")
    assert [line["text"] for line in lines(tmp_path / "held.jsonl")] == [
        d.text for d in documents if d.split == "validation"
    ]
    export_store(TokenStore.open(root, "validation"), tmp_path / "held")
    assert {name.split("/")[0] for name in tree(tmp_path / "held")} == {"__default__", "code"}


@pytest.mark.parametrize(("cuts", "truncated"), [(None, False), (1, True), (2, True), (3, True)])
def test_pieces_are_joined_and_cuts_are_told(tmp_path, cuts, truncated):
    """The first document is packed in three pieces; the end mark is shown, or left out."""
    documents = [([*map(ord, "abcdefghijklmno"), 2], 0), ([*map(ord, "xy"), 2], 0)]
    store = make_store(tmp_path, [("a", documents), ("b", documents[:1])], cuts=cuts)
    export_store(store, tmp_path / "shown", "jsonl")
    told = lines(tmp_path / "shown")
    assert [line["text"] for line in told] == ["abcdefghijklmno[E]", "xy[E]", "abcdefghijklmno[E]"]
    assert [line["truncated"] for line in told] == [truncated] * 3
    export_store(store, tmp_path / "left-out", "jsonl", skip_special_tokens=True)
    assert [line["text"] for line in lines(tmp_path / "left-out")] == ["abcdefghijklmno", "xy", "abcdefghijklmno"]


def run(*arguments: object):
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command(tmp_path, sample):
    root, documents = sample
    result = run(root, tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "4 shards, 228 tokens of split train" in result.output
    assert "left out: 11 tokens of other splits" in result.output
    result = run(root, tmp_path / "out.jsonl", "--to", "jsonl", "--split", "all", "--skip-special-tokens")
    assert f"{len(documents)} documents" in result.output
    assert "left out" not in result.output
    assert len(lines(tmp_path / "out.jsonl")) == len(documents)
    assert isinstance(run(root, tmp_path / "out").exception, StoreError)
