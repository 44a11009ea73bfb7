"""What folders of inputs hold besides the files that are read: found in any storage, and told in one short line."""

import os
import pty
import subprocess
from types import SimpleNamespace

import fsspec
import pytest

from astrai_data import Pipeline, PipelineConfig
from astrai_data.errors import InputError
from astrai_data.inspect.texts import Texts
from astrai_data.records import PassedOver, find_inputs

from .running import TEXT_CONFIG, astrai, command, write_config
from .toys import write_toy_tokenizer

DATA = ["a.jsonl", "b/c.txt"]
OTHERS = ["LICENSE", "notes.rst", "b/one.png", "b/two.PNG", "x.tar.gz", "b/Makefile"]
HIDDEN = [".hidden.bin", ".git/config", "b/.DS_Store"]
TOLD = "6 files of other kinds (2 without a suffix, e.g. LICENSE; 2 .png, e.g. b/one.png; notes.rst; x.tar.gz)"


@pytest.fixture(params=["folder", "memory"])
def folder(tmp_path, request):
    """The same files on disk and in a remote storage."""
    where = str(tmp_path / "data") if request.param == "folder" else "memory://passed-over"
    file_system, root = fsspec.core.url_to_fs(where)
    for name in DATA + OTHERS + HIDDEN:
        file_system.makedirs(f"{root}/{name}".rpartition("/")[0], exist_ok=True)
        file_system.pipe(f"{root}/{name}", b'{"text": "abc"}\n')
    yield where
    file_system.rm(root, recursive=True)


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return write_toy_tokenizer(tmp_path_factory.mktemp("toy"), "C0")


def spec(path, format_name="auto"):
    return SimpleNamespace(path=str(path), format=format_name, domain=None, fields={})


def find(*specs) -> PassedOver:
    return find_inputs(specs).passed_over


def test_a_folder_tells_what_is_not_read(folder):
    found = find(spec(folder))
    assert sorted(found.names) == sorted(OTHERS)
    assert str(found) == f"passed over in {folder}: {TOLD}"


def test_files_of_another_format_than_the_declared_one_are_told(folder):
    assert sorted(find(spec(folder, "jsonl")).names) == sorted([*OTHERS, "b/c.txt"])


def test_what_another_input_reads_is_not_passed_over(folder):
    assert sorted(find(spec(folder, "jsonl"), spec(folder, "text")).names) == sorted(OTHERS)
    assert sorted(find(spec(folder), spec(f"{folder}/notes.rst", "text")).names) == sorted({*OTHERS} - {"notes.rst"})


def test_named_files_pass_nothing_over(folder):
    assert find(spec(f"{folder}/*.jsonl")) == PassedOver()


def test_a_folder_without_data_says_what_it_holds(tmp_path):
    (tmp_path / "one.png").touch()
    with pytest.raises(InputError, match=r"got: 1 file of other kinds \(one.png\)"):
        find(spec(tmp_path))
    (tmp_path / "one.png").unlink()
    with pytest.raises(InputError, match="got: no files"):
        find(spec(tmp_path))


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz", "b/a.arrow", "a.jsonl.xz", "b/a.txt.bz2", "a.json.lz4"])
def test_data_that_cannot_be_read_stops_a_run_over_its_folder(folder, name):
    """A table that is missing from the store is worse than a picture that is."""
    file_system, root = fsspec.core.url_to_fs(folder)
    file_system.pipe(f"{root}/{name}", b"")
    with pytest.raises(InputError, match=r"not supported yet|the compression of an input cannot be read") as caught:
        find(spec(folder))
    assert name in str(caught.value)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "b/a.arrow", "a.txt.xz"])
def test_a_declared_format_leaves_it_out(folder, name):
    file_system, root = fsspec.core.url_to_fs(folder)
    file_system.pipe(f"{root}/{name}", b"")
    assert name in find(spec(folder, "jsonl")).names


def test_many_files_and_odd_names_are_told_shortly():
    names = tuple(f"{'x' * 200}/{i}\n\x1b[31m.kind{i % 50}" for i in range(10_000))
    told = str(PassedOver(tuple(f"folder-{i}" for i in range(100)), names))
    assert told.startswith("passed over in folder-0, folder-1, folder-2 and 97 more: 10,000 files of other kinds (200 ")
    assert told.endswith(" and 45 more kinds)")
    assert told.isprintable()
    assert len(told) < 1000


def test_a_run_and_a_dry_run_tell_it_but_not_a_finished_one(folder, toy, tmp_path, caplog):
    pipeline = Pipeline(PipelineConfig.from_dict(TEXT_CONFIG), [folder], tmp_path / "store", toy)
    for act, count in ((pipeline.plan, 1), (pipeline.run, 1), (pipeline.run, 0)):
        caplog.clear()
        act()
        assert caplog.messages.count(f"passed over in {folder}: {TOLD}") == count


@pytest.mark.parametrize(("options", "count"), [([], 1), (["--dry-run"], 1), (["--quiet"], 0)])
def test_the_command_tells_it(tmp_path, toy, options, count):
    (tmp_path / "data").mkdir()
    for name in ("a.txt", "a.png"):
        (tmp_path / "data" / name).write_text("abc")
    config = write_config(tmp_path / "p.json", TEXT_CONFIG)
    done = astrai("preprocess", "data", "-o", "s", "-c", config, "--tokenizer", toy, *options, cwd=tmp_path, check=True)
    assert done.stderr.splitlines().count("passed over in data: 1 file of other kinds (a.png)") == count


def test_on_a_terminal_it_stands_above_the_bar(tmp_path, toy):
    (tmp_path / "data").mkdir()
    for name in ("a.txt", "a.png"):
        (tmp_path / "data" / name).write_text("abc")
    config = write_config(tmp_path / "p.json", TEXT_CONFIG)
    terminal, screen = pty.openpty()
    try:
        arguments = ("preprocess", "data", "-o", "s", "-c", config, "--tokenizer", toy, "--workers", 1)
        environment = os.environ | {"COLUMNS": "200", "TERM": "xterm"}
        subprocess.run(command(*arguments), stderr=screen, cwd=tmp_path, timeout=120, check=True, env=environment)
        written = os.read(terminal, 1 << 16).decode()
    finally:
        os.close(terminal)
        os.close(screen)
    assert "\x1b[2Kpassed over in data: 1 file of other kinds (a.png)\r\n" in written, "on a line of its own"


def test_training_a_tokenizer_tells_it(folder):
    warnings: list[str] = []
    assert len(list(Texts([folder], "text", warnings.append))) == 2
    assert warnings == [f"passed over in {folder}: {TOLD}"]
