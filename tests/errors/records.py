"""Inputs: paths, patterns, URLs, formats, damaged files, and files that change."""

import gzip
import os

import pyarrow as pa
from pyarrow import parquet

from astrai_data.config import InputSpec
from astrai_data.errors import InputError
from astrai_data.records import FieldSpec, RangeReader, expand_inputs
from astrai_data.records.formats import resolve_format

from .place import Place
from .row import Row

TEXT = [FieldSpec("text", "text")]


def find(path: str, **keys):
    """What an input of the configuration names; `path` is relative to the folder unless it is a URL."""

    def fail(place: Place) -> None:
        place.once("texts.jsonl", {"text": "a"})
        where = path if "://" in path or path[0] == "/" else str(place / path)
        expand_inputs([InputSpec(path=where, **keys)])

    return fail


def preprocess(name: str):
    """The command with an input of this name."""

    def fail(place: Place) -> None:
        place.once("texts.jsonl", {"text": "some text"})
        place.astrai(
            "preprocess", place / name, "-o", place / "out", "-c", "pretrain", "--tokenizer", place.tokenizer, "--quiet"
        )

    return fail


def damaged(place: Place) -> None:
    place.once("cut.jsonl.gz", gzip.compress(b'{"text": "some text"}\n' * 5000)[:-30])
    preprocess("cut.jsonl.gz")(place)


def read(name: str, content: bytes, spoil):
    """Plan a file, spoil it, read it."""

    def fail(place: Place) -> None:
        path = place.write(name, content)
        [file] = expand_inputs([InputSpec(path=str(path))])
        spoil(path)
        list(RangeReader(file, 0, file.size, TEXT, max_record_bytes=1 << 20))

    return fail


def replace_by_folder(path) -> None:
    path.unlink()
    path.mkdir()


def find_socket(place: Place) -> None:
    os.mkfifo(place / "pipe")
    expand_inputs([InputSpec(path=str(place / "pipe"))])


def find_link(place: Place) -> None:
    (place / "loop").symlink_to("loop")
    expand_inputs([InputSpec(path=str(place / "loop"))])


def twice(place: Place) -> None:
    parquet.write_table(pa.Table.from_arrays([pa.array(["a"])] * 2, ["text", "text"]), place / "a.parquet")
    read("a.parquet", (place / "a.parquet").read_bytes(), lambda path: None)(place)


def mend_name(place: Place) -> None:
    """Take the name that the message proposes."""
    proposed = place.told("try").removeprefix("did you mean ").split(" in ")[0]
    (place / "text.jsonl").symlink_to(place / proposed)


def row(name, fail, *says, mend=None) -> Row:
    return Row(name, fail, InputError, says, mend=mend)


LINE = b'{"text": "abc"}\n'

ROWS = [
    row("no such file", preprocess("text.jsonl"), "text.jsonl", "mean texts.jsonl in ", mend=mend_name),
    row("a folder that is not there", find("data/a/b.jsonl"), "data/a/b.jsonl", "holds texts.jsonl"),
    row("a pattern without a match", find("*.parquet"), "no file matches a pattern", "*.parquet", "texts.jsonl"),
    row(
        "a folder without data",
        lambda p: p.write("in/a.xyz", b"") and find("in")(p),
        "(a.xyz)",
        ".jsonl",
        "give a glob",
    ),
    row("a pipe", find_socket, "/pipe", "a device, pipe or socket", "write what comes out of it to a file"),
    row("a link to itself", find_link, "/loop", "symbolic links", "a link that leads back to itself"),
    row("another machine's file", find("file://host/a.jsonl"), "got: host", "file:///path"),
    row("a protocol of nobody", find("nope://a/b.jsonl"), "nope://a/b.jsonl", "mend the protocol"),
    row("a remote file that is not there", find("memory://errors/b.jsonl"), "memory://errors/b.jsonl", "nothing"),
    row("a remote pattern", find("memory://errors/*.jsonl"), "no file matches a pattern", "memory://errors/*.jsonl"),
    row("no suffix", lambda p: p.write("data", LINE) and find("data")(p), "no suffix", "set `format` in data.inputs"),
    row("a format of later", lambda p: p.write("a.csv", LINE) and find("a.csv")(p), "'csv'", "jsonl or parquet"),
    row("a format of nobody", lambda p: resolve_format("a.jsonl", "jsnl"), "a.jsonl", "got: jsnl", "mean 'jsonl'"),
    row("a compression", lambda p: p.write("a.jsonl.xz", LINE) and find("a.jsonl.xz")(p), "got: xz", "with zstd"),
    row("Parquet in gzip", lambda p: p.write("a.parquet.gz", LINE) and find("*.gz")(p), "decompress the file first"),
    row("a damaged file", damaged, "cut.jsonl.gz", mend=lambda p: p.options.append("--allow-damaged")),
    row("a broken JSON file", read("a.json", b'{"text": ', lambda path: None), "a whole json file", "--allow-damaged"),
    row("a column twice", twice, "a.parquet", "more than one column is named 'text'"),
    row("no Parquet", read("a.parquet", b"PAR1 nonsense", lambda path: None), "a.parquet", "a whole parquet file"),
    row("a file that grew", read("a.jsonl", LINE, lambda path: path.write_bytes(LINE * 2)), "32 bytes", "16 bytes"),
    row("a file that was touched", read("a.jsonl", LINE, lambda path: os.utime(path, (1, 1))), "1970", "as of 20"),
    row("a file that vanished", read("a.jsonl", LINE, os.unlink), "No such file", "restore the file"),
    row("a file that became a folder", read("a.jsonl", LINE * 300, replace_by_folder), "a.jsonl", "plans anew"),
]
