"""A signal in the middle of a step: the step is undone, and a run that goes on ends with the bits of one left alone."""

import os
import signal
import subprocess
import time

import pytest

from astrai_train.checkpoint.resume import find_saved
from astrai_train.stop import STOPPING
from astrai_train.strategies import NextToken
from tests.train.small_runs import (
    TRAIN,
    bits,
    losses,
    make_text_store,
    metrics,
    run,
    same_bits,
    settings,
    write_model,
)

RUN = {"epochs": 3, "accumulate": 6, "warmup": 2}
ENVIRONMENT = {"ASTRAI_KERNELS": "torch", "OMP_NUM_THREADS": "1"}
DEADLINE_S = 90


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """A model that draws random numbers in every micro-batch."""
    return str(write_model(tmp_path_factory.mktemp("noisy") / "model", neftune_alpha=5.0))


def signal_at(monkeypatch, method: str, call: int) -> None:
    """Send SIGINT when this method of the loss is called for the n-th time, from 0."""
    original, calls = getattr(NextToken, method), iter(range(10**9))

    def signalling(*arguments):
        if next(calls) == call:
            signal.raise_signal(signal.SIGINT)
        return original(*arguments)

    monkeypatch.setattr(NextToken, method, signalling)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("method", "call", "step"),
    [("prepare", 2, 0), ("loss_sum", 3, 0), ("prepare", 8, 1), ("loss_sum", 8, 1), ("loss_sum", 11, 2)],
)
def test_a_step_under_way_is_undone(tmp_path, text_store, noisy, monkeypatch, method, call, step, workers):
    """Whether it was reading or computing; after its last micro-batch it is finished."""
    (tmp_path / "whole").mkdir()
    run(tmp_path / "whole", text_store, model=noisy, **RUN)
    with monkeypatch.context() as patch:
        signal_at(patch, method, call)
        outcome = run(tmp_path, text_store, model=noisy, **RUN, workers=workers)
    assert (outcome.reason, outcome.step, len(metrics(tmp_path))) == ("interrupted", step, step)
    run(tmp_path, text_store, model=noisy, **RUN, resume=True)
    assert same_bits(bits(tmp_path), bits(tmp_path / "whole"))
    assert losses(tmp_path) == losses(tmp_path / "whole")


def test_an_evaluation_is_given_up(tmp_path, text_store, monkeypatch):
    """The step before it stands; its line tells no loss of half a split."""
    signal_at(monkeypatch, "loss_sum", 3)  # two steps of a micro-batch, then two batches of the evaluation
    size = {"batch_tokens": None, "rows_per_batch": 1, "validate_every": 2}
    outcome = run(tmp_path, text_store, max_steps=9, **size)
    assert (outcome.reason, outcome.step) == ("interrupted", 2)
    assert "val_loss" not in metrics(tmp_path)[-1]


@pytest.fixture(scope="module")
def long_steps(tmp_path_factory, noisy):
    """A store that is read in two steps of hundreds of micro-batches each, a second or two long."""
    return make_text_store(tmp_path_factory.mktemp("long") / "store", 2000, validation=0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_hears_a_signal_between_micro_batches(tmp_path, long_steps, noisy, number):
    size = {"batch_tokens": None, "rows_per_batch": 1, "accumulate": 400, "epochs": 1}
    given = settings(tmp_path, long_steps, model=noisy, **size)
    options = [
        word for key, value in given.items() if value is not None for word in (f"--{key.replace('_', '-')}", str(value))
    ]
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen([*TRAIN, *options], env=os.environ | ENVIRONMENT, stdout=out, stderr=out)
    deadline = time.monotonic() + DEADLINE_S
    while not ((tmp_path / "run" / "metrics.jsonl").exists() and metrics(tmp_path)):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(number)  # the second step has just begun
    assert process.wait(DEADLINE_S) == 130
    assert STOPPING in log.read_text()
    assert [line["step"] for line in metrics(tmp_path)] == [1]
    assert find_saved(tmp_path / "run").step == 1
    (tmp_path / "whole").mkdir()
    for folder, resume in ((tmp_path, True), (tmp_path / "whole", False)):
        run(folder, long_steps, model=noisy, **size, resume=resume)
    assert same_bits(bits(tmp_path), bits(tmp_path / "whole"))
    assert losses(tmp_path) == losses(tmp_path / "whole")
