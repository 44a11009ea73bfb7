"""Stopping and going on: the same bits as without, whatever stopped the run; and checkpoints that are not whole."""

import shutil
import signal
import subprocess
import time

import pytest

from astrai_data import Pipeline, PipelineConfig, TokenStore
from astrai_train.checkpoint.resume import find_saved
from astrai_train.config import TrainConfig
from astrai_train.errors import CheckpointError, TrainError
from astrai_train.models.finding import all_checkpoints
from astrai_train.models.safetensors_file import SafetensorsFile
from astrai_train.run import plan_run, train
from tests.data.running import TEXT_CONFIG, write_jsonl
from tests.data.toys import write_bpe_tokenizer
from tests.train.small_runs import (
    TRAIN,
    StopAfter,
    make_chat_store,
    metrics,
    names,
    run,
    same_bits,
    settings,
    weights,
    write_model,
)

RUN = {"epochs": 3, "accumulate": 2, "warmup": 4, "validate_every": 5}
TIMES = ("seconds", "tokens_per_s")


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """A model that draws random numbers in every step."""
    return str(write_model(tmp_path_factory.mktemp("noisy") / "model", neftune_alpha=5.0))


@pytest.fixture(scope="module")
def whole(tmp_path_factory, text_store, noisy):
    """The uninterrupted run."""
    import torch

    folder, before = tmp_path_factory.mktemp("whole"), torch.get_num_threads()
    torch.set_num_threads(1)
    outcome = run(folder, text_store, model=noisy, **RUN)
    torch.set_num_threads(before)
    assert outcome.step > 9
    return folder


def without_times(folder) -> list[dict]:
    return [{key: value for key, value in line.items() if key not in TIMES} for line in metrics(folder)]


def assert_same_run(mine, theirs) -> None:
    assert names(mine)[-1] == names(theirs)[-1]
    assert same_bits(weights(mine), weights(theirs))
    one, other = (
        dict(SafetensorsFile(folder / "run" / names(folder)[-1] / "training/optimizer.safetensors").tensors())
        for folder in (mine, theirs)
    )
    assert same_bits(one, other)
    assert without_times(mine) == without_times(theirs)


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("stops", [[5], [1, 2, 8]])
def test_a_run_that_was_stopped_ends_with_the_same_bits(tmp_path, text_store, noisy, whole, workers, stops):
    for stop in stops:
        outcome = run(
            tmp_path, text_store, model=noisy, **RUN, workers=workers, resume=True, callbacks=[StopAfter(stop)]
        )
        assert (outcome.reason, outcome.step) == ("interrupted", stop)
    outcome = run(tmp_path, text_store, model=noisy, **RUN, workers=workers, resume=True)
    assert outcome.reason == "finished"
    assert_same_run(tmp_path, whole)


def test_checkpoints_by_the_clock_change_no_bit(tmp_path, text_store, noisy, whole):
    """After every step, however short; a run that begins at one of them ends as all do."""
    often = {"checkpoint_seconds": 1e-6, "keep": 99}
    with pytest.raises(RuntimeError, match="crash"):
        run(tmp_path, text_store, model=noisy, **RUN | often, callbacks=[Crash(6)])
    assert [int(name.rpartition("_")[2]) for name in names(tmp_path)] == [1, 2, 3, 4, 5]
    run(tmp_path, text_store, model=noisy, **RUN | often, resume=True)
    assert_same_run(tmp_path, whole)
    assert len(names(tmp_path)) == len(metrics(tmp_path))


def test_a_clock_that_does_not_ring_writes_nothing(tmp_path, text_store):
    run(tmp_path, text_store, max_steps=3, checkpoint_seconds=3600)
    assert names(tmp_path) == ["epoch_0_step_3"]


class Slow:
    """Takes half a second in one step."""

    def on_step_end(self, trainer, report):
        if report.step == 3:
            time.sleep(0.5)


def test_the_clock_begins_anew_at_each_checkpoint(tmp_path, text_store):
    run(tmp_path, text_store, max_steps=6, checkpoint_seconds=0.5, keep=9, callbacks=[Slow()])
    assert names(tmp_path)[0] == "epoch_0_step_3"
    assert len(names(tmp_path)) < 6


def test_the_number_of_workers_may_change(tmp_path, text_store, noisy, whole):
    for workers, stop in ((2, 3), (0, 7), (1, 8)):
        run(tmp_path, text_store, model=noisy, **RUN, workers=workers, resume=True, callbacks=[StopAfter(stop)])
    run(tmp_path, text_store, model=noisy, **RUN, resume=True)
    assert_same_run(tmp_path, whole)


class Crash:
    """Fails as a bug would, without a checkpoint."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, trainer, report):
        if report.step == self.step:
            raise RuntimeError("crash")


def test_steps_after_the_checkpoint_are_done_again(tmp_path, text_store, noisy, whole):
    with pytest.raises(RuntimeError, match="crash"):
        run(tmp_path, text_store, model=noisy, **RUN | {"checkpoint_every": 4}, callbacks=[Crash(7)])
    assert names(tmp_path) == ["epoch_1_step_4"]
    assert len(metrics(tmp_path)) == 7
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "lo')  # a line that a kill cut
    run(tmp_path, text_store, model=noisy, **RUN, resume=True)
    assert_same_run(tmp_path, whole)


def test_a_kill_at_any_moment_leaves_whole_checkpoints(tmp_path, text_store, noisy, whole):
    given = settings(tmp_path, text_store, model=noisy, **RUN) | {"checkpoint_every": 1, "keep": 1}
    options = [word for key, value in given.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    for number in range(2):
        process = subprocess.Popen([*TRAIN, *options, "--resume", "-q"], env=_environment())
        deadline, begin = time.monotonic() + 60, len(all_checkpoints(tmp_path / "run"))
        first = names(tmp_path)[-1:] if begin else []
        while names(tmp_path)[-1:] == first and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.013 * number)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        assert names(tmp_path)
        find_saved(tmp_path / "run")  # compares every byte
    run(tmp_path, text_store, model=noisy, **RUN | {"keep": 1}, resume=True)
    assert_same_run(tmp_path, whole)
    assert not list((tmp_path / "run").glob(".epoch*"))


def _environment() -> dict:
    import os

    return os.environ | {"ASTRAI_KERNELS": "torch", "OMP_NUM_THREADS": "1"}


def test_a_finished_run_is_left_as_it_is(tmp_path, text_store):
    run(tmp_path, text_store, epochs=1)
    before, lines = names(tmp_path), metrics(tmp_path)
    outcome = run(tmp_path, text_store, epochs=1, resume=True)
    assert (outcome.reason, outcome.last) == ("finished", None)
    assert (names(tmp_path), metrics(tmp_path)) == (before, lines)


def test_a_finished_run_can_be_made_longer(tmp_path, text_store):
    first = run(tmp_path, text_store, epochs=1)
    second = run(tmp_path, text_store, epochs=2, resume=True)
    assert second.step == 2 * first.step
    assert [line["step"] for line in metrics(tmp_path)] == list(range(1, second.step + 1))
    assert metrics(tmp_path)[-1]["epoch"] == 1


def test_resuming_nothing_begins(tmp_path, text_store):
    outcome = run(tmp_path, text_store, max_steps=2, resume=True)
    assert outcome.step == 2


@pytest.fixture(scope="module")
def two_checkpoints(tmp_path_factory, text_store):
    folder = tmp_path_factory.mktemp("two")
    run(folder, text_store, max_steps=2, checkpoint_every=1)
    return folder


FILES = [
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "training/optimizer.safetensors",
    "training/random.safetensors",
    "training/state.json",
    "training/config.json",
    "training/complete.json",
]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("harm", ["missing", "cut", "changed"])
def test_a_checkpoint_that_is_not_whole_is_refused_by_name(tmp_path, text_store, two_checkpoints, name, harm):
    shutil.copytree(two_checkpoints / "run", tmp_path / "run")
    path = tmp_path / "run" / "epoch_0_step_2" / name
    content = path.read_bytes()
    if harm == "missing":
        path.unlink()
    else:
        path.write_bytes(content[:-3] if harm == "cut" else b"\x00" + content[1:])
    with pytest.raises(CheckpointError) as caught:
        run(tmp_path, text_store, max_steps=3, resume=True)
    assert str(path) in str(caught.value.where)
    assert "epoch_0_step_2" in caught.value.hint
    shutil.rmtree(tmp_path / "run" / "epoch_0_step_2")  # what the hint says
    assert run(tmp_path, text_store, max_steps=3, resume=True).step == 3


def test_other_names_are_no_checkpoints(tmp_path, text_store, two_checkpoints):
    shutil.copytree(two_checkpoints / "run", tmp_path / "run")
    for name in ("epoch_0_step_9 (copy)", "epoch_0_step_09", ".epoch_0_step_9.tmp", "epoch_0_step_9.old"):
        (tmp_path / "run" / name).mkdir()
    assert find_saved(tmp_path / "run").step == 2
    assert run(tmp_path, text_store, max_steps=3, resume=True).step == 3
    assert not (tmp_path / "run" / ".epoch_0_step_9.tmp").exists()
    assert (tmp_path / "run" / "epoch_0_step_9 (copy)").exists()


OTHER = {  # what changes -> which settings differ, how they are, how they were
    "seed": ({"seed": 1}, "seed", "seed 1", "seed 0"),
    "batch_tokens": (
        {"batch_tokens": 192},
        "size of a batch",
        "batch_tokens 192: 3 rows a batch",
        "batch_tokens 128: 2 rows a batch",
    ),
    "rows_per_batch": (
        {"batch_tokens": None, "rows_per_batch": 1},
        "size of a batch",
        "rows_per_batch 1: 1 row a batch",
        "batch_tokens 128: 2 rows a batch",
    ),
    "window": ({"window": 16}, "window", "window 16", "no window, but whole rows"),
    "model": (
        {"model": "nano"},
        "model",
        "model nano: vocab_size 453, hidden_size 192,",
        "vocab_size 512, hidden_size 32,",
    ),
    "two": ({"seed": 1, "window": 16}, "seed and window", "seed 1; window 16", "seed 0; no window, but whole rows"),
}


@pytest.mark.parametrize("how", [train, plan_run])
@pytest.mark.parametrize("case", OTHER)
def test_what_would_make_it_another_run_is_refused(tmp_path, text_store, two_checkpoints, case, how):
    """With what differs, how it is and how it was; a dry run tells it too."""
    shutil.copytree(two_checkpoints / "run", tmp_path / "run")
    changes, names, got, wanted = OTHER[case]
    config = TrainConfig(**settings(tmp_path, text_store, max_steps=3, **changes))
    with pytest.raises(TrainError, match=f"^another {names} than the checkpoint's\n") as caught:
        how(config, resume=True)
    assert caught.value.where == tmp_path / "run" / "epoch_0_step_2"
    assert caught.value.got.startswith(got)
    assert caught.value.wanted.startswith(wanted)


def test_a_batch_of_the_same_size_may_be_said_otherwise(tmp_path, text_store, two_checkpoints):
    shutil.copytree(two_checkpoints / "run", tmp_path / "run")
    size = {"batch_tokens": None, "rows_per_batch": 2}
    assert run(tmp_path, text_store, max_steps=3, resume=True, **size).step == 3


@pytest.mark.parametrize("vocabulary", [512, 400])
def test_another_store_is_refused(tmp_path, two_checkpoints, text_store, vocabulary):
    """Before it is asked whether it would fit: with another tokenizer it would not."""
    shutil.copytree(two_checkpoints / "run", tmp_path / "run")
    source, tokenizer = tmp_path / "in.jsonl", write_bpe_tokenizer(tmp_path / "tokenizer", vocabulary)
    write_jsonl(source, [{"text": "other words"}])
    other = tmp_path / "other"
    Pipeline(PipelineConfig.from_dict(TEXT_CONFIG), [str(source)], str(other), str(tokenizer)).run(workers=1)
    with pytest.raises(TrainError, match="on another store") as caught:
        run(tmp_path, other, max_steps=3, resume=True)
    ids = [TokenStore.open(store).store_id[:16] for store in (other, text_store)]
    assert caught.value.where == tmp_path / "run" / "epoch_0_step_2"
    assert caught.value.got == f"{other}, whose id is {ids[0]}"
    assert caught.value.wanted == f"the store with id {ids[1]}; it was {text_store}"


def test_a_store_may_be_moved(tmp_path, two_checkpoints, text_store):
    shutil.copytree(two_checkpoints / "run", tmp_path / "run")
    moved = shutil.copytree(text_store, tmp_path / "moved")
    assert run(tmp_path, moved, max_steps=3, resume=True).step == 3


def test_settings_that_change_are_told(tmp_path, text_store, two_checkpoints, caplog):
    shutil.copytree(two_checkpoints / "run", tmp_path / "run")
    with caplog.at_level("INFO", "astrai.train"):
        run(tmp_path, text_store, max_steps=3, resume=True, lr=5e-3, threads=1)
    assert "lr 0.01 -> 0.005" in caplog.text
    assert "epochs" not in caplog.text
    assert "output_dir" not in caplog.text
    assert "threads" not in caplog.text


def test_a_setting_that_was_not_there_before_is_told(tmp_path, text_store, two_checkpoints, caplog):
    shutil.copytree(two_checkpoints / "run", tmp_path / "run")
    with caplog.at_level("INFO", "astrai.train"):
        run(tmp_path, text_store, max_steps=3, resume=True, epochs=2)
    assert "epochs unset -> 2" in caplog.text


def test_another_strategy_is_refused(tmp_path):
    store = make_chat_store(tmp_path / "store")
    run(tmp_path, store, max_steps=1)
    with pytest.raises(TrainError, match=r"(?s)another strategy.*got: strategy seq.*wanted: strategy sft"):
        run(tmp_path, store, max_steps=2, strategy="seq", resume=True)
