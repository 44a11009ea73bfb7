"""What a run says that it will do, and what it refuses before it begins."""

import re

import pytest
import torch

from astrai_train.config import TrainConfig
from astrai_train.errors import TrainError
from astrai_train.run import plan_run
from tests.data.running import TEXT_CONFIG
from tests.train.small_runs import make_store, run, settings, write_model, write_model_config


def words(folder, store, **changes) -> dict[str, str]:
    return dict(plan_run(TrainConfig(**settings(folder, store, **changes))).described())


@pytest.fixture(scope="module")
def one_row(tmp_path_factory):
    root = tmp_path_factory.mktemp("one")
    return make_store(root / "store", TEXT_CONFIG, [{"text": "a"}])


def test_one_of_each(tmp_path, one_row):
    model = write_model_config(tmp_path / "model.json", num_hidden_layers=1)
    told = words(tmp_path, one_row, model=str(model), epochs=1, warmup=1, threads=1)
    assert ": 1 layer of 32, vocabulary 512; fresh weights" in told["model"]
    assert told["data"] == "store: 2 tokens in 1 row, 1 trained"
    assert told["device"] == "cpu (asked for), 1 thread"
    assert told["steps"] == "1 in 1 epoch; 1 batch an epoch (batch_tokens 128); each row is seen once"
    assert told["lr"].startswith("0.01, warm-up of 1 step, cosine")


def test_several_of_each(tmp_path, text_store):
    told = words(tmp_path, text_store, rows_per_batch=1, batch_tokens=None, epochs=2, warmup=2, threads=2, accumulate=3)
    assert ": 2 layers of 32, " in told["model"]
    assert " rows, " in told["data"]
    assert told["device"] == "cpu (asked for), 2 threads"
    assert " in 2 epochs; " in told["steps"]
    assert " batches an epoch (rows_per_batch 1, accumulated 3); each row is seen 2 times" in told["steps"]
    assert "warm-up of 2 steps," in told["lr"]


def test_no_step_reads_the_data_more_than_once(tmp_path, text_store):
    with pytest.raises(TrainError, match="more than once") as caught:
        run(tmp_path, text_store, accumulate=10**9, max_steps=2)
    assert caught.value.got == 10**9
    most = int(caught.value.wanted.split()[2].rstrip(","))
    assert f"--accumulate {most} " in caught.value.hint
    assert run(tmp_path, text_store, accumulate=most, max_steps=2).step == 2
    (tmp_path / "more").mkdir()
    with pytest.raises(TrainError, match="more than once"):
        run(tmp_path / "more", text_store, accumulate=most + 1, epochs=3)


def batches(folder, store) -> int:
    return plan_run(TrainConfig(**settings(folder, store))).length.batches_per_epoch


def test_how_often_each_row_is_seen(tmp_path, text_store):
    an_epoch = batches(tmp_path, text_store)
    for max_steps, words in (
        (an_epoch, "each row is seen once"),
        (2 * an_epoch, "each row is seen 2 times"),
        (an_epoch + 1, f"each row is seen {1 + 1 / an_epoch:.1f} times"),
        (1, f"{1 / an_epoch:.0%} of the rows are seen"),
    ):
        assert words_of_steps(tmp_path, text_store, max_steps=max_steps).endswith(f"; {words}")
    assert words_of_steps(tmp_path, text_store, max_steps=1, window=16).endswith("of the windows are seen")
    run(tmp_path, text_store, max_steps=1)
    config = TrainConfig(**settings(tmp_path, text_store, epochs=2))
    assert dict(plan_run(config, resume=True).described())["steps"].endswith("each row is seen 2 times")


def words_of_steps(folder, store, **changes) -> str:
    return words(folder, store, **changes)["steps"]


SHORT = {  # settings -> what the warning says
    "one step": ({"batch_tokens": None}, "only 1 optimizer step: little will be learnt. For 50 or so: --epochs 50 or "),
    "a smaller batch": ({"batch_tokens": None}, "--batch-tokens 64 ("),
    "rows": ({"batch_tokens": None, "rows_per_batch": 30}, " or --rows-per-batch 1 ("),
    "accumulated": ({"accumulate": 7}, "only 1 optimizer step: little will be learnt. For 50 or so: --epochs 50"),
    "warm-up": ({"warmup": 100}, "fewer than the warm-up has (100). For 200 or so: --epochs "),
}


@pytest.mark.parametrize("case", SHORT)
def test_a_run_of_few_steps_is_told(tmp_path, text_store, case):
    changes, said = SHORT[case]
    assert said in words(tmp_path, text_store, **changes)["warning"]


def test_what_the_warning_says_gives_enough_steps(tmp_path, text_store):
    told = words(tmp_path, text_store, batch_tokens=None)["warning"]
    epochs = int(re.search(r"--epochs (\d+)", told)[1])
    size, steps = map(int, re.search(r"--batch-tokens (\d+) \((\d+) steps\)", told).groups())
    assert words_of_steps(tmp_path, text_store, batch_tokens=None, epochs=epochs).startswith("50 in 50 epochs;")
    assert words_of_steps(tmp_path, text_store, batch_tokens=size).startswith(f"{steps} in 1 epoch;")


@pytest.mark.parametrize("changes", [{"epochs": 50}, {"max_steps": 2}, {"rows_per_batch": 1, "batch_tokens": None}])
def test_a_run_that_is_long_enough_or_as_long_as_wanted_is_not(tmp_path, text_store, changes):
    assert "warning" not in words(tmp_path, text_store, **changes)


def test_a_model_that_exists_is_offered_a_higher_lr(tmp_path, one_row):
    model = str(write_model(tmp_path / "model"))
    assert "also --lr 0.0003: 2e-05 is for large ones" in words(tmp_path, one_row, model=model, lr=None)["warning"]
    assert "--lr" not in words(tmp_path, one_row, model=model)["warning"]
    assert "--batch-tokens" not in words(tmp_path, one_row, model=model)["warning"]


class Counting:
    """Notes with how many threads torch computes."""

    def on_step_end(self, trainer, report):
        self.threads = torch.get_num_threads()


@pytest.mark.parametrize(("threads", "seen"), [(2, 2), (None, 1)])
def test_threads_are_those_of_the_run_alone(tmp_path, text_store, threads, seen):
    """`plain_torch` has set one."""
    counting = Counting()
    run(tmp_path, text_store, max_steps=1, threads=threads, callbacks=[counting])
    assert (counting.threads, torch.get_num_threads()) == (seen, 1)
