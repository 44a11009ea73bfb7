"""Disks: full, without permission, read-only; inputs that change, vanish or lead in circles; a folder of many files."""

import glob
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from astrai_data import Pipeline, PipelineConfig, TokenStore
from astrai_data.errors import InputError, RunError, StoreError
from astrai_data.records import FieldSpec, RangeReader, expand_inputs
from astrai_data.run import Progress

from .running import TEXT_CONFIG, astrai, command, digests, write_config, write_jsonl
from .toys import write_bpe_tokenizer

ROOT = Path(__file__).parents[2]
NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root: to mount a file system, or to become another user")


@pytest.fixture
def place():
    """A folder that every user can reach; pytest's own belongs to one user alone."""
    folder = Path(tempfile.mkdtemp(prefix="astrai-disks-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def inputs(place):
    """Two inputs; each has a domain of its own and thereby is a task of its own."""
    for name in "ab":
        write_jsonl(place / f"{name}.jsonl", [{"text": f"{name} {i} number " * (i % 97)} for i in range(900)] + [5])
    write_bpe_tokenizer(place / "tokenizer")
    write_config(place / "pipeline.json", config_of(place))
    return place


def config_of(place: Path, length: int = 64, **output) -> dict:
    files = [{"path": str(place / f"{name}.jsonl"), "domain": name} for name in "ab"]
    return TEXT_CONFIG | {
        "data": {"inputs": files},
        "tokenizer": {"path": str(place / "tokenizer"), "backend": "tokenizers"},
        "preprocessing": {"max_packed_len": length},
        "output": output,
    }


def pipeline(place: Path, store: Path, length: int = 64, **output) -> Pipeline:
    return Pipeline(PipelineConfig.from_dict(config_of(place, length, **output)), [], store)


def check_told(error: object, *words: str) -> None:
    """An error says what, where, found what, and what to try."""
    text = str(error)
    for part in ("  where: ", "  got: ", "  try: ", *words):
        assert part in text, text


# Full disks.


@pytest.fixture
def disk(place):
    """Mounts a file system of a given size in memory."""
    mounted = place / "disk"
    mounted.mkdir()

    def mount(num_bytes: int, *more: str) -> Path:
        options = ",".join([f"size={num_bytes}", "mode=755", *more])
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", mounted], check=False)
        if done.returncode:
            pytest.skip("needs the right to mount")
        return mounted

    yield mount
    subprocess.run(["umount", "-l", mounted], check=False, stderr=subprocess.DEVNULL)


PAGE = 4096
DISK_BYTES = 4 << 20


def fill(filler: Path, room: int) -> None:
    """Leave `room` bytes free."""
    filler.unlink(missing_ok=True)
    with filler.open("wb") as file:
        file.write(bytes(max(0, shutil.disk_usage(filler.parent).free - room)))


def rooms(wanted: Path, steps: int) -> range:
    """From no room to twice what the store takes, in steps of whole pages."""
    pages = sum(-(-path.stat().st_size // PAGE) for path in wanted.rglob("*"))
    return range(0, 2 * pages * PAGE, pages // steps * PAGE)


@as_root
@pytest.mark.parametrize("storage_format", ["arrow", "bin"])
def test_a_disk_that_fills_up_at_any_place(inputs, disk, tmp_path, storage_format):
    """A little more room each time, until there is enough."""
    wanted, store = tmp_path / "wanted", disk(DISK_BYTES) / "store"
    pipeline(inputs, wanted, storage_format=storage_format).run()
    places = []
    for room in rooms(wanted, 6):
        fill(store.parent / "filler", room)
        try:
            pipeline(inputs, store, storage_format=storage_format).run()
            break
        except (StoreError, RunError) as error:
            check_told(error, "No space left on device", "make room")
            places.append(str(error.where).removeprefix(f"{store}/").split("/")[0])
        assert not (store / "manifest.json").exists()
        assert not list(store.rglob("*.tmp"))
        if len(places) % 2:  # every other time it goes on with what is there
            shutil.rmtree(store, ignore_errors=True)
    assert digests(store) == digests(wanted)
    assert places.count("data") >= 3


@as_root
def test_a_disk_that_is_full_when_the_store_is_replaced(inputs, disk):
    """It fills up after the last task; the old store stays whole until there is room for the new one's tables."""
    wanted, store = inputs / "wanted", disk(DISK_BYTES) / "store"
    pipeline(inputs, store).run()
    pipeline(inputs, wanted, 32).run()
    old, places = TokenStore.open(store, split=None).store_id, []
    for num_pages in range(0, 100, 3):

        def fill_after_tasks(progress: Progress, room: int = num_pages * PAGE) -> None:
            if progress.done_tasks == progress.num_tasks:
                fill(store.parent / "filler", room)

        (store.parent / "filler").unlink(missing_ok=True)
        try:
            pipeline(inputs, store, 32).run(overwrite=True, progress=fill_after_tasks)
            break
        except (StoreError, RunError) as error:
            check_told(error, "No space left on device")
            places.append(Path(error.where).relative_to(store).parts[0])
        opened = TokenStore.open(store, split=None)
        assert opened.store_id == old
        assert opened.verify() == []
    assert places.count("meta") >= 3
    assert digests(store) == digests(wanted)
    assert TokenStore.open(store, split=None).verify() == []


@as_root
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_command_on_a_full_disk(inputs, disk, workers):
    mounted = disk(24 * PAGE)
    arguments = ["preprocess", "-o", mounted / "store", "-c", inputs / "pipeline.json", "--workers", workers]
    failed = astrai(*arguments)
    assert failed.returncode == 1
    check_told(failed.stderr, "error: ", "No space left on device", "make room on this disk")  # file or run, by turns
    assert "Traceback" not in failed.stderr
    assert not list(mounted.rglob("*.tmp"))
    subprocess.run(["mount", "-o", f"remount,size={DISK_BYTES}", mounted], check=True)
    astrai(*arguments, check=True)
    astrai(*arguments[:2], inputs / "wanted", *arguments[3:], check=True)
    assert digests(mounted / "store") == digests(inputs / "wanted")


# Permissions.


def unprivileged(*arguments: object) -> subprocess.CompletedProcess:
    """The command as a user whom permissions bind: root without the right to pass them over."""
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv")
    bound = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command(*arguments)]
    return subprocess.run(bound, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def give_away(path: Path) -> None:
    """Let somebody else own a folder and all in it; others may read."""
    for one in (path, *path.rglob("*")):
        os.chown(one, NOBODY, NOBODY)
        one.chmod(0o755 if one.is_dir() else 0o644)


def make_folder(path: Path, mode: int) -> None:
    path.mkdir()
    os.chown(path, NOBODY, NOBODY)
    path.chmod(mode)


def make_store(place: Path) -> None:
    """Somebody else's store of another configuration, in a folder that anyone may write to."""
    pipeline(place, place / "store", 32).run()
    give_away(place / "store")
    for path in (place / "store", place / "store" / ".work", place / "store" / "meta"):
        path.chmod(0o777)


REFUSED = {
    "parent of the output": ("out/store", lambda place: make_folder(place / "out", 0o755), "out/store"),
    "hidden output": ("out/store", lambda place: make_folder(place / "out", 0o700), "out/store"),
    "output": ("store", lambda place: make_folder(place / "store", 0o755), "store/.work"),
    "hidden folder as output": ("store", lambda place: make_folder(place / "store", 0o700), "store"),
    "store": ("store", make_store, "store/data/"),
    "input": ("store", lambda place: (place / "a.jsonl").chmod(0), "a.jsonl"),
    "tokenizer": ("store", lambda place: (place / "tokenizer" / "tokenizer.json").chmod(0), "tokenizer"),
    "folder of the tokenizer": ("store", lambda place: (place / "tokenizer").chmod(0), "tokenizer"),
    "pipeline": ("store", lambda place: (place / "pipeline.json").chmod(0), "pipeline.json"),
}


@as_root
@pytest.mark.parametrize("name", REFUSED)
def test_what_may_not_be_read_or_written(inputs, name):
    output, prepare, where = REFUSED[name]
    prepare(inputs)
    refused = unprivileged("preprocess", "-o", inputs / output, "-c", inputs / "pipeline.json", "--overwrite")
    assert refused.returncode == 1, refused.stderr
    assert "error: " in refused.stderr
    assert "Traceback" not in refused.stderr
    assert "Permission denied" in refused.stderr
    assert f"{inputs}/{where}" in re.search(r"where: (.*)", refused.stderr)[1]
    if (inputs / "store" / "manifest.json").exists():
        assert TokenStore.open(inputs / "store", split=None).verify() == []


@as_root
@pytest.mark.parametrize("path", ["text/secret", "text", "text/**/*.jsonl", "text/secret/*.jsonl"])
def test_a_folder_that_may_not_be_read(inputs, path):
    """It is no empty folder: neither when it is named, nor below one, nor where a glob comes by."""
    (inputs / "text" / "secret").mkdir(parents=True)
    shutil.copy(inputs / "a.jsonl", inputs / "text" / "a.jsonl")
    (inputs / "text" / "secret").chmod(0o311)
    options = ["-o", inputs / "store", "-c", inputs / "pipeline.json", "--dry-run"]
    refused = unprivileged("preprocess", inputs / path, *options)
    assert refused.returncode == 1
    check_told(refused.stderr, "error: an input folder cannot be read\n", f"{inputs}/text/secret\n", "denied")


@as_root
def test_a_finished_store_and_its_input_may_be_read_only(inputs, disk, tmp_path):
    mounted = disk(DISK_BYTES)
    shutil.copytree(inputs / "tokenizer", mounted / "tokenizer")
    for name in ("a.jsonl", "b.jsonl"):
        shutil.copy(inputs / name, mounted / name)
    pipeline(mounted, mounted / "store").run()
    subprocess.run(["mount", "-o", "remount,ro", mounted], check=True)
    manifest = pipeline(mounted, mounted / "store").run()  # it says that it is finished, and writes nothing
    assert manifest == pipeline(mounted, tmp_path / "store").run()
    with pytest.raises(RunError) as caught:
        pipeline(mounted, mounted / "store", 32).run(overwrite=True)
    check_told(caught.value, "Read-only file system", "can only be read")


# Inputs that change.


def replaced_by(content: bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.with_suffix(".new").write_bytes(content)
        path.with_suffix(".new").replace(path)

    return change


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def grow(path: Path) -> None:
    with path.open("a") as file:
        file.write('{"text": "a late line"}\n')


def overwrite_in_place(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b'{"text":"other"}')


def touch(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def become_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def become_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


CHANGED, GONE = "an input file changed after the run was planned", "an input file cannot be opened"
CHANGES = {
    "truncated": (truncate, CHANGED),
    "grown": (grow, CHANGED),
    "replaced": (replaced_by(b'{"text": "another"}\n'), CHANGED),
    "other content of the same size": (overwrite_in_place, CHANGED),
    "another time": (touch, CHANGED),
    "gone": (Path.unlink, GONE),
    "a folder": (become_a_folder, "an input file"),
    "a pipe that nobody writes": (become_a_pipe, CHANGED),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_between_plan_and_read(inputs, tmp_path, change):
    act, what = CHANGES[change]
    planned = iter([inputs / "b.jsonl"])
    with pytest.raises(InputError) as caught:
        pipeline(inputs, tmp_path / "store").run(progress=lambda _: [act(path) for path in planned])
    check_told(caught.value, f"{what}", f"where: {inputs}/b.jsonl\n")
    assert not (tmp_path / "store" / "manifest.json").exists()
    if (inputs / "b.jsonl").is_file():
        pipeline(inputs, tmp_path / "store").run()
        pipeline(inputs, tmp_path / "wanted").run()
        assert digests(tmp_path / "store") == digests(tmp_path / "wanted")


@pytest.mark.parametrize("compression", ["", ".gz"])
@pytest.mark.parametrize("change", [truncate, overwrite_in_place, grow])
def test_a_file_that_changes_while_it_is_read(tmp_path, compression, change):
    import gzip

    data = b'{"text": "' + os.urandom(1 << 21).hex().encode() + b'"}\n'
    path = tmp_path / f"a.jsonl{compression}"
    path.write_bytes((gzip.compress(data) if compression else data) * 2)
    (file,) = expand_inputs([SimpleNamespace(path=str(path), format="auto", domain=None, fields={})])
    reader = RangeReader(file, 0, file.size, [FieldSpec("text", "text")], max_record_bytes=1 << 26, block_bytes=1 << 16)
    chunks = iter(reader)
    next(chunks)
    change(path)
    with pytest.raises(InputError, match="changed after the run was planned"):
        list(chunks)


def test_a_file_changed_behind_the_clock_is_another_plan(inputs, tmp_path):
    """Size and time say nothing has changed; the first or last MiB, of which the plan takes a hash, says it has."""
    pipeline(inputs, tmp_path / "store").run()
    status = (inputs / "b.jsonl").stat()
    overwrite_in_place(inputs / "b.jsonl")
    os.utime(inputs / "b.jsonl", ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(RunError, match="files whose content has changed"):
        pipeline(inputs, tmp_path / "store").run()


# Circles and patterns.


def make_tree(root: Path) -> None:
    for name in ("x.jsonl", "sub/y.jsonl", "sub/deep/z.jsonl", ".hidden/h.jsonl", "sub/.h.jsonl", "a[1].jsonl"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text('{"text": "a"}\n')
    (root / "link").symlink_to(root / "sub" / "deep")
    (root / "file.jsonl").symlink_to(root / "x.jsonl")


PATTERNS = ["**", "**/*.jsonl", "*", "*/*", "*/**/z.jsonl", "**/**/*", "sub/**", "s*b/[xy].jsonl", ".*/*", "**/.h*"]
PATTERNS += ["[!x]*.jsonl", "?.jsonl", "sub/deep/*.jsonl", "a[[]1].jsonl", "**/deep/*", "none*", "x.jsonl/*", "l*/*"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_mean_what_they_mean_to_glob(tmp_path, pattern):
    make_tree(tmp_path)
    wanted = {path for path in glob.glob(str(tmp_path / pattern), recursive=True) if os.path.isfile(path)}
    if wanted:
        assert expanded(tmp_path / pattern, "jsonl") == sorted(wanted, key=str.encode)
    else:
        with pytest.raises(InputError, match="no file matches a pattern"):
            expanded(tmp_path / pattern, "jsonl")


def expanded(path: Path, format_name: str = "auto") -> list[str]:
    spec = SimpleNamespace(path=str(path), format=format_name, domain=None, fields={})
    return [file.url for file in expand_inputs([spec])]


@pytest.mark.parametrize("pattern", ["", "**/*.jsonl", "*/**/*.jsonl"])
def test_links_in_circles_end(tmp_path, pattern):
    make_tree(tmp_path)
    before = expanded(tmp_path / pattern)
    (tmp_path / "sub" / "up").symlink_to(tmp_path)
    (tmp_path / "sub" / "deep" / "here").symlink_to(".")
    begin = time.process_time()
    assert set(before) <= set(expanded(tmp_path / pattern))
    assert len(expanded(tmp_path / pattern)) < 30
    assert time.process_time() - begin < 1


@pytest.mark.parametrize("path", ["self.jsonl", "", "*"])
def test_a_link_to_itself_is_named(tmp_path, path):
    make_tree(tmp_path)
    (tmp_path / "self.jsonl").symlink_to("self.jsonl")
    with pytest.raises(InputError) as caught:
        expanded(tmp_path / path)
    check_told(caught.value, "cannot be opened", "self.jsonl\n", "symbolic links", "leads back to itself")


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(InputError, match="is no file"):
        expanded(tmp_path / "pipe.jsonl")


# Many files.


@pytest.mark.slow
def test_a_hundred_thousand_files_in_one_folder(inputs, tmp_path):
    (inputs / "many").mkdir()
    for i in range(100_000):
        descriptor = os.open(inputs / "many" / f"{i:06}.jsonl", os.O_CREAT | os.O_WRONLY)
        os.write(descriptor, b'{"text": "document number %d"}\n' % i)
        os.close(descriptor)
    config = PipelineConfig.from_dict(TEXT_CONFIG | {"preprocessing": {"max_packed_len": 512}})
    many = Pipeline(config, [inputs / "many"], tmp_path / "store", inputs / "tokenizer")
    for name, act in {"plan": many.plan, "run": many.run, "again": many.run}.items():
        begin, begin_cpu = time.monotonic(), time.process_time()
        act()
        cpu_s = time.process_time() - begin_cpu
        print(f"{name}: {time.monotonic() - begin:.1f} s, {cpu_s:.1f} s of CPU")
        assert cpu_s < (60 if name == "run" else 10)
    store = TokenStore.open(tmp_path / "store")
    assert store.num_documents == 100_000
    assert store.documents()["input"].to_pylist() == list(range(100_000))
