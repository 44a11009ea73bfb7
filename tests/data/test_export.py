import json
from pathlib import Path

import numpy as np
import orjson
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
)
from astrai_data.store.domain_names import folder_of
from astrai_data.store.export import export_store
from astrai_data.store.reference import load_bin, load_bin_offsets, save_bin
from tests.data.small_stores import write_small_store


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    root = tmp_path_factory.mktemp("export") / "store"
    return root, write_small_store(root)


def make_store(
    tmp_path, parts, *, dtype=None, capacity=6, strategy="bfd", has_loss_mask=True, **manifest
) -> TokenStore:
    """Parts of (domain, [(ids, number of masked leading tokens)])."""
    root, key = tmp_path / "store", "k" * 32
    writer = TaskWriter(root, key, storage_format="arrow")
    for domain, documents in parts:
        tokens = Ragged.from_rows([ids for ids, _ in documents], np.uint16)
        n, runs = len(documents), [[masked, len(ids) - masked] for ids, masked in documents]
        lengths, rules = Ragged.from_rows(runs, np.int32), Ragged.from_rows([[0, 1]] * n, np.uint16)
        zeros, planned = np.zeros(n, np.int64), plan(strategy, tokens.lengths, capacity, split=True)
        ordinals, flags = np.arange(n, dtype=np.int32), zeros.astype(np.uint8)
        writer.write_part("train", domain, *gather(tokens, lengths, rules, zeros, ordinals, flags, planned))
    writer.finish(DOCUMENTS_SCHEMA.empty_table(), Ledger(), [], [])
    config = {"output": {"dtype": dtype or {}}}
    hashed = config_hash(config, "", "")
    assemble(
        root,
        task_keys=[key],
        task_inputs=[[]],
        inputs=INPUTS_SCHEMA.empty_table(),
        columns={"sequence": "uint16"},
        config=config,
        config_hash=hashed,
        plan_hash=plan_hash(hashed, [key]),
        tokenizer_dir=tmp_path,
        ids_sha256="",
        template_sha256="",
        mask_rules=[MaskRule("prompt", False), MaskRule("answer", True)],
        packing={"strategy": strategy, "max_packed_len": capacity},
        has_loss_mask=has_loss_mask,
        run={},
        **manifest,
    )
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
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


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
    assert store.verify is not None
    export_store(store, tmp_path / "out" / "deep")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "store"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["deep"]
    folders = {path.name for path in (tmp_path / "out" / "deep").iterdir()}
    assert folders == {folder_of(domain) for domain in [*EVIL, None]}
    assert len(folders) == len(EVIL) + 1
    assert all(
        name.startswith(f"{folder}/shard_0000/")
        for folder in folders
        for name in tree(tmp_path / "out/deep")
        if folder in name.split("/")
    )


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
    assert [name.split("/")[0] for name in tree(tmp_path / "held") if name.endswith("meta.json")] == [
        "__default__",
        "code",
    ]


# Acceptance 42, and what the helpers refuse.

CASE_42 = {
    "a": [np.array([1, 2, 3], np.int32), np.array([4], np.int32)],
    "m": [np.array([1, 0, 1], bool), np.array([1], bool)],
}


def test_saved_bytes(tmp_path):
    save_bin(tmp_path / "s", CASE_42, record_keys=["a"])
    assert (tmp_path / "s/a.bin").read_bytes().hex() == "01000000020000000300000004000000"
    assert (tmp_path / "s/m.bin").read_bytes().hex() == "01000101"
    assert json.loads((tmp_path / "s/meta.json").read_text()) == {
        "a": {"shape": [4], "dtype": "int32", "offsets": [0, 3, 4]},
        "m": {"shape": [4], "dtype": "bool"},
    }
    loaded = load_bin(tmp_path / "s")
    assert {key: [array.tolist() for array in arrays] for key, arrays in loaded.items()} == {
        "a": [[1, 2, 3, 4]],
        "m": [[True, False, True, True]],
    }
    assert {key: offsets.tolist() for key, offsets in load_bin_offsets(tmp_path / "s").items()} == {"a": [0, 3, 4]}


@pytest.mark.parametrize(
    "array",
    [
        np.array([2**62, -(2**63), 2**63 - 1]),
        np.array([[1.5, -2.0], [0.25, 4.0]], np.float16),
        np.zeros((0, 3), np.int32),
        np.zeros(0, bool),
        np.array([1, 258], ">i4"),
    ],
)
def test_round_trips_are_exact(tmp_path, array):
    save_bin(tmp_path, {"x": [array]})
    (loaded,) = load_bin(tmp_path)["x"]
    assert loaded.shape == array.shape
    assert loaded.dtype == array.dtype.newbyteorder("<")
    assert np.array_equal(loaded, array)
    assert load_bin_offsets(tmp_path) == {}


def test_a_loaded_array_can_be_changed_without_changing_the_file(tmp_path):
    save_bin(tmp_path, {"x": [np.array([1, 2])]})
    load_bin(tmp_path)["x"][0][0] = 9
    assert load_bin(tmp_path)["x"][0].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("dtypes", "joined"),
    [(["int32", "float32"], "float32"), (["int64", "float16"], "float16"), (["bool", "int8"], "int8"),
     (["float32", "float64"], "float64"), (["int8", "uint8"], "int16")],
)  # fmt: skip
def test_joined_dtypes(tmp_path, dtypes, joined):
    save_bin(tmp_path, {"x": [np.ones(1, name) for name in dtypes]})
    assert load_bin(tmp_path)["x"][0].dtype == joined


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ([[np.array([1])], [np.array([2])]], ValueError),
        ([], ValueError),
        ([np.ones((1, 2)), np.ones((1, 3))], ValueError),
        ([np.array([1], np.uint16)], TypeError),
        ([np.array(["a"])], TypeError),
    ],
)
def test_what_cannot_be_saved(tmp_path, values, error):
    with pytest.raises(error):
        save_bin(tmp_path, {"x": values})
    assert tree(tmp_path) == []


@pytest.mark.parametrize(
    "meta",
    [None, "{", "[]", '{"x": {"shape": 3, "dtype": "int32"}}', '{"x": {"shape": [1], "dtype": "int3"}}', '{"x": 1}'],
)
def test_what_is_no_shard(tmp_path, meta):
    if meta is not None:
        (tmp_path / "meta.json").write_text(meta)
    with pytest.raises(StoreError, match="no shard directory"):
        load_bin(tmp_path)


@pytest.mark.parametrize("size", [None, 7])
def test_a_shard_with_a_wrong_file(tmp_path, size):
    save_bin(tmp_path, {"x": [np.ones(2, np.int32)]})
    (tmp_path / "x.bin").unlink()
    if size is not None:
        (tmp_path / "x.bin").write_bytes(bytes(size))
    with pytest.raises(StoreError, match="wrong size"):
        load_bin(tmp_path)


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
