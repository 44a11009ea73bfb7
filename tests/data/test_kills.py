"""Kills: at every step and at random moments, of all processes or one; signals, locks, clocks, and what is left."""

import contextlib
import json
import multiprocessing
import os
import pty
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from astrai_data import Pipeline, PipelineConfig, TokenStore
from astrai_data.run.executor import _work
from astrai_data.run.lease import is_alive, read_lock
from astrai_data.run.processes import boot_id, is_running, process_start
from astrai_data.store import is_temporary

from .running import TEXT_CONFIG, astrai, command, digests, write_config, write_jsonl
from .toys import write_bpe_tokenizer

ROOT = Path(__file__).parents[2]
FILE_BYTES = 33 << 20  # above 32 MiB: a task of its own
PATIENCE_S = 60


# Kills before every step: a run inside a forked child that ends itself before its n-th change of the file system.


CHANGES = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link")


def kill_before(step: int, store: str) -> None:
    """Make this process kill itself before the `step`-th change below `store`."""
    count = 0

    def hear(event: str, arguments: tuple) -> None:
        nonlocal count
        if event not in CHANGES or (event == "open" and not (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR)):
            return
        if store in map(os.fsdecode, (path for path in arguments[:2] if isinstance(path, str | bytes | os.PathLike))):
            return  # the store's own folder is made before anything else
        if any(str(path).startswith(store) for path in arguments[:2]):
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hear)


def serve_forks() -> None:
    """Read jobs from standard input, one JSON a line; run each in a child and answer its exit status."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os._exit(do(**json.loads(line)))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def do(step: int, config: dict, output: str, options: dict) -> int:
    kill_before(step, output)
    try:
        Pipeline(PipelineConfig.from_dict(config), [], output).run(**options)
    except Exception as error:
        print(error, file=sys.stderr)
        return 1
    return 0


class Forks:
    """A process that has everything imported and forks a run in 50 ms."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from tests.data.test_kills import serve_forks; serve_forks()"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, step: int, output: Path, **job) -> int:
        print(json.dumps({"step": step, "output": str(output)} | job), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


@pytest.fixture(scope="module")
def forks():
    forks = Forks()
    yield forks
    forks.close()


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Small inputs; each has a domain of its own and thereby is a task of its own."""
    root = tmp_path_factory.mktemp("small")
    for name in "abc":
        write_jsonl(root / f"{name}.jsonl", [{"text": f"{name} {i} " * (i % 7)} for i in range(40)] + [5])
    shutil.copy(root / "a.jsonl", root / "renamed.jsonl")
    write_bpe_tokenizer(root / "tokenizer")
    return root


def job(small: Path, files: str = "a b", length: int = 64, mode: str = "doc_reset", **options) -> dict:
    inputs = [{"path": str(small / f"{name}.jsonl"), "domain": name[0]} for name in files.split()]
    config = TEXT_CONFIG | {
        "data": {"inputs": inputs},
        "tokenizer": {"path": str(small / "tokenizer"), "backend": "tokenizers"},
        "preprocessing": {"max_packed_len": length},
        "output": {"position_ids_mode": mode},
        "run": {"max_reject_ratio": 1.0},
    }
    return {"config": config, "options": options}


TRANSITIONS = {
    "first run": (None, {}),
    "overwrite with another configuration": ({"length": 32}, {"overwrite": True}),
    "overwrite with less": ({"files": "a b c"}, {"overwrite": True}),
    "overwrite with the same": ({}, {"overwrite": True}),
    "overwrite with the same under another name": ({"files": "renamed b"}, {"overwrite": True}),
    "update": ({"files": "b"}, {"update": True}),
    "another way to count positions": ({"mode": "continuous"}, {}),
}


def facts(store: Path) -> dict:
    """What a store says of itself, wherever it keeps its tables."""
    opened = TokenStore.open(store, split=None)
    manifest = opened.manifest
    return {
        "hashes": (manifest.config_hash, manifest.plan_hash, manifest.position_ids_mode),
        "tables": {name: entry["sha256"] for name, entry in manifest.tables.items()},
        "inputs": opened.table("inputs")["name"].to_pylist(),
        "totals": manifest.totals,
    }


def check_kills(forks: Forks, small: Path, tmp_path: Path, transition: str, first: int, stride: int) -> int:
    """Kill the transition before the steps `first`, `first + stride`, ...; returns how many kills there were."""
    before, options = TRANSITIONS[transition]
    new, wanted = job(small, **options), tmp_path / "new"
    assert forks.run(0, wanted, **job(small)) == 0
    allowed = [facts(wanted)]
    if before is not None:
        assert forks.run(0, tmp_path / "old", **job(small, **before)) == 0
        allowed.append(facts(tmp_path / "old"))
    for number in range(1_000):
        store = tmp_path / f"killed-{number}"
        if before is not None:
            shutil.copytree(tmp_path / "old", store)
        code = forks.run(first + number * stride, store, **new)
        if before is not None or (store / "manifest.json").exists():
            assert TokenStore.open(store, split=None).verify() == [], number
            assert facts(store) in allowed, number
        if code == 0:
            return number
        assert code == -signal.SIGKILL
        assert forks.run(0, store, **new) == 0
        assert digests(store) == digests(wanted), number
        assert TokenStore.open(store, split=None).verify() == []
        shutil.rmtree(store)
    raise AssertionError("the run never ended")


@pytest.mark.parametrize(("first", "transition"), list(enumerate(TRANSITIONS, 21)))
def test_kills_before_some_steps(forks, small, tmp_path, transition, first):
    assert check_kills(forks, small, tmp_path, transition, first, 29) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("transition", TRANSITIONS)
def test_kills_before_every_step(forks, small, tmp_path, transition):
    print(transition, check_kills(forks, small, tmp_path, transition, 1, 1))


# Real processes: several workers on tasks that last.


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Inputs of 33 MiB, each a task of its own, with the store of an undisturbed run; most bytes are not tokenized."""
    root = tmp_path_factory.mktemp("large")
    (root / "text").mkdir()
    for name in "ab":
        words = [f'{{"text": "{name} {i} {"the quick brown fox " * (i * 7919 % 40)}"' for i in range(1000)]
        block = "".join(f'{line}, "unread": "{"x" * 4000}"}}\n' for line in words)
        (root / "text" / f"{name}.jsonl").write_text(block * (FILE_BYTES // len(block) + 1))
    write_config(root / "pipeline.json", TEXT_CONFIG | {"preprocessing": {"max_packed_len": 512}})
    write_config(root / "other.json", TEXT_CONFIG | {"preprocessing": {"max_packed_len": 256}})
    write_bpe_tokenizer(root / "tokenizer")
    astrai(*preprocess(root, root / "store"), "--workers", 2, check=True)
    return root


def preprocess(root: Path, store: Path, config: str = "pipeline.json") -> list:
    return ["preprocess", root / "text", "-o", store, "-c", root / config, "--tokenizer", root / "tokenizer"]


@contextlib.contextmanager
def running(root: Path, store: Path, *options: object):
    """A run of two workers in a session of its own; whatever is left of it at the end is killed."""
    process = subprocess.Popen(
        command(*preprocess(root, store), "--workers", 2, *options),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        yield process
    finally:
        for one in session(process.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.communicate()


def session(leader: int) -> list[psutil.Process]:
    """Every process of a session, orphans included, that is no zombie."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def workers(coordinator: int) -> list[psutil.Process]:
    """The worker processes of a run: children of its fork server."""
    try:
        helpers = psutil.Process(coordinator).children()
        return [worker for helper in helpers for worker in helper.children()]
    except psutil.NoSuchProcess:
        return []


def wait_for(condition: Callable[[], object]) -> object:
    """Poll until the condition holds; its value."""
    end = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)
    return value


def leftovers(store: Path) -> list[str]:
    """Temporary files, and locks."""
    return [path.name for path in store.rglob("*") if path.name.endswith(".tmp") or "lock" in path.name]


def busy(process: subprocess.Popen, store: Path) -> list[psutil.Process]:
    """Wait until a worker writes; all workers."""
    wait_for(lambda: any(store.glob("data/*")) or process.poll() is not None)
    assert process.poll() is None, process.stderr.read()
    return workers(process.pid)


def finish(root: Path, store: Path) -> None:
    """Run the same again; the store must be that of the undisturbed run."""
    Pipeline(PipelineConfig.from_file(root / "pipeline.json"), [root / "text"], store, root / "tokenizer").run()
    assert digests(store) == digests(root / "store")


def test_workers_end_when_the_coordinator_is_killed(large, tmp_path):
    store = tmp_path / "store"
    with running(large, store) as process:
        assert len(busy(process, store)) == 2
        process.kill()
        begin = time.monotonic()
        wait_for(lambda: not session(process.pid))
        assert time.monotonic() - begin < 5
        finish(large, store)


def test_an_orphan_that_wakes_up_later_does_no_harm(large, tmp_path):
    store = tmp_path / "store"
    with running(large, store) as process:
        orphans = busy(process, store)
        for orphan in orphans:
            orphan.suspend()
        process.kill()
        process.wait()
        finish(large, store)
        for orphan in orphans:
            orphan.resume()
        wait_for(lambda: not session(process.pid))
    # before it ends it may have begun a temporary file, which nothing reads and the next run removes
    left = {path: digest for path, digest in digests(store).items() if not is_temporary(Path(path).name)}
    assert left == digests(large / "store")
    assert TokenStore.open(store, split=None).verify() == []


@pytest.mark.parametrize("heard", [b"", b"\0\0", b"\0\1\0\0half of a job"])
def test_a_worker_whose_run_ends_while_it_is_told_the_job_ends_quietly(capfd, heard):
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    worker = context.Process(target=_work, args=(theirs,))
    worker.start()
    theirs.close()
    os.write(ours.fileno(), heard)
    ours.close()
    worker.join(PATIENCE_S)
    assert worker.exitcode == 0
    assert capfd.readouterr().err == ""


def test_a_worker_that_is_killed_once_costs_only_its_task(large, tmp_path):
    store = tmp_path / "store"
    with running(large, store) as process:
        busy(process, store)[0].kill()
        told = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 0, told
    assert "a worker process died (killed: out of memory?); its task is given once more: " in told
    assert digests(store) == digests(large / "store")


def test_a_worker_that_dies_twice_ends_the_run(large, tmp_path):
    store = tmp_path / "store"
    with running(large, store) as process:
        while process.poll() is None:
            for worker in workers(process.pid):
                with contextlib.suppress(psutil.NoSuchProcess):
                    worker.kill()
        told = process.stderr.read()
        assert process.returncode == 1
        assert "error: a worker process died twice on the same task\n  where: " in told
        assert "  got: killed: out of memory?\n" in told
        assert "fewer workers" in told
        assert "Traceback" not in told
        assert not session(process.pid)
        assert leftovers(store) == []
        finish(large, store)


@pytest.mark.parametrize(
    ("number", "send"),
    [
        (signal.SIGINT, os.killpg),
        (signal.SIGTERM, os.kill),
        pytest.param(signal.SIGINT, os.kill, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, os.killpg, marks=pytest.mark.slow),
    ],
)
def test_a_stop_is_clean(large, tmp_path, number, send):
    store = tmp_path / "store"
    with running(large, store) as process:
        busy(process, store)
        send(process.pid, number)
        told = process.communicate(timeout=PATIENCE_S)[1]
        assert process.returncode == 130
        assert "the same command goes on from here" in told
        assert "Traceback" not in told
        assert not session(process.pid)
        assert leftovers(store) == []
        finish(large, store)


def test_ctrl_c_on_a_terminal(large, tmp_path):
    store = tmp_path / "store"
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(ROOT)
        os.execv(sys.executable, command(*preprocess(large, store), "--workers", 2))
    wait_for(lambda: any(store.glob("data/*")))
    os.write(terminal, b"\x03")
    shown = b""
    with contextlib.suppress(OSError):  # the terminal closes
        while piece := os.read(terminal, 4096):
            shown += piece
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    assert b"goes on from here" in shown
    assert b"Traceback" not in shown
    assert leftovers(store) == []


# The lock.


def test_two_runs_at_once_and_a_stale_lock(large, tmp_path):
    store = tmp_path / "store"
    with running(large, store) as first:
        busy(first, store)
        first.send_signal(signal.SIGSTOP)
        second = astrai(*preprocess(large, store))
        assert second.returncode == 1
        assert "error: another run is working on this store\n" in second.stderr
        assert f"process {first.pid} on {socket.gethostname()}" in second.stderr
        first.kill()
        wait_for(lambda: psutil.Process(first.pid).status() == psutil.STATUS_ZOMBIE)  # as in a container without init
        finish(large, store)


def test_a_run_that_lost_its_lock_does_not_commit(large, tmp_path):
    store = tmp_path / "store"
    with running(large, store) as process:
        busy(process, store)
        process.send_signal(signal.SIGSTOP)
        lock = store / ".work" / "lock.json"
        lock.write_text(json.dumps(read_lock(lock) | {"host": "elsewhere", "nonce": "another", "pid": 77}))
        process.send_signal(signal.SIGCONT)
        told = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 1
    assert "error: another run took this store over" in told
    assert "process 77 on elsewhere" in told
    assert read_lock(lock)["nonce"] == "another"
    assert not (store / "manifest.json").exists()


@pytest.mark.parametrize(
    ("changed", "alive"),
    [
        ({}, True),
        ({"renewed_unix_s": 0.0}, True),  # the clock jumped, or the run was suspended: its process lives
        ({"renewed_unix_s": 4e9}, True),
        ({"pid_start": 1.0}, False),  # another process has taken the number
        ({"pid": 2**22 - 1}, False),
        ({"pid": -1}, False),
        ({"pid": None}, False),
        ({"boot_id": "another"}, True),  # as on another host: renewed a moment ago
        ({"host": "another"}, True),
        ({"host": "another", "renewed_unix_s": 0.0}, False),
        ({"host": "another", "renewed_unix_s": None}, False),
    ],
)
def test_who_is_alive(changed, alive):
    pid = os.getpid()
    lock = {"host": socket.gethostname(), "boot_id": boot_id(), "pid": pid, "pid_start": process_start(pid)}
    assert is_alive(lock | {"nonce": "n", "renewed_unix_s": time.time()} | changed) == alive


def test_a_zombie_is_dead():
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    start = wait_for(lambda: process_start(child.pid))
    wait_for(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE)
    assert not is_running(child.pid, start)
    child.wait()
    assert not is_running(child.pid, start)


SHIFTED = """
import time
now, now_ns = time.time, time.time_ns
time.time = lambda: now() + {hours} * 3600
time.time_ns = lambda: now_ns() + {hours} * 3600 * 10**9
"""


@pytest.mark.parametrize("hours", [7, pytest.param(-7, marks=pytest.mark.slow)])
def test_the_clock_is_set_while_a_run_is_under_way(large, tmp_path, hours):
    """The second run sees another time, and a boot at another time, as the kernel tells it after the clock was set."""
    statistics = Path("/proc/stat").read_text().splitlines(keepends=True)
    booted = int(next(line for line in statistics if line.startswith("btime ")).split()[1])
    moved = [f"btime {booted + hours * 3600}\n" if line.startswith("btime ") else line for line in statistics]
    (tmp_path / "stat").write_text("".join(moved))
    (tmp_path / "sitecustomize.py").write_text(SHIFTED.format(hours=hours))
    script = f'mount --bind {tmp_path}/stat /proc/stat && exec "$@"'
    store = tmp_path / "store"
    shifted = ["unshare", "--mount", "sh", "-c", script, "sh", *command(*preprocess(large, store), "--workers", 1)]
    if os.getuid() != 0 or subprocess.run([*shifted[:6], "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount")
    options = {"capture_output": True, "text": True, "env": os.environ | {"PYTHONPATH": str(tmp_path)}, "cwd": ROOT}
    with running(large, store) as first:
        busy(first, store)
        first.send_signal(signal.SIGSTOP)
        second = subprocess.run(shifted, check=False, timeout=PATIENCE_S, **options)
        assert second.returncode == 1, second.stderr
        assert "another run is working on this store" in second.stderr
        first.kill()
        third = subprocess.run(shifted, check=False, timeout=PATIENCE_S, **options)
    assert third.returncode == 0, third.stderr
    assert digests(store) == digests(large / "store")


# Random moments.


@pytest.mark.slow
def test_ten_kills_at_random_moments(large, tmp_path):
    """Ten kills of the whole group, each after a time between none and that of an undisturbed run."""
    seed = random.randrange(2**32)
    print("seed", seed)
    chance, store = random.Random(seed), tmp_path / "store"
    begin = time.monotonic()
    astrai(*preprocess(large, tmp_path / "timed"), "--workers", 2, check=True)
    whole_s = time.monotonic() - begin
    kills = 0
    while kills < 10:
        with running(large, store) as process:
            time.sleep(chance.uniform(0, whole_s))
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                kills += 1
        if (store / "manifest.json").exists():
            assert TokenStore.open(store, split=None).verify() == []
            finish(large, store)
            shutil.rmtree(store)
    finish(large, store)


@pytest.mark.slow
def test_overwrite_killed_at_random_moments(large, tmp_path):
    seed = random.randrange(2**32)
    print("seed", seed)
    chance, store, other = random.Random(seed), tmp_path / "store", tmp_path / "other"
    begin = time.monotonic()
    astrai(*preprocess(large, other, "other.json"), "--workers", 2, check=True)
    whole_s = time.monotonic() - begin
    ids = {(large / "store" / "manifest.json").read_bytes(): "new", (other / "manifest.json").read_bytes(): "old"}
    seen, kills = set(), 0
    while kills < 10:
        if not store.exists():
            shutil.copytree(other, store)
        with running(large, store, "--overwrite") as process:
            time.sleep(chance.uniform(0, 1.2 * whole_s))
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                kills += 1
        found = ids[(store / "manifest.json").read_bytes()]
        shown = astrai("inspect", store, "--verify")
        assert (shown.returncode, shown.stdout[:3]) == (0, "ok:"), shown.stdout + shown.stderr
        seen.add(found)
        if found == "new":
            finish(large, store)
            shutil.rmtree(store)
    astrai(*preprocess(large, store), "--workers", 2, "--overwrite", check=True)
    assert digests(store) == digests(large / "store")
    print("seen", sorted(seen))


# What a killed run leaves.


def test_what_killed_runs_left_is_swept(small, tmp_path):
    wanted, store = tmp_path / "wanted", tmp_path / "store"
    todo = job(small)
    Pipeline(PipelineConfig.from_dict(todo["config"]), [], wanted).run()
    (key, *_) = (path.name for path in (wanted / "data").iterdir())
    left = [".manifest.json.7-ab.tmp", f"data/{key}/.part-000.arrow.7-ab.tmp", "rejects/.x.jsonl.zst.7-ab.tmp"]
    left += ["meta/0123/tables/.rows.parquet.7-ab.tmp", "data/dead/part-000.arrow", ".work/.plan.json.7-ab.tmp"]
    left += [".work/lock-77.json", ".work/dead-77.json", f".work/done/.{key}.json.7-ab.tmp", ".work/lock.json"]
    for name in left:
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_text("x")
    Pipeline(PipelineConfig.from_dict(todo["config"]), [], store).run()
    assert digests(store) == digests(wanted)
