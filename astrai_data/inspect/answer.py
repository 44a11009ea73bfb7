"""What `astrai inspect` prints, one function for each thing that can be asked.

Answers go to a `Paper`: standard output or a file, as text or bytes; notes go to standard error.
"""

import errno
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TextIO

import orjson
from rich.console import Console

from astrai_data.errors import StoreError
from astrai_data.inspect.numbers import counted, size
from astrai_data.inspect.printable import printable, printable_cell
from astrai_data.store import TokenStore, read_manifest
from astrai_data.store.files import refused, replacing
from astrai_data.store.locate import local_root
from astrai_data.store.verify import verify_store

ENDLESS = 1_000_000
"""Columns of a page that is no terminal."""


@dataclass(frozen=True)
class Paper:
    """Where an answer goes: `out` takes bytes, `console` text; both end in the same place."""

    out: BinaryIO
    console: Console

    def note(self, text: str) -> None:
        """Tell the reader something that is no part of the answer."""
        self.console.file.flush()
        print(printable(text), file=sys.stderr)

    def write_json(self, value: object) -> None:
        """One JSON value, indented for a reader."""
        self.out.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


@contextmanager
def paper(path: str | None) -> Iterator[Paper]:
    """Standard output, or the file at `path`, which is replaced when the answer is whole and not before.

    A device or a pipe is written to: a file renamed onto /dev/null would take its place, for every program.
    """
    if path is None:
        sys.stdout.reconfigure(errors="backslashreplace")
        yield Paper(sys.stdout.buffer, _console(sys.stdout))
        return
    if not Path(path).parent.is_dir():
        raise StoreError(
            "the answer cannot be written",
            where=path,
            got="no such folder",
            wanted="a file in a folder that is there",
            hint="make the folder first, or name another file with --output",
        )
    with _target(Path(path)) as target, target.open("wb") as out:
        text = io.TextIOWrapper(out, encoding="utf-8", errors="backslashreplace", write_through=True)
        yield Paper(out, _console(text))


@contextmanager
def _target(path: Path) -> Iterator[Path]:
    """Where to write what belongs to `path`."""
    if not path.exists() or path.is_file() or path.is_dir():
        with replacing(path) as temporary:
            yield temporary
        return
    try:
        yield path
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise refused("the answer cannot be written", error, path) from error


def overview(url: str, output_format: str, paper: Paper) -> None:
    """The store at a glance."""
    from astrai_data.inspect.summary import print_summary, summary

    facts = summary(TokenStore.open(url, split=None))
    if output_format == "json":
        paper.write_json(facts)
    else:
        print_summary(facts, url, paper.console)


def sql(url: str, query: str, output_format: str, paper: Paper, *, allow_files: bool, max_rows: int) -> None:
    """The answer to a query (`-`: read from standard input); as a table, its first `max_rows` rows."""
    from astrai_data.inspect.output import write_csv, write_json, write_parquet
    from astrai_data.inspect.sql import connect

    query = sys.stdin.read() if query == "-" else query
    writers: dict[str, Callable] = {"json": write_json, "csv": write_csv, "parquet": write_parquet}
    with connect(TokenStore.open(url, split=None), allow_files) as session:
        if output_format == "table":
            _draw(session, query, paper, max_rows)
        else:
            writers[output_format](session.stream(query), paper.out)


def show(
    url: str,
    num_rows: int | None,
    row_id: int | None,
    output_format: str,
    paper: Paper,
    *,
    split: str | None,
    full: bool,
) -> None:
    """Some rows (`num_rows`, of one `split` or all), or the row `row_id`, decoded, with their masks.

    On a page long rows are shortened, unless it is to be `full`.
    """
    from astrai_data.inspect.excerpt import MAX_ROW_LINES
    from astrai_data.inspect.paint import print_rows
    from astrai_data.inspect.sample import one_row, sample

    store = TokenStore.open(url, split=None)
    rows = sample(store, num_rows, split) if row_id is None else [one_row(store, row_id)]
    if output_format == "json":
        paper.write_json([row.to_dict() for row in rows])
    else:
        max_lines = None if full else MAX_ROW_LINES
        if print_rows(rows, paper.console, store.manifest.packing["max_packed_len"], max_lines):
            paper.note(f"the text of a row is shortened to about {MAX_ROW_LINES} lines; --full shows all of it")


def verify(url: str, output_format: str, paper: Paper) -> bool:
    """Every finding of a full check; returns whether the store is whole."""
    root = local_root(url)
    findings = verify_store(root)  # a store that cannot be opened is proved all the same
    if output_format == "json":
        paper.write_json({"ok": not findings, "findings": [{"path": str(f.path), "what": f.what} for f in findings]})
    elif findings:
        for finding in findings:
            paper.console.out(f"{printable_cell(str(finding.path))}: {printable_cell(finding.what)}", highlight=False)
    else:
        num_files, num_bytes = _size(root)
        totals = read_manifest(root)[0].totals
        paper.console.out(
            f"ok: {counted(num_files, 'file')}, {size(num_bytes)}, "
            f"{counted(totals['num_rows'], 'row')}, {counted(totals['num_tokens'], 'token')}",
            highlight=False,
        )
    return not findings


def _draw(session, query: str, paper: Paper, max_rows: int) -> None:
    from astrai_data.inspect.table import write_table

    shown = write_table(session.stream(query), paper.console, max_rows)
    if shown.has_more:
        more = session.count(query) - shown.num_rows
        paper.note(f"… {counted(more, 'more row')}; --format json or csv writes all of them")
    elif shown.shortened:
        paper.note("long lists and texts are shortened; --format json writes all of them")


def _size(root: Path) -> tuple[int, int]:
    """(files, bytes) below the store's directory."""
    files = [path for path in root.rglob("*") if path.is_file()]
    return len(files), sum(path.stat().st_size for path in files)


def _console(file: TextIO) -> Console:
    """A console that fits a terminal, and elsewhere never wraps."""
    width = None if file.isatty() else ENDLESS
    return Console(file=file, width=width, markup=False, emoji=False, highlight=False)
