"""A store of which one file cannot be read: every way of reading the store says which, and none ends in a traceback."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from astrai_data.cli import export, inspect
from astrai_data.errors import StoreError
from astrai_data.inspect import query
from astrai_data.store import TokenStore
from tests.data.small_stores import write_small_store

VIEWS = ("rows", "segments", "documents", "shards", "inputs", "ledger", "rejects")
COMMANDS = {
    "summary": ("inspect",),
    **{view: ("inspect", "--sql", f"FROM {view}", "--json") for view in VIEWS},
    "decode": ("inspect", "--sql", "SELECT decode(encode('x'))"),
    "show": ("inspect", "--show", "8"),
    "row": ("inspect", "--row", "0"),
    "jsonl": ("export", "--to", "jsonl", "--split", "all"),
    "reference": ("export", "--to", "reference", "--split", "all"),
}
READS: dict[str, Callable[[TokenStore], object]] = {
    "row": lambda store: [store.row(i) for i in range(store.num_rows)],
    "rows": lambda store: store.rows(range(store.num_rows)),
    "slice": lambda store: store.slice(0, store.num_tokens, ("sequence", "loss_mask")),
    "tokens": lambda store: [store.tokens(i) for i in range(len(store.shards))],
    "segments": lambda store: [store.segments(i) for i in range(len(store.shards))],
    "table": lambda store: [store.table(name) for name in store.manifest.tables],
    "documents": lambda store: store.documents(),
    "rejects": lambda store: list(store.rejects()),
    "tokenizer": lambda store: store.tokenizer(),
    "to_arrow": lambda store: store.to_arrow(),
}
FILES = {
    "manifest": "manifest.json",
    "documents": "data/*/documents.parquet",
    "part": "data/*/part-000.arrow",
    "column": "data/*/part-000/sequence.bin",
    "offsets": "data/*/part-000/sequence.offsets.bin",
    "segments": "data/*/part-000.segments.arrow",
    "rejects": "rejects/*.zst",
    "tokenizer": "meta/*/tokenizer/tokenizer.json",
    "tokenizer config": "meta/*/tokenizer/tokenizer_config.json",
    "pipeline": "meta/*/pipeline.json",
    **{name: f"meta/*/tables/{name}.parquet" for name in ("rows", "shards", "inputs", "tasks", "ledger")},
}
MUST_FAIL = {
    "manifest": {*COMMANDS},
    "shards": {*COMMANDS},
    "ledger": {"summary", "ledger"},
    "documents": {"documents", "show", "row", "jsonl"},
    "part": {"rows", "segments", "show", "row", "jsonl", "reference"},
    "segments": {"rows", "segments", "show", "row", "jsonl", "reference"},
    "column": {"rows", "segments", "show", "row", "jsonl", "reference"},
    "offsets": {"rows", "segments", "show", "row", "jsonl", "reference"},
    "rejects": {"rejects"},
    "tokenizer": {"decode", "show", "row", "jsonl"},
    "tokenizer config": {"decode", "show", "row", "jsonl"},
    "pipeline": {"reference"},
    "rows": {"rows"},
    "inputs": {"inputs", "documents", "show", "row", "jsonl", "rejects"},
    "tasks": {"documents", "show", "row", "jsonl", "rejects"},
}
"""For each kind of file, commands that cannot answer without it."""


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = {
    "deleted": Path.unlink,
    "cut short": cut_short,
    "emptied": lambda path: path.write_bytes(b""),
    "a folder": make_folder,
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory) -> dict[str, Path]:
    roots = {name: tmp_path_factory.mktemp(name) / "store" for name in ("arrow", "bin")}
    for name, root in roots.items():
        write_small_store(root, storage_format=name)
    return roots


@pytest.fixture(scope="module")
def whole(stores) -> Path:
    return stores["arrow"]


@pytest.fixture(scope="module")
def run():
    app = typer.Typer()
    app.command("inspect")(inspect.command)
    app.command("export")(export.command)

    def invoke(root: Path, command: tuple[str, ...]):
        name, *options = command
        dest = root.parent / "out"
        result = CliRunner().invoke(app, [name, str(root), *([str(dest)] if name == "export" else []), *options])
        left = list(root.parent.glob(".out*"))
        (shutil.rmtree if dest.is_dir() else Path.unlink)(dest) if dest.exists() else None
        assert not left, "an export that failed leaves nothing"
        return result

    return invoke


@contextmanager
def damaged(root: Path, pattern: str, damage: Callable[[Path], object]) -> Iterator[Path]:
    """One file that matches, damaged, and put back at the end."""
    path = sorted(root.glob(pattern))[0]
    kept = root.parent / "kept"
    shutil.copy2(path, kept)
    try:
        damage(path)
        yield path
    finally:
        if path.is_dir():
            path.rmdir()
        shutil.move(kept, path)


def check_told(error: BaseException | None, root: Path, path: Path) -> bool:
    """Whether something failed; and then it was told well."""
    if error is None or isinstance(error, SystemExit):
        return False
    assert isinstance(error, StoreError), repr(error)
    where = str(error.where)
    assert path.name in f"{where} {error.got}" or str(path).startswith(f"{where}/"), str(error)
    assert error.got not in (None, ""), str(error)
    assert "--verify" in error.hint or path.name == "manifest.json", str(error)
    return True


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", FILES)
def test_commands_and_methods_name_the_file(stores, run, kind, damage):
    whole = stores["bin" if kind in ("column", "offsets") else "arrow"]
    with damaged(whole, FILES[kind], DAMAGES[damage]) as path:
        failed = {name for name, c in COMMANDS.items() if check_told(run(whole, c).exception, whole, path)}
        assert MUST_FAIL.get(kind, set()) <= failed
        if kind == "manifest":
            return
        for read in READS.values():
            try:
                read(TokenStore.open(whole, None))
            except StoreError as error:
                check_told(error, whole, path)
        verified = run(whole, ("inspect", "--verify"))
        assert verified.exit_code == 1
        assert isinstance(verified.exception, SystemExit)
        assert path.name in verified.stdout
        assert "None" not in verified.stdout


@pytest.mark.parametrize("storage_format", ["arrow", "bin"])
def test_everything_reads_a_whole_store(stores, run, storage_format):
    whole = stores[storage_format]
    for command in COMMANDS.values():
        assert run(whole, command).exit_code == 0
    for read in READS.values():
        read(TokenStore.open(whole, None))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone else")
@pytest.mark.parametrize("pattern", ["manifest.json", "data/*/documents.parquet", "data/*/part-000.arrow", "rejects/*"])
def test_a_file_that_may_not_be_read(whole, pattern):
    """Root reads everything, so the test becomes another user in a child."""
    with damaged(whole, pattern, lambda path: path.chmod(0)) as path:
        for folder in (whole, *whole.parents):
            if folder.stat().st_uid == os.geteuid() and folder.parent != folder:
                folder.chmod(folder.stat().st_mode | 0o011)
        query_once(whole)  # everything is imported before the rights are gone
        child = os.fork()
        if child == 0:
            os._exit(ask_as_nobody(whole, path))
        assert os.waitpid(child, 0)[1] == 0


def query_once(root: Path) -> None:
    store = TokenStore.open(root, None)
    query(store, "SELECT 1")
    list(store.rejects())


def ask_as_nobody(root: Path, path: Path) -> int:
    os.setuid(65534)
    try:
        store = TokenStore.open(root, None)
        list(store.rejects())
        query(store, "SELECT source, sequence FROM documents, rows")
    except StoreError as error:
        return 0 if path.name in str(error) and "Permission denied" in str(error) else 1
    except BaseException:  # a traceback is what must not be
        return 2
    return 3


def test_another_tokenizer_is_not_taken_for_the_stores(whole):
    other = damaged(whole, "meta/*/tokenizer/tokenizer.json", lambda path: path.write_text(path.read_text() + " "))
    with other, pytest.raises(StoreError, match="copy of its tokenizer"):
        TokenStore.open(whole, None).tokenizer()
