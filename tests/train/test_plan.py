"""What a run says that it will do, and what it refuses before it begins."""

import pytest
import torch

from astrai_train.config import TrainConfig
from astrai_train.errors import TrainError
from astrai_train.run import plan_run
from tests.data.running import TEXT_CONFIG
from tests.train.small_runs import make_store, run, settings, write_model_config


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
    assert told["steps"] == "1 in 1 epoch; 1 batch an epoch (batch_tokens 128)"
    assert told["lr"].startswith("0.01, warm-up of 1 step, cosine")


def test_several_of_each(tmp_path, text_store):
    told = words(tmp_path, text_store, rows_per_batch=1, batch_tokens=None, epochs=2, warmup=2, threads=2, accumulate=3)
    assert ": 2 layers of 32, " in told["model"]
    assert " rows, " in told["data"]
    assert told["device"] == "cpu (asked for), 2 threads"
    assert " in 2 epochs; " in told["steps"]
    assert " batches an epoch (rows_per_batch 1, accumulated 3)" in told["steps"]
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
