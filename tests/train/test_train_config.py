"""The configuration: what is refused, what is accepted, files, and one schema with the command line."""

import json

import pytest

from astrai_train.cli import command
from astrai_train.config import PRESET_NAMES, REQUIRED, TrainConfig, read_settings
from astrai_train.errors import TrainConfigError
from astrai_train.models import PRESETS

NEEDED = {"data": "store", "model": "nano", "output_dir": "run"}

REFUSED = {
    "strategy": ["ppo", 1],
    "epochs": [0, -1, 1.5],
    "max_steps": [0],
    "max_seconds": [0, -1],
    "batch_tokens": [0, "many"],
    "rows_per_batch": [0],
    "accumulate": [0],
    "lr": [0, -1e-3, "fast"],
    "warmup": [-0.1, 2.5],
    "min_lr_ratio": [-0.1, 1.1],
    "weight_decay": [-0.1],
    "clip": [-1],
    "label_smoothing": [-0.1, 1],
    "workers": [-1],
    "dtype": ["float16", "bf16"],
    "threads": [0, 2.5, 10**6],
    "keep": [0],
    "checkpoint_every": [-1],
    "checkpoint_seconds": [0, -1, "often"],
    "validate_every": [-1],
}
ACCEPTED = {
    "epochs": [None, 3],
    "max_steps": [None, 1],
    "lr": [None, 1e-4],
    "warmup": [0, 0.5, 1, 100],
    "clip": [0, 0.5],
    "min_lr_ratio": [0, 1],
    "validation_tokens": [0],
    "keep": [1],
    "checkpoint_seconds": [None, 0.5, 600],
    "threads": [None, 1, 1024],
}


def cases(table):
    return [(key, value) for key, values in table.items() for value in values]


@pytest.mark.parametrize(("key", "value"), cases(REFUSED))
def test_each_wrong_value_alone_is_refused_by_name(key, value):
    with pytest.raises(TrainConfigError) as caught:
        TrainConfig(**NEEDED, **{key: value})
    assert key in str(caught.value.where)
    assert caught.value.wanted


@pytest.mark.parametrize(("key", "value"), cases(ACCEPTED))
def test_accepted(key, value):
    assert getattr(TrainConfig(**NEEDED, **{key: value}), key) == value


def test_all_problems_are_told_at_once():
    with pytest.raises(TrainConfigError, match="3 problems") as caught:
        TrainConfig(data="store", model="nano", lr=-1, epochs=0)
    assert all(word in str(caught.value) for word in ("output_dir", "lr", "epochs"))


def test_an_unknown_key_is_answered_with_the_nearest():
    with pytest.raises(TrainConfigError) as caught:
        TrainConfig.from_dict(NEEDED | {"max_stepz": 3})
    assert "max_steps" in caught.value.hint


@pytest.mark.parametrize("name", sorted(TrainConfig.other_names))
def test_the_name_of_another_tool_is_answered_with_ours(name):
    with pytest.raises(TrainConfigError) as caught:
        TrainConfig(**NEEDED, **{name: 1})
    assert caught.value.hint == TrainConfig.other_names[name]
    assert caught.value.hint in TrainConfig.model_fields


def test_a_batch_has_one_size():
    with pytest.raises(TrainConfigError, match="given once"):
        TrainConfig(**NEEDED, batch_tokens=10, rows_per_batch=2)


def test_paths_of_a_file_are_relative_to_it(tmp_path):
    path = tmp_path / "deep" / "train.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"data": "../store", "model": "model.json", "output_dir": "run"}))
    config = TrainConfig.from_file(path)
    assert config.data == str(path.parent / "../store")
    assert config.model == str(path.parent / "model.json")
    path.write_text(json.dumps(NEEDED))
    assert TrainConfig.from_file(path).model == "nano"


@pytest.mark.parametrize("text", ["{", "[]", '{"lr": "fast"}', '{"lrr": 1}', '{"lr": NaN}', '{"lr": 1, "lr": 2}'])
def test_errors_of_a_file_name_it(tmp_path, text):
    path = tmp_path / "train.json"
    path.write_text(text)
    with pytest.raises(TrainConfigError) as caught:
        read_settings(path)
    assert str(path) in str(caught.value.where)


def test_a_file_need_not_be_complete(tmp_path):
    path = tmp_path / "train.json"
    path.write_text('{"lr": 2e-5}')
    assert read_settings(path) == {"lr": 2e-5}


def test_to_dict_and_back():
    config = TrainConfig(**NEEDED, lr=3e-4, warmup=10)
    again = TrainConfig.from_dict(json.loads(json.dumps(config.to_dict())))
    assert again.to_dict() == config.to_dict()
    assert again.data.startswith("/")
    assert again.model == "nano"


def test_the_command_has_an_option_for_every_key():
    options = set(command.__signature__.parameters)
    assert options == set(TrainConfig.model_fields) - {"schema_url"} | {
        "config", "resume", "dry_run", "verbose", "quiet"
    }  # fmt: skip
    assert set(REQUIRED) == {name for name, field in TrainConfig.model_fields.items() if field.is_required()}


def test_every_key_says_what_it_means():
    assert all(field.description for field in TrainConfig.model_fields.values())


def test_the_presets_are_those_of_the_models():
    assert set(PRESET_NAMES) == set(PRESETS)
