"""Paths, directories, globs and URLs to planned files: which, in which order, under which names."""

import os
import time
from types import SimpleNamespace

import fsspec
import pytest

from astrai_data.errors import InputError
from astrai_data.records import FieldSpec, RangeReader, cut_inputs, expand_inputs


def spec(path, format_name="auto", domain=None, fields=None):
    return SimpleNamespace(path=str(path), format=format_name, domain=domain, fields=fields or {})


def expand(path, format_name="auto"):
    return expand_inputs([spec(path, format_name)])


TREE = ["b.jsonl", "a.jsonl", "a/z.jsonl.gz", "a/b/c.TXT", "a/B.NdJson.ZST", "é.md", "x.parquet", "one.json"]
IGNORED = ["README", "a/notes.rst", ".hidden.jsonl", ".git/config.txt"]


@pytest.fixture
def tree(tmp_path):
    for name in TREE + IGNORED:
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{}\n")
    return tmp_path / "data"


def test_directory_is_walked_and_sorted_bytewise(tree):
    files = expand(tree)
    assert [file.name for file in files] == sorted(TREE, key=str.encode)
    assert {file.name: (file.format, file.compression) for file in files} == {
        "b.jsonl": ("jsonl", None),
        "a.jsonl": ("jsonl", None),
        "a/z.jsonl.gz": ("jsonl", "gzip"),
        "a/b/c.TXT": ("text", None),
        "a/B.NdJson.ZST": ("jsonl", "zstd"),
        "é.md": ("text", None),
        "x.parquet": ("parquet", None),
        "one.json": ("json", None),
    }
    assert all(file.size == 3 and file.version for file in files)
    assert files[0].url == str(tree / files[0].name)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.jsonl", ["a.jsonl", "b.jsonl"]),
        ("**/*.jsonl*", ["a.jsonl", "a/z.jsonl.gz", "b.jsonl"]),
        ("a/**/*.TXT", ["b/c.TXT"]),
        ("[ab].jsonl", ["a.jsonl", "b.jsonl"]),
        ("?/*.gz", ["a/z.jsonl.gz"]),
        ("a/./b/*", ["c.TXT"]),
    ],
)
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_globs_name_files_below_their_plain_prefix(tree, pattern, names, scheme):
    assert [file.name for file in expand(f"{scheme}{tree}/{pattern}")] == names


def test_relative_paths(tree, monkeypatch):
    monkeypatch.chdir(tree.parent)
    (plain,) = expand("data/a/../a.jsonl")
    assert (plain.name, plain.url) == ("a.jsonl", str(tree / "a.jsonl"))
    assert [file.name for file in expand("./data/a/")] == ["B.NdJson.ZST", "b/c.TXT", "z.jsonl.gz"]


def test_a_plain_file_may_hold_wildcard_characters(tmp_path):
    (tmp_path / "a[1].jsonl").write_bytes(b"")
    assert [file.name for file in expand(tmp_path / "a[1].jsonl")] == ["a[1].jsonl"]


def test_arguments_keep_their_order_and_settings(tree):
    files = expand_inputs([spec(tree / "b.jsonl", domain="B", fields={"text": "body"}), spec(tree / "a.jsonl")])
    assert [(file.name, file.domain, file.fields) for file in files] == [
        ("b.jsonl", "B", {"text": "body"}),
        ("a.jsonl", None, {}),
    ]


@pytest.mark.parametrize(
    ("format_name", "names"),
    [("jsonl", ["a.jsonl", "a/B.NdJson.ZST", "a/z.jsonl.gz", "b.jsonl", "one.json"]), ("text", ["a/b/c.TXT", "é.md"])],
)
def test_declared_format_selects_in_a_directory(tree, format_name, names):
    files = expand(tree, format_name)
    assert [file.name for file in files] == names
    assert {file.format for file in files} == {format_name}


def test_declared_format_wins_over_the_suffix(tree):
    (file,) = expand(tree / "a/notes.rst", "text")
    assert file.format == "text"


FAILURES = {
    "missing file": ("a.json", "auto", "did you mean a.jsonl"),
    "missing folder": ("dat/a.jsonl", "auto", "no such input file"),
    "no match": ("*.jsonk", "auto", "no file matches"),
    "unknown suffix": ("README", "auto", "set `format`"),
    "unknown suffix in a glob": ("a/*", "auto", "a/notes.rst"),
    "csv": ("t.csv", "auto", "not supported yet"),
    "hf": ("a.jsonl", "hf", "not supported yet"),
    "misspelt format": ("a.jsonl", "josnl", "did you mean 'jsonl'"),
    "parquet in gzip": ("t.parquet.gz", "auto", "decompress the file first"),
    "directory without usable files": ("empty", "auto", "give a glob"),
    "directory without files of the format": ("a", "parquet", "of format 'parquet'"),
    "dangling link": ("links", "auto", "a link to nothing"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures_say_what_to_try(tree, name):
    for extra in ("t.csv", "t.parquet.gz", "empty/x.bin"):
        (tree / extra).parent.mkdir(exist_ok=True)
        (tree / extra).write_bytes(b"")
    (tree / "links").mkdir()
    (tree / "links/gone.jsonl").symlink_to(tree / "nowhere.jsonl")
    path, format_name, words = FAILURES[name]
    with pytest.raises(InputError) as caught:
        expand(tree / path, format_name)
    assert words in str(caught.value)
    assert str(tree) in str(caught.value)


def test_links_are_followed_but_not_in_circles(tree):
    (tree / "a/loop").symlink_to(tree)
    (tree / "other").symlink_to(tree / "a/b")
    assert "other/c.TXT" in {file.name for file in expand(tree)}
    assert len(expand(tree)) == len(TREE) + 1


@pytest.fixture
def memory():
    file_system = fsspec.filesystem("memory")
    for name in ("b.jsonl", "a.jsonl", "deep/c.jsonl", "deep/.hidden.jsonl", "deep/skip.bin"):
        file_system.pipe(f"/records-bucket/{name}", b'{"text":"' + name.encode() + b'"}\n')
    yield "memory://records-bucket"
    file_system.rm("/records-bucket", recursive=True)


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("", ["a.jsonl", "b.jsonl", "deep/c.jsonl"]),
        ("/*.jsonl", ["a.jsonl", "b.jsonl"]),
        ("/**/c.jsonl", ["deep/c.jsonl"]),
        ("/a.jsonl", ["a.jsonl"]),
    ],
)
def test_remote_files(memory, path, names):
    files = expand(memory + path)
    assert [file.name for file in files] == names
    assert all(file.version and file.size for file in files)
    ((*ranges,),) = cut_inputs(files)
    rows = [
        row["text:text"]
        for cut in ranges
        for chunk in RangeReader(files[cut.file], cut.begin, cut.end, [FieldSpec("text", "text")], max_record_bytes=100)
        for row in chunk.columns.to_pylist()
    ]
    assert rows == names


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("memory://records-bucket/a.json", "did you mean a.jsonl"),
        ("memory://records-bucket/*.zip", "no file matches"),
        ("nosuch://bucket/a.jsonl", "nosuch"),
    ],
)
def test_remote_failures(memory, url, words):
    with pytest.raises(InputError) as caught:
        expand(url)
    assert words in str(caught.value)


def test_ten_thousand_small_files_plan_in_seconds(tmp_path):
    for i in range(10_000):
        descriptor = os.open(tmp_path / f"{i:05}.jsonl", os.O_CREAT | os.O_WRONLY)
        os.write(descriptor, b'{"text":"%d"}\n' % i)
        os.close(descriptor)
    begin = time.process_time()
    files = expand(tmp_path)
    tasks = cut_inputs(files)
    seconds = time.process_time() - begin
    assert sum(map(len, tasks)) == len(files) == 10_000
    assert seconds < 4
