"""Finding models among what training wrote."""

import pytest

from astrai_train.checkpoint import find_model_directory, list_checkpoints, read_model_files
from astrai_train.checkpoint.marker import write_marker
from astrai_train.errors import CheckpointError
from astrai_train.models import ModelNotFoundError, load_model, save_model
from tests.train.small_models import lively, tiny
from tests.train.small_runs import same_bits


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with three complete checkpoints and what else may lie beside them."""
    run = tmp_path_factory.mktemp("run")
    for seed, name in enumerate(("epoch_0_step_9", "epoch_0_step_10", "epoch_1_step_100")):
        save_model(lively(tiny(), seed=seed), run / name)
        (run / name / "training").mkdir()
    (run / "epoch_1_step_100" / "tokenizer.json").write_text("{}")
    for name in ("epoch_1_step_200 (copy)", ".epoch_1_step_300.tmp", "epoch_01_step_400", "epoch_1_step_٣"):
        save_model(lively(tiny()), run / name)
    (run / "epoch_2_step_500").mkdir()  # empty
    (run / "metrics.jsonl").write_text("")
    return run


def test_complete_checkpoints_oldest_first(run):
    assert [(found.epoch, found.step) for found in list_checkpoints(run)] == [(0, 9), (0, 10), (1, 100)]
    assert (list_checkpoints(run)[0].path / "training").is_dir()
    assert list_checkpoints(run / "none") == []


def test_what_a_path_means(run):
    newest = run / "epoch_1_step_100"
    assert find_model_directory(run) == newest
    assert find_model_directory(str(run / "epoch_0_step_9")) == run / "epoch_0_step_9"


def test_files_of_a_model(run):
    files = read_model_files(run)
    assert files.directory == run / "epoch_1_step_100"
    assert files.config == tiny()
    assert files.weights == (files.directory / "model.safetensors",)
    assert files.tokenizer == files.directory
    assert read_model_files(run / "epoch_0_step_9").tokenizer is None


def test_a_checkpoint_is_a_model_directory(run):
    assert load_model(run / "epoch_0_step_10").config == tiny()


def test_a_run_is_loaded_as_its_newest_checkpoint(run):
    newest = load_model(run / "epoch_1_step_100").state_dict()
    assert same_bits(load_model(run).state_dict(), newest)
    assert same_bits(load_model(str(run)).state_dict(), newest)


def test_where_no_model_is(run, tmp_path):
    for path, says in (
        (tmp_path, "an empty directory"),
        (tmp_path / "none", "no such directory"),
        (run / "metrics.jsonl", "a file"),
        (run / "epoch_0_step_9" / "training", "empty directory"),
    ):
        for find in (find_model_directory, load_model):
            with pytest.raises(ModelNotFoundError, match=f"(?s)no model here.*{says}"):
                find(path)
    tiny().to_file(tmp_path / "config.json")
    with pytest.raises(ModelNotFoundError, match="no weights"):
        read_model_files(tmp_path)


def test_damaged_weights_of_a_checkpoint_are_no_model(tmp_path):
    """Whoever reads it: training, generating, serving. What people edit beside the weights is theirs."""
    save_model(lively(tiny()), tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "training").mkdir()
    write_marker(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"mine": 1}')
    read_model_files(tmp_path)
    weights = bytearray((tmp_path / "model.safetensors").read_bytes())
    weights[-7] ^= 1
    (tmp_path / "model.safetensors").write_bytes(weights)
    with pytest.raises(CheckpointError, match="damaged"):
        read_model_files(tmp_path)
