"""What a hostile user tries with `astrai train`: words and an exit code instead of a traceback, a hang or a loss."""

import json
import os
import resource
import shutil
import signal
import subprocess
import time

import pytest

from astrai_data import TokenStore
from astrai_data.errors import StoreError
from astrai_kernels.errors import KernelArgumentError
from astrai_train.checkpoint.marker import write_marker
from astrai_train.checkpoint.resume import find_saved
from astrai_train.config import TrainConfig
from astrai_train.errors import CheckpointError, TrainConfigError, TrainError
from tests.data.running import TEXT_CONFIG, command, write_config, write_jsonl
from tests.data.toys import write_bpe_tokenizer
from tests.train.small_runs import TRAIN, metrics, names, run, settings, weights

NEEDED = {"data": "store", "model": "nano", "output_dir": "run"}
ENVIRONMENT = {"NO_COLOR": "1", "COLUMNS": "200", "ASTRAI_KERNELS": "torch", "OMP_NUM_THREADS": "1"}


def astrai_train(folder, store, *, max_file_bytes: int | None = None, resume=False, **changes):
    """The command in its own process, which may write no larger file; its exit code and what it said."""
    given = settings(folder, store, **changes)
    options = [word for key, value in given.items() for word in (f"--{key.replace('_', '-')}", str(value))]

    def limit() -> None:
        if max_file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_bytes, max_file_bytes))

    done = subprocess.run(
        [*TRAIN, *options, *(["--resume"] if resume else [])],
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=limit,
        env=os.environ | ENVIRONMENT,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("key", "value"),
    [("seed", 2**63), ("seed", -(2**63) - 1), ("data", ""), ("model", ""), ("output_dir", "")],
)
def test_values_that_no_run_can_use(key, value):
    with pytest.raises(TrainConfigError) as caught:
        TrainConfig(**NEEDED | {key: value})
    assert key in str(caught.value.where)


@pytest.mark.parametrize("seed", [-5, 2**63 - 1, -(2**63)])
def test_any_seed_of_64_bits_trains(tmp_path, text_store, seed):
    assert run(tmp_path, text_store, max_steps=1, seed=seed).step == 1


@pytest.mark.parametrize("size", [{"batch_tokens": 2**70}, {"batch_tokens": None, "rows_per_batch": 2**40}])
def test_a_batch_that_is_larger_than_the_data_is_all_of_it(tmp_path, text_store, size):
    outcome = run(tmp_path, text_store, epochs=2, **size)
    assert outcome.step == 2
    assert {line["labels"] for line in metrics(tmp_path)} == {TokenStore.open(text_store).num_trained}
    assert run(tmp_path, text_store, epochs=3, resume=True, **size).step == 3


@pytest.mark.parametrize(
    ("max_file_bytes", "file"), [(20_000, "model.safetensors"), (300_000, "optimizer.safetensors")]
)
def test_a_full_disk_says_so_and_older_checkpoints_stand(tmp_path, text_store, max_file_bytes, file):
    run(tmp_path, text_store, max_steps=2)
    code, said = astrai_train(tmp_path, text_store, max_steps=4, resume=True, max_file_bytes=max_file_bytes)
    assert code == 1
    assert all(word in said for word in ("cannot be written", file, "File too large")), said
    assert names(tmp_path) == ["epoch_0_step_2"]
    assert find_saved(tmp_path / "run").step == 2
    assert not list((tmp_path / "run").glob(".epoch*"))


@pytest.mark.parametrize("trouble", ["folder", "full"])
def test_metrics_that_cannot_be_written(tmp_path, text_store, trouble):
    if trouble == "folder":
        (tmp_path / "run" / "metrics.jsonl").mkdir(parents=True)
    limit = 200 if trouble == "full" else None
    code, said = astrai_train(tmp_path, text_store, max_steps=4, resume=True, max_file_bytes=limit)
    assert code == 1
    assert "the metrics cannot be written" in said
    assert "metrics.jsonl" in said


class Deleting:
    """Deletes the metrics at the second step."""

    def __init__(self, output):
        self.output = output

    def on_step_end(self, trainer, report):
        if report.step == 2:
            for path in self.output.glob("*.jsonl"):
                path.unlink()


def test_metrics_that_vanish_are_missed(tmp_path, text_store):
    with pytest.raises(StoreError, match="metrics cannot be written"):
        run(tmp_path, text_store, max_steps=4, callbacks=[Deleting(tmp_path / "run")])


def test_kernels_that_only_evaluations_would_miss_are_missed_at_once(tmp_path, text_store, monkeypatch):
    monkeypatch.setenv("ASTRAI_KERNELS", "bogus")
    with pytest.raises(KernelArgumentError, match="bogus"):
        run(tmp_path, text_store, max_steps=3, validate_every=2)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_store_is_no_folder_for_a_run(tmp_path, text_store):
    before = sorted(path.name for path in text_store.iterdir())
    with pytest.raises(TrainError, match="is a token store"):
        run(tmp_path, text_store, max_steps=1, output_dir=str(text_store))
    assert sorted(path.name for path in text_store.iterdir()) == before


def test_resuming_nothing_says_where_nothing_was(tmp_path):
    done = subprocess.run(
        [*TRAIN, "--resume", "-o", str(tmp_path / "nothing")],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | ENVIRONMENT,
        check=False,
    )
    assert done.returncode == 2
    assert all(word in done.stderr for word in ("--data, --model", "has no checkpoint"))


STATES = {
    "no object": lambda state: 3,
    "no step": lambda state: state | {"step": "two"},
    "no place in the data": lambda state: {key: value for key, value in state.items() if key != "data"},
    "no random numbers": lambda state: state | {"random": None},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory, text_store):
    folder = tmp_path_factory.mktemp("trained")
    run(folder, text_store, max_steps=2)
    return folder


@pytest.mark.parametrize("case", STATES)
def test_a_state_that_somebody_wrote_over(tmp_path, text_store, trained, case):
    """Its marker agrees, its content is none."""
    shutil.copytree(trained / "run", tmp_path / "run")
    checkpoint = tmp_path / "run" / "epoch_0_step_2"
    path = checkpoint / "training" / "state.json"
    path.write_text(json.dumps(STATES[case](json.loads(path.read_text()))))
    (checkpoint / "training" / "complete.json").unlink()
    write_marker(checkpoint)
    with pytest.raises(CheckpointError) as caught:
        run(tmp_path, text_store, max_steps=3, resume=True)
    assert "state.json" in str(caught.value.where)
    assert caught.value.hint


def test_a_run_in_bfloat16_learns_goes_on_and_keeps_float32_weights(tmp_path, text_store):
    run(tmp_path, text_store, epochs=2, dtype="bfloat16")
    run(tmp_path, text_store, epochs=6, dtype="bfloat16", resume=True)
    losses = [line["loss"] for line in metrics(tmp_path)]
    assert losses[-1] < 0.6 * losses[0]
    assert {str(value.dtype) for value in weights(tmp_path).values()} == {"torch.float32"}


def test_a_store_whose_making_was_killed(tmp_path, text_store):
    """A real `astrai preprocess`, killed as soon as its folder is there."""
    source = write_jsonl(tmp_path / "in.jsonl", [{"text": f"some words {i} " * 9} for i in range(20_000)])
    config = write_config(tmp_path / "pipeline.json", TEXT_CONFIG)
    tokenizer = write_bpe_tokenizer(tmp_path / "tokenizer")
    making = command("preprocess", source, "-o", tmp_path / "half", "-c", config, "--tokenizer", tokenizer)
    process = subprocess.Popen(making, start_new_session=True, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (tmp_path / "half").exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
    code, said = astrai_train(tmp_path, tmp_path / "half")
    assert code == 1
    assert "not finished" in said, said
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
