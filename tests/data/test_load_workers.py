"""Worker processes: they die loudly, end quietly, and leave nothing behind (cases/data.md, 40; weakness 38)."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest
import torch

from astrai_data.errors import StoreError
from astrai_data.load import LoadError, PackedLoader
from tests.data.loading import numbered, plain, take, write_store


@pytest.fixture
def store(tmp_path):
    return write_store(tmp_path / "store", [numbered([9] * 200)], strategy="simple", capacity=None)


def load(store, **options) -> PackedLoader:
    return PackedLoader(store, **({"rows_per_batch": 1, "seed": 3, "workers": 2} | options))


def pids(loader: PackedLoader) -> list[int]:
    return [process.pid for process in loader._batches._processes]


def wait_until_gone(numbers: list[int]) -> None:
    deadline = time.monotonic() + 30
    while any(psutil.pid_exists(n) and psutil.Process(n).status() != psutil.STATUS_ZOMBIE for n in numbers):
        assert time.monotonic() < deadline, "worker processes live on"
        time.sleep(0.05)


def run_script(tmp_path, body: str, **options) -> subprocess.Popen:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(body))
    command = [sys.executable, script, tmp_path / "store"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


HEAD = """
    import sys
    from astrai_data.load.order import Sequential
    from astrai_data.load.rows import PackedRows
    from astrai_data.load.schedule import Cursor, Schedule
    from astrai_data.load.stream import BatchStream
    from astrai_data.load.workers import Workers
    from astrai_data.store import TokenStore

    def start():  # what a loader does, without the seconds that importing torch takes
        rows = PackedRows(TokenStore.open(sys.argv[1]))
        workers = Workers(BatchStream(rows, Schedule(Sequential(0), len(rows), 1)), Cursor(), 2, 2)
        next(workers)
        print(*(process.pid for process in workers._processes), flush=True)
        return workers
"""


def test_a_killed_worker_is_an_error_and_iteration_goes_on(store):
    loader = load(store)
    seen = take(loader, 4)
    os.kill(pids(loader)[1], signal.SIGKILL)
    with pytest.raises(LoadError, match="a loader worker ended before its time") as caught:
        seen.extend(plain(batch) for batch in loader)  # what it had ready may still arrive
    assert "killed by SIGKILL" in caught.value.got
    expected = take(load(store, workers=0), len(seen) + 100)
    assert seen == expected[: len(seen)]
    assert seen + take(loader, 100) == expected
    loader.close()


def test_what_a_worker_raises_is_raised_here(store, tmp_path):
    loader = load(store)
    write_store(tmp_path / "store", [numbered([5] * 20)])
    with pytest.raises(StoreError, match="replaced while it was in use"):
        next(loader)


def test_a_damaged_store_is_the_same_error_with_and_without_workers(store):
    for file in store.root.rglob("part-*.arrow"):
        file.unlink()
    for workers in (0, 2):
        with pytest.raises(StoreError, match="cannot be read"):
            next(load(store, workers=workers))


def test_close_ends_the_workers(store):
    loader = load(store)
    next(loader)
    numbers = pids(loader)
    loader.close()
    wait_until_gone(numbers)
    next(loader)
    numbers = pids(loader)
    del loader
    wait_until_gone(numbers)


def test_the_loader_draws_no_random_numbers(store):
    """Or dropout would depend on the number of workers."""
    before = torch.get_rng_state()
    loader = load(store)
    take(loader, 3)
    loader.close()
    take(load(store, workers=0), 3)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_travels_to_a_worker_is_an_address(store):
    loader = load(store, workers=0)
    next(loader)
    assert len(pickle.dumps(loader._stream)) < 1200 + len(str(store.root))


def test_leaving_without_close_does_not_hang(tmp_path, store):
    body = """
        import sys
        from astrai_data.load import PackedLoader
        from astrai_data.store import TokenStore

        if __name__ == "__main__":
            loader = PackedLoader(TokenStore.open(sys.argv[1]), rows_per_batch=1, seed=0, workers=2)
            next(loader)
            print(*(process.pid for process in loader._batches._processes))
    """
    with run_script(tmp_path, body) as script:
        out, err = script.communicate(timeout=60)
    assert (script.returncode, err) == (0, "")
    wait_until_gone([int(number) for number in out.split()])


def test_workers_end_with_a_killed_trainer(tmp_path, store):
    body = HEAD + "\n    if __name__ == '__main__':\n        workers = start()\n        sys.stdin.read()\n"
    with run_script(tmp_path, body, stdin=subprocess.PIPE) as script:
        numbers = [int(number) for number in script.stdout.readline().split()]
        assert len(numbers) == 2
        script.kill()
    wait_until_gone(numbers)


def test_an_interrupt_is_quiet(tmp_path, store):
    """Ctrl-C reaches the whole process group; only the trainer says so."""
    body = HEAD + "\n    if __name__ == '__main__':\n        for batch in start():\n            pass\n"
    with run_script(tmp_path, body, start_new_session=True) as script:
        numbers = [int(number) for number in script.stdout.readline().split()]
        os.killpg(script.pid, signal.SIGINT)
        _, err = script.communicate(timeout=60)
    assert err.count("Traceback") == 1
    assert "KeyboardInterrupt" in err
    wait_until_gone(numbers)


def test_a_script_without_a_guard_is_told(tmp_path, store):
    with run_script(tmp_path, HEAD + "\n    start()\n") as script:
        _, err = script.communicate(timeout=60)
    assert script.returncode == 1
    assert "lacks `if __name__ == '__main__':`" in err


def test_workers_import_no_torch():
    code = "import sys, astrai_data.load.workers; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
