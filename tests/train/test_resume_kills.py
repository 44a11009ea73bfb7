"""Real processes that are stopped at the worst moments and go on: the bits of the run that was left alone."""

import os
import signal
import subprocess
import time

import pytest
import torch

from astrai_train.checkpoint.resume import find_saved
from astrai_train.models.finding import all_checkpoints
from tests.train.small_runs import TRAIN, bits, losses, metrics, run, same_bits, settings, write_model

RUN = {"epochs": 3, "accumulate": 2, "warmup": 4}
ENVIRONMENT = {"ASTRAI_KERNELS": "torch", "OMP_NUM_THREADS": "1"}
DEADLINE_S = 90


def start(folder, store, model, **changes) -> subprocess.Popen:
    """`astrai train --resume` in its own process group, as a terminal starts it."""
    given = settings(folder, store, model=model, **RUN | changes)
    options = [word for key, value in given.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    return subprocess.Popen([*TRAIN, *options, "--resume", "-q"], env=os.environ | ENVIRONMENT, start_new_session=True)


def wait_for(process: subprocess.Popen, condition) -> bool:
    """Poll without a pause, since a checkpoint is written in milliseconds; False if the process has ended before."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        if process.poll() is not None:
            return False
    return True


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """A model that draws random numbers in every step."""
    return str(write_model(tmp_path_factory.mktemp("noisy") / "model", neftune_alpha=5.0))


@pytest.fixture(scope="module")
def whole(tmp_path_factory, text_store, noisy):
    """The run that nobody stops, in this process."""
    folder, before = tmp_path_factory.mktemp("whole"), torch.get_num_threads()
    torch.set_num_threads(1)
    assert run(folder, text_store, model=noisy, **RUN).reason == "finished"
    torch.set_num_threads(before)
    return folder


def finish(folder, store, model, workers: int, **changes) -> None:
    assert start(folder, store, model, workers=workers, **changes).wait(DEADLINE_S) == 0


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_kill_in_the_middle_of_writing_a_checkpoint(tmp_path, text_store, noisy, whole, workers):
    often = {"checkpoint_every": 1, "keep": 2, "workers": workers}

    def is_writing() -> bool:
        """Some files of the third checkpoint or a later one are there, its name is not."""
        begun = [path for path in (tmp_path / "run").glob(".epoch_*.tmp") if any(path.glob("*.json"))]
        return bool(begun) and len(all_checkpoints(tmp_path / "run")) >= 2

    for _ in range(5):  # a rename may come between the look and the kill; then once more
        process = start(tmp_path, text_store, noisy, **often)
        assert wait_for(process, is_writing)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(DEADLINE_S)
        if list((tmp_path / "run").glob(".epoch_*.tmp")):
            break
    assert list((tmp_path / "run").glob(".epoch_*.tmp"))
    finish(tmp_path, text_store, noisy, workers)
    assert same_bits(bits(tmp_path), bits(whole))
    assert losses(tmp_path) == losses(whole)
    assert not list((tmp_path / "run").glob(".epoch_*"))


@pytest.mark.parametrize("workers", [1])
def test_ctrl_c_at_a_terminal_and_going_on(tmp_path, text_store, noisy, whole, workers):
    process = start(tmp_path, text_store, noisy, workers=workers)
    assert wait_for(process, lambda: (tmp_path / "run" / "metrics.jsonl").exists() and len(metrics(tmp_path)) >= 2)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(DEADLINE_S) == 130
    assert 2 <= metrics(tmp_path)[-1]["step"] < metrics(whole)[-1]["step"]
    finish(tmp_path, text_store, noisy, workers)
    assert same_bits(bits(tmp_path), bits(whole))
    assert losses(tmp_path) == losses(whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("delay_s", [0.05, 0.1])
def test_a_signal_to_all_while_the_workers_start(tmp_path, text_store, noisy, number, delay_s):
    given = settings(tmp_path, text_store, model=noisy, workers=2, epochs=100_000)
    options = [word for key, value in given.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    process = subprocess.Popen(
        [*TRAIN, *options], stderr=subprocess.PIPE, text=True, env=os.environ | ENVIRONMENT, start_new_session=True
    )
    with process:
        assert any(line.startswith("output ") for line in process.stderr)
        time.sleep(delay_s)
        os.killpg(process.pid, number)
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, errors
    assert "--resume goes on from here" in errors
    assert "Traceback" not in errors
    assert "Fatal" not in errors
    assert "Aborted" not in errors


def test_ctrl_c_twice_ends_at_once_and_older_checkpoints_stand(tmp_path, text_store, noisy):
    process = start(tmp_path, text_store, noisy, checkpoint_every=2, epochs=100_000)
    assert wait_for(process, lambda: len(all_checkpoints(tmp_path / "run")) >= 2)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
    assert process.wait(DEADLINE_S) == 130
    assert find_saved(tmp_path / "run").step >= 4  # compares every byte
