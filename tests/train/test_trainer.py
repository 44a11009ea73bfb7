"""The loop: steps, files, metrics, evaluations, checkpoints that are kept, callbacks, and what is refused."""

import json
import math
import threading

import pytest
import torch

from astrai_data import Tokenizer, TokenStore
from astrai_data.errors import AstraiError, StoreError
from astrai_data.load import PackedLoader
from astrai_train.callbacks import ProgressBar, ProgressLines
from astrai_train.checkpoint.read import find_model_directory, read_model_files
from astrai_train.config import TrainConfig
from astrai_train.device import choose_precision
from astrai_train.errors import NonFiniteError, TrainConfigError, TrainError
from astrai_train.models import ModelError, load_model
from astrai_train.step import mean_loss
from astrai_train.strategies import NextToken
from tests.data.running import TEXT_CONFIG, write_config
from tests.data.toys import write_bpe_tokenizer
from tests.train.small_runs import (
    StopAfter,
    make_chat_store,
    make_store,
    metrics,
    names,
    run,
    same_bits,
    settings,
    weights,
    write_model,
)

TEN_ROWS = {"rows_per_batch": 2, "batch_tokens": None, "accumulate": 2, "epochs": 2, "checkpoint_every": 1, "keep": 9}


@pytest.fixture(scope="module")
def ten_rows(tmp_path_factory):
    """A store of exactly ten rows."""
    root = tmp_path_factory.mktemp("ten")
    config = TEXT_CONFIG | {"preprocessing": {"max_packed_len": 32, "packing_strategy": "simple"}}
    store = make_store(root / "store", config, [{"text": f"row {i} of the ten"} for i in range(10)])
    assert TokenStore.open(store).num_rows == 10
    return store


def test_events_checkpoints_and_learning_rates(tmp_path, ten_rows):
    outcome = run(tmp_path, ten_rows, **TEN_ROWS, lr=0.1, warmup=2, min_lr_ratio=0.05)
    lines = metrics(tmp_path)
    assert [(line["epoch"], line["step"]) for line in lines] == [(0, 1), (0, 2), (1, 3), (1, 4), (1, 5)]
    # three steps decay: half a cosine over steps 3 to 5
    assert [line["lr"] for line in lines] == pytest.approx([0.005, 0.05, 0.1, 0.075, 0.025])
    assert names(tmp_path) == ["epoch_0_step_1", "epoch_0_step_2", "epoch_1_step_3", "epoch_1_step_4", "epoch_1_step_5"]
    assert (outcome.reason, outcome.step, outcome.checkpoint.name) == ("finished", 5, "epoch_1_step_5")
    store = TokenStore.open(ten_rows)
    assert lines[-1]["tokens"] == 2 * store.num_tokens
    assert sum(line["labels"] for line in lines) == 2 * store.num_trained


def test_a_checkpoint_holds_the_update_of_its_step(tmp_path, ten_rows):
    kept = {}

    class Keep:
        def on_step_end(self, trainer, report):
            kept[report.step] = {name: value.clone() for name, value in trainer.model.state_dict().items()}

    run(tmp_path, ten_rows, **TEN_ROWS, callbacks=[Keep()])
    for name in names(tmp_path):
        saved = load_model(tmp_path / "run" / name).state_dict()
        assert same_bits(saved, kept[int(name.rpartition("_")[2])])
    assert not same_bits(kept[1], kept[2])


def test_files_of_a_checkpoint(tmp_path, text_store):
    outcome = run(tmp_path, text_store, max_steps=2)
    found = {
        path.relative_to(outcome.checkpoint).as_posix() for path in outcome.checkpoint.rglob("*") if path.is_file()
    }
    assert found == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "training/complete.json",
        "training/config.json",
        "training/optimizer.safetensors",
        "training/random.safetensors",
        "training/state.json",
    }
    state = json.loads((outcome.checkpoint / "training/state.json").read_text())
    assert state["stores"] == [{"name": "store", "store_id": TokenStore.open(text_store).store_id}]
    assert (state["step"], state["data"]["num_batches"]) == (2, 2)


def test_the_model_directory_stands_alone(tmp_path, text_store):
    outcome = run(tmp_path, text_store, max_steps=1)
    assert find_model_directory(tmp_path / "run") == outcome.checkpoint
    files = read_model_files(tmp_path / "run")
    store = TokenStore.open(text_store)
    tokenizer = Tokenizer.from_pretrained(files.tokenizer)
    assert tokenizer.ids_sha256 == store.manifest.ids_sha256
    assert tokenizer.template_sha256 == store.manifest.template_sha256
    assert json.loads((files.tokenizer / "tokenizer_config.json").read_text())["template_date"] == "2024-07-26"
    assert files.config.vocab_size > tokenizer.max_id


def test_a_preset_takes_the_vocabulary_of_the_store(tmp_path, text_store):
    run(tmp_path, text_store, model="nano", max_steps=1)
    config = read_model_files(tmp_path / "run").config
    assert (config.hidden_size, config.vocab_size) == (192, TokenStore.open(text_store).tokenizer().max_id + 1)


def test_it_learns(tmp_path, text_store):
    run(tmp_path, text_store, epochs=6, batch_tokens=256)
    losses = [line["loss"] for line in metrics(tmp_path)]
    assert losses[0] == pytest.approx(math.log(512), abs=0.3)
    assert losses[-1] < 0.6 * losses[0]


def test_metrics_tell_every_step(tmp_path, text_store):
    run(tmp_path, text_store, max_steps=3)
    lines = metrics(tmp_path)
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert all(
        set(line)
        == {"step", "epoch", "tokens", "labels", "loss", "lr", "grad_norm", "tokens_per_s", "seconds"}
        for line in lines
    )  # fmt: skip
    assert all(line["grad_norm"] > 0 for line in lines)


def test_the_validation_split_is_evaluated_and_changes_nothing(tmp_path, text_store):
    (tmp_path / "without").mkdir()
    run(tmp_path / "without", text_store, max_steps=5)
    run(tmp_path, text_store, max_steps=5, validate_every=2)
    lines = metrics(tmp_path)
    assert [line["step"] for line in lines if "val_loss" in line] == [2, 4, 5]
    assert all(0 < line["val_loss"] < 8 for line in lines if "val_loss" in line)
    assert same_bits(weights(tmp_path), weights(tmp_path / "without"))


def test_validation_is_the_mean_over_its_labels(tmp_path, text_store):

    outcome = run(tmp_path, text_store, max_steps=2, validate_every=2)
    loader = PackedLoader(TokenStore.open(text_store, "validation"), seed=9, rows_per_batch=1)
    batches = [NextToken().prepare(next(loader)) for _ in range(loader.batches_per_epoch)]
    assert sum(batch.num_labels for batch in batches) == TokenStore.open(text_store, "validation").num_trained
    wanted = mean_loss(load_model(outcome.checkpoint), NextToken(), batches, choose_precision("cpu"))
    assert metrics(tmp_path)[-1]["val_loss"] == pytest.approx(wanted, rel=1e-5)


def test_only_the_newest_checkpoints_are_kept(tmp_path, text_store):
    run(tmp_path, text_store, max_steps=7, checkpoint_every=2, keep=2)
    assert names(tmp_path) == ["epoch_0_step_6", "epoch_0_step_7"]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        ".lock", "epoch_0_step_6", "epoch_0_step_7", "metrics.jsonl"
    ]  # fmt: skip


def test_equal_seeds_give_equal_runs(tmp_path, text_store):
    model = str(write_model(tmp_path / "model", neftune_alpha=5.0))  # random numbers in every step
    losses = {}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        (tmp_path / name).mkdir()
        run(tmp_path / name, text_store, model=model, seed=seed, max_steps=4)
        losses[name] = [line["loss"] for line in metrics(tmp_path / name)]
    assert losses["a"] == losses["b"] != losses["c"]


def test_training_goes_on_from_a_model(tmp_path, text_store):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    run(tmp_path / "first", text_store, epochs=4)
    run(tmp_path / "second", text_store, model=str(tmp_path / "first" / "run"), max_steps=1, lr=1e-4)
    assert metrics(tmp_path / "second")[0]["loss"] < 0.8 * metrics(tmp_path / "first")[0]["loss"]


def test_sft_trains_the_answers(tmp_path):
    store = make_chat_store(tmp_path / "store")
    run(tmp_path, store, epochs=1)
    assert sum(line["labels"] for line in metrics(tmp_path)) == TokenStore.open(store).num_trained
    (tmp_path / "seq").mkdir()
    run(tmp_path / "seq", store, epochs=1, strategy="seq")
    whole = TokenStore.open(store)
    trained = sum(line["labels"] for line in metrics(tmp_path / "seq"))
    assert trained == whole.num_tokens - whole.num_segments


def test_callbacks_are_called_in_order_and_only_for_what_they_have(tmp_path, text_store):
    seen = []

    class Watching:
        def on_train_begin(self, trainer):
            seen.append("begin")

        def on_step_end(self, trainer, report):
            seen.append(report.step)

        def on_checkpoint(self, trainer, path):
            seen.append(path.name)

        def on_train_end(self, trainer, outcome):
            seen.append(outcome.reason)

    class OnlyBegin:
        def on_train_begin(self, trainer):
            seen.append("only begin")

    run(tmp_path, text_store, max_steps=2, callbacks=[Watching(), OnlyBegin()])
    assert seen == ["begin", "only begin", 1, 2, "epoch_0_step_2", "finished"]


@pytest.mark.parametrize("kind", [ProgressBar, ProgressLines])
def test_progress_tells_loss_speed_and_time_left(tmp_path, text_store, capsys, kind):
    run(tmp_path, text_store, max_steps=2, callbacks=[kind()])
    shown = capsys.readouterr().err
    for word in ("2/2", "loss ", "tokens/s", "0:00 left", "checkpoint "):
        assert word in shown
    assert "\x1b" not in shown


def test_the_clock_stops_a_run(tmp_path, text_store):
    outcome = run(tmp_path, text_store, epochs=1000, max_seconds=0.3, validate_every=10**6)
    assert "val_loss" in metrics(tmp_path)[-1]
    assert outcome.reason == "max_seconds"
    assert 0 < outcome.step < 1000
    assert names(tmp_path) == [outcome.checkpoint.name]
    run(tmp_path, text_store, resume=True, max_steps=outcome.step + 1)
    assert len(metrics(tmp_path)) == outcome.step + 1


def test_a_signal_stops_after_the_step_and_handlers_come_back(tmp_path, text_store):
    import signal

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    outcome = run(tmp_path, text_store, epochs=100, callbacks=[StopAfter(3)])
    assert (outcome.reason, outcome.step, names(tmp_path)) == ("interrupted", 3, ["epoch_0_step_3"])
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_outside_the_main_thread(tmp_path, text_store):
    thread = threading.Thread(target=run, args=(tmp_path, text_store), kwargs={"max_steps": 1})
    thread.start()
    thread.join()
    assert names(tmp_path) == ["epoch_0_step_1"]


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_with_step_and_place(tmp_path, text_store, poison):
    class Poison:
        def on_step_end(self, trainer, report):
            if report.step == 2:
                with torch.no_grad():
                    trainer.model.model.norm.weight[0] = poison

    with pytest.raises(NonFiniteError) as caught:
        run(
            tmp_path,
            text_store,
            max_steps=5,
            checkpoint_every=1,
            callbacks=[Poison()],
            rows_per_batch=2,
            batch_tokens=None,
        )
    assert "step 3, epoch 0, from sample 4" in caught.value.where
    assert "nan" in caught.value.got
    assert [line["step"] for line in metrics(tmp_path)] == [1, 2]


def test_a_used_folder_is_not_trained_into(tmp_path, text_store):
    run(tmp_path, text_store, max_steps=1)
    with pytest.raises(TrainError, match="holds a run already") as caught:
        run(tmp_path, text_store, max_steps=1)
    assert "--resume" in caught.value.hint


def test_two_runs_in_one_folder(tmp_path, text_store):
    class Second:
        def on_step_end(self, trainer, report):
            with pytest.raises(TrainError, match="another run"):
                run(tmp_path, text_store, resume=True)

    run(tmp_path, text_store, max_steps=1, callbacks=[Second()])


def other_tokenizer(tmp_path, store):
    """A model whose tokenizer is another one than the store's."""
    model = write_model(tmp_path / "model")
    write_bpe_tokenizer(model, 300)
    return {"model": str(model)}


def small_vocabulary(tmp_path, store):
    return {"model": str(write_model(tmp_path / "model", vocab_size=100))}


def few_positions(tmp_path, store):
    return {"model": str(write_model(tmp_path / "model", max_position_embeddings=8))}


def unfinished_store(tmp_path, store):
    (tmp_path / "half" / "data").mkdir(parents=True)
    return {"data": str(tmp_path / "half")}


def nothing_trained(tmp_path, store):
    sections = {"sections": [{"field": "text", "action": "mask"}]}
    config = TEXT_CONFIG | {"input": sections, "preprocessing": {"max_packed_len": 64, "drop_untrained": False}}
    return {"data": str(make_store(tmp_path / "masked", config, [{"text": "all of it is masked"}]))}


WRONG = {
    other_tokenizer: (TrainError, "another tokenizer than the model's"),
    small_vocabulary: (TrainError, "too small a vocabulary"),
    few_positions: (TrainError, "longer than the model's positions"),
    unfinished_store: (StoreError, "not finished"),
    nothing_trained: (TrainError, "nothing to train"),
    lambda tmp_path, store: {"data": str(tmp_path / "nowhere")}: (StoreError, "no token store"),
    lambda tmp_path, store: {"model": str(tmp_path / "nowhere")}: (ModelError, "no model here"),
    lambda tmp_path, store: {"model": "nanno"}: (ModelError, "no model here"),
    lambda tmp_path, store: {"batch_tokens": 3}: (AstraiError, "too small for one sample"),
    lambda tmp_path, store: {"device": "cuda:77"}: (TrainError, "no such device"),
    lambda tmp_path, store: {"epochs": 0}: (TrainConfigError, "wrong value"),
}


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.__name__)
def test_what_does_not_fit_is_said_before_anything_is_written(tmp_path, text_store, case):
    kind, words = WRONG[case]
    changes = case(tmp_path, text_store)
    with pytest.raises(kind, match=words):
        run(tmp_path, text_store, **changes)
    assert names(tmp_path) == []
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_store_whose_rows_are_not_packed_is_read_in_windows(tmp_path):
    documents = [{"text": "words and words " * 30}, {"text": "short"}]
    config = TEXT_CONFIG | {"preprocessing": {"packing_strategy": "simple"}}
    store = make_store(tmp_path / "store", config, documents)
    run(tmp_path, store, window=32, batch_tokens=64, epochs=1)
    assert sum(line["labels"] for line in metrics(tmp_path)) == TokenStore.open(store).num_trained


def test_python_uses_the_same_schema(tmp_path, text_store):

    path = write_config(tmp_path / "train.json", settings(tmp_path, text_store, max_steps=1))
    assert TrainConfig.from_file(path).max_steps == 1
