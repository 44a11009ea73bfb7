"""Disks: full, without permission, read-only; inputs that change, vanish or lead in circles; a folder of many files."""

import glob
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from astrai_data import Pipeline, PipelineConfig, TokenStore
from astrai_data.errors import AstraiError, InputError, RunError, StoreError
from astrai_data.records import FieldSpec, RangeReader, expand_inputs

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


@as_root
@pytest.mark.parametrize("storage_format", ["arrow", "bin"])
def test_a_disk_that_fills_up_at_any_place(inputs, disk, tmp_path, storage_format):
    """Every few pages of room let the run come a little further; then the last of them lets it end."""
    pipeline(inputs, tmp_path / "wanted", storage_format=storage_format).run()
    store, filler = disk(1 << 20) / "store", inputs / "disk" / "filler"
    failures, places = 0, set()
    for room in range(PAGE, 1 << 20, 5 * PAGE):
        fill(filler, room)
        try:
            pipeline(inputs, store, storage_format=storage_format).run()
            break
        except (StoreError, RunError) as error:
            check_told(error, "No space left on device", "make room")
            places.add(re.sub(r"[0-9a-f]{16,}", "*", str(error.where)).removeprefix(f"{store}/"))
        assert not (store / "manifest.json").exists()
        assert not list(store.rglob("*.tmp"))
        failures += 1
        shutil.rmtree(store, ignore_errors=failures % 2 == 0)  # every other time it goes on with what is there
    assert digests(store) == digests(tmp_path / "wanted")
    assert {name.split("/")[0] for name in places} >= {"data", "meta"}


def fill(filler: Path, room: int) -> None:
    """Leave `room` bytes free."""
    filler.unlink(missing_ok=True)
    with filler.open("wb") as file:
        file.write(bytes(max(0, shutil.disk_usage(filler.parent).free - room)))


@as_root
def test_a_full_disk_leaves_the_old_store_whole(inputs, disk):
    store, filler = disk(1 << 20) / "store", inputs / "disk" / "filler"
    pipeline(inputs, store).run()
    old, new = TokenStore.open(store, split=None).store_id, None
    for room in range(0, 1 << 20, 8 * PAGE):
        fill(filler, room)
        try:
            new = pipeline(inputs, store, 32).run(overwrite=True)
            break
        except (StoreError, RunError) as error:
            check_told(error, "No space left on device")
        opened = TokenStore.open(store, split=None)
        assert opened.store_id == old
        assert opened.verify() == []
    assert new is not None
    assert room > 0
    assert TokenStore.open(store, split=None).verify() == []
    pipeline(inputs, inputs / "wanted", 32).run()
    assert digests(store) == digests(inputs / "wanted")


@as_root
@pytest.mark.parametrize("workers", [1, 2])
def test_the_command_on_a_full_disk(inputs, disk, workers):
    mounted = disk(24 * PAGE)
    arguments = ["preprocess", "-o", mounted / "store", "-c", inputs / "pipeline.json", "--workers", workers]
    failed = astrai(*arguments)
    assert failed.returncode == 1
    check_told(failed.stderr, "error: a file cannot be written\n", "No space left on device", "make room on this disk")
    assert "Traceback" not in failed.stderr
    assert not list(mounted.rglob("*.tmp"))
    subprocess.run(["mount", "-o", "remount,size=1m", mounted], check=True)
    astrai(*arguments, check=True)
    astrai(*arguments[:2], inputs / "wanted", *arguments[3:], check=True)
    assert digests(mounted / "store") == digests(inputs / "wanted")


# Permissions.


def as_nobody(*arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run(
        command(*arguments),
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def make_unreadable(path: Path) -> None:
    path.chmod(0)


def give_store(place: Path) -> None:
    """A store of another configuration whose tables belong to somebody else, in a folder that anyone may write to."""
    pipeline(place, place / "store", 32).run()
    (place / "store").chmod(0o777)


REFUSED = {
    "output folder": ("out/store", lambda place: (place / "out").mkdir(), [], "store"),
    "output folder of somebody else": ("store", lambda place: (place / "store").mkdir(), [], ".work"),
    "store of somebody else": ("store", give_store, ["--overwrite"], "store"),
    "hidden output folder": ("out/store", lambda place: (place / "out").mkdir(mode=0o700), [], "store"),
    "input": ("/tmp/-", lambda place: make_unreadable(place / "a.jsonl"), [], "a.jsonl"),
    "tokenizer": ("/tmp/-", lambda place: make_unreadable(place / "tokenizer" / "tokenizer.json"), [], "tokenizer"),
    "pipeline": ("/tmp/-", lambda place: make_unreadable(place / "pipeline.json"), [], "pipeline.json"),
}


@as_root
@pytest.mark.parametrize("name", REFUSED)
def test_what_may_not_be_read_or_written(inputs, name):
    output, prepare, options, where = REFUSED[name]
    prepare(inputs)
    refused = as_nobody("preprocess", "-o", inputs / output, "-c", inputs / "pipeline.json", *options)
    assert refused.returncode == 1, refused.stderr
    assert refused.stderr.startswith("error: "), refused.stderr
    assert "Traceback" not in refused.stderr
    assert "Permission denied" in refused.stderr
    assert where in re.search(r"where: (.*)", refused.stderr)[1]
    if (inputs / "store" / "manifest.json").exists():
        assert TokenStore.open(inputs / "store", split=None).verify() == []
    assert not Path("/tmp/-").exists()


@as_root
def test_a_folder_that_may_not_be_read(inputs):
    """It is no empty folder: neither when it is named, nor below one, nor where a glob comes by."""
    (inputs / "text" / "secret").mkdir(parents=True)
    shutil.copy(inputs / "a.jsonl", inputs / "text" / "a.jsonl")
    (inputs / "text" / "secret").chmod(0o711)
    (inputs / "pipeline.json").write_text(
        (inputs / "pipeline.json").read_text().replace('"inputs": [', '"inputs": []}, "data": {"inputs": [')
    )
    for path in ("text/secret", "text", "text/**/*.jsonl", "text/secret/*.jsonl"):
        refused = as_nobody("preprocess", inputs / path, "-o", "/tmp/-", "-c", inputs / "pipeline.json", "--dry-run")
        assert refused.returncode == 1, path
        check_told(refused.stderr, "error: an input folder cannot be read\n", f"{inputs}/text/secret\n")


@as_root
def test_a_finished_store_and_its_input_may_be_read_only(inputs, disk, tmp_path):
    mounted = disk(1 << 20)
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


CHANGED, GONE = "an input file changed after the run was planned", "an input file cannot be opened"
CHANGES = {
    "truncated": (truncate, CHANGED),
    "grown": (grow, CHANGED),
    "replaced": (replaced_by(b'{"text": "another"}\n'), CHANGED),
    "other content of the same size": (overwrite_in_place, CHANGED),
    "another time": (touch, CHANGED),
    "gone": (Path.unlink, GONE),
    "a folder": (become_a_folder, "an input file"),
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
    assert expanded(tmp_path / pattern, "jsonl") == sorted(wanted, key=str.encode)


def expanded(path: Path, format_name: str = "auto") -> list[str]:
    spec = SimpleNamespace(path=str(path), format=format_name, domain=None, fields={})
    try:
        return [file.url for file in expand_inputs([spec])]
    except InputError as error:
        assert error.what == "no file matches a pattern"
        return []


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
    assert stat.S_ISDIR((inputs / "many").stat().st_mode)
    assert issubclass(StoreError, AstraiError)
