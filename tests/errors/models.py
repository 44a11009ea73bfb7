"""Models: configurations, files of weights, and rows that a model cannot take."""

import json

import torch
from safetensors.torch import save_file

from astrai_train.checkpoint.read import find_model_directory
from astrai_train.models import (
    ModelConfig,
    ModelConfigError,
    ModelError,
    ModelNotFoundError,
    NotSupportedYetError,
    PackedAttention,
    Transformer,
    load_model,
    preset,
)
from astrai_train.models.safetensors_file import SafetensorsFile, write_safetensors
from tests.train.small_models import TINY

from .place import Place
from .row import EACH_ITS_OWN, FIELDS, NAMED, WANTED_IS_THE_WAY, Row

PLAIN = {"try": WANTED_IS_THE_WAY}
INDEX = "model.safetensors.index.json"


def config(**keys):
    """A small `config.json` with other keys."""
    return lambda place: ModelConfig.from_dict(TINY | keys)


def scaling(**keys):
    return config(rope_scaling=keys)


def file(content: object):
    return lambda place: ModelConfig.from_file(place.once("config.json", content))


def weights(change):
    """A model whose weights were changed."""

    def fail(place: Place) -> None:
        path = place.model / "model.safetensors"
        tensors = dict(SafetensorsFile(path).tensors())
        change(tensors)
        save_file(tensors, path)
        load_model(place.model)

    return fail


def sharded(index: object, *names: str):
    """A model whose weights are in shards; the index says so."""

    def fail(place: Place) -> None:
        tensors = dict(SafetensorsFile(place.model / "model.safetensors").tensors())
        (place.model / "model.safetensors").unlink()
        place.write(f"model/{INDEX}", json.dumps(index))
        for name in names:
            save_file(tensors, place.model / name)
        load_model(place.model)

    return fail


def forward(ids: list, positions: list, borders: list):
    def fail(place: Place) -> None:
        model = Transformer(ModelConfig(**TINY))
        attention = PackedAttention(torch.tensor(borders, dtype=torch.int32))
        model(torch.tensor(ids), torch.tensor(positions), attention)

    return fail


def without_weights(place: Place) -> None:
    (place.model / "model.safetensors").unlink(missing_ok=True)
    load_model(place.model)


def damaged(place: Place) -> None:
    (place.model / "model.safetensors").write_bytes(b"damaged")
    load_model(place.model)


def row(name, fail, *says, kind=ModelConfigError, without=None, mend=None) -> Row:
    return Row(name, fail, kind, says, without or {}, mend)


def later(name, fail, *says) -> Row:
    return row(name, fail, "not supported yet", *says, kind=NotSupportedYetError)


def mend_heads(place: Place) -> None:
    """The message wants a divisor of the query heads, and offers 1."""
    assert place.told("try").startswith("1, or leave it out")
    place.edit(place / "config.json", num_key_value_heads=1)


def drop(name: str):
    return lambda tensors: tensors.pop(name)


def put(name: str, tensor: torch.Tensor):
    return lambda tensors: tensors.update({name: tensor})


NORM = "model.norm.weight"
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}

ROWS = [
    row("an unknown key", config(hiden_size=5), '"hiden_size"', "try: hidden_size", without={"got": NAMED}),
    row("a wrong value", config(hidden_size=8.5), "got: 8.5", "a whole number", without=PLAIN),
    row("a list", lambda p: ModelConfig.from_dict([1]), "got: [1]", "put the keys into"),
    row(
        "two problems",
        config(hidden_size=0, vocab_size=0),
        "has 2 problems",
        "1. vocab_size",
        without=dict.fromkeys(FIELDS, EACH_ITS_OWN),
    ),
    row("no file", lambda p: ModelConfig.from_file(p / "config.json"), "got: nothing", "nano", kind=ModelNotFoundError),
    row("no JSON", file("{'a': 1}"), "config.json, line 1, column 2", "double quotes"),
    row(
        "heads that do not divide",
        file(TINY | {"num_attention_heads": 4, "num_key_value_heads": 3}),
        "num_attention_heads = 4",
        mend=mend_heads,
    ),
    row("an unknown kind", config(model_type="lama"), '"lama"', "try: llama"),
    later("another attention", config(attn_type="mla"), '"mla"', "one of gqa", "leave the key out"),
    later("a bias", config(attention_bias=True), "attention_bias", "null or false"),
    later("another scaling", scaling(rope_type="dynamic"), '"dynamic"', "one of default, "),
    row("two values", config(n_layers=3), "n_layers = 3 and num_hidden_layers = 2", "take out n_layers"),
    row(
        "a size that is no multiple",
        config(num_attention_heads=3, num_key_value_heads=1),
        "hidden_size = 8",
        "give head_dim",
    ),
    row("an odd head", config(head_dim=3), "got: 3", "head_dim 4"),
    row("one pair", config(head_dim=2, rope_scaling={"rope_type": "ntk", "factor": 2.0}), "head_dim = 2", "linear"),
    row("a Llama with gates", config(model_type="llama", use_gated_attention=True), "got: true", '"autoregressive_lm"'),
    row("an unknown scaling", scaling(rope_type="yran", factor=2.0), '"yran"', "try: yarn"),
    row("an unknown key of a scaling", scaling(rope_type="linear", fator=2.0), "rope_scaling.fator", "try: factor"),
    row("a scaling of nothing", scaling(rope_type="linear", factor=-1), "got: -1", "a positive number"),
    row("a scaling without a key", scaling(**LLAMA3), "rope_scaling.high_freq_factor", "add high_freq_factor"),
    row("a preset", lambda p: preset("nono", vocab_size=9), "got: nono", "one of nano"),
    row("no folder", lambda p: load_model(p / "no"), "/no", "got: no such directory", kind=ModelNotFoundError),
    row(
        "a long name",
        lambda p: load_model(p / ("a" * 300)),
        "got: no such directory: File name too long",
        kind=ModelNotFoundError,
    ),
    row(
        "a long name of a configuration",
        lambda p: ModelConfig.from_file(p / ("a" * 300 + ".json")),
        "no model configuration",
        "got: nothing",
        kind=ModelNotFoundError,
    ),
    row(
        "no model",
        lambda p: find_model_directory(p.root),
        "an empty directory",
        "epoch_E_step_S",
        kind=ModelNotFoundError,
    ),
    row("no weights", without_weights, "config.json, ", "model.safetensors", kind=ModelNotFoundError),
    row(
        "a missing shard", sharded({"weight_map": {NORM: "a.safetensors"}}), "no a.safetensors", kind=ModelNotFoundError
    ),
    row("no map of weights", sharded({"map": {}}), "KeyError: 'weight_map'", '"weight_map": {', kind=ModelError),
    row("a shard elsewhere", sharded({"weight_map": {NORM: "../a.safetensors"}}), "../a.safetensors", kind=ModelError),
    row(
        "a weight twice",
        sharded({"weight_map": {NORM: "a.safetensors", "b": "b.safetensors"}}, "a.safetensors", "b.safetensors"),
        "a.safetensors and b.safetensors",
        kind=ModelError,
    ),
    row(
        "a weight of bytes",
        weights(put(NORM, torch.zeros(48, dtype=torch.int8))),
        "torch.int8",
        NORM,
        "quantised",
        kind=ModelError,
    ),
    row("another shape", weights(put(NORM, torch.zeros(7))), f"{NORM} (7,) instead of (48,)", kind=ModelError),
    row("other names", weights(drop(NORM)), f"missing: {NORM}", "compare config.json", kind=ModelError),
    row("no safetensors", damaged, "model.safetensors", "copy the file again", kind=ModelError),
    row("no such file", lambda p: SafetensorsFile(p / "a"), "got: nothing", ".safetensors", kind=ModelNotFoundError),
    row(
        "a dtype without a name",
        lambda p: write_safetensors(p / "a", {"a": torch.zeros(2, dtype=torch.complex128)}, {}),
        "complex128",
        "tensor.to(torch.float32)",
        kind=ModelError,
    ),
    row("a batch", forward([[1, 2]], [[0, 1]], [0, 2]), "input_ids [1, 2]", "flatten the batch", kind=ModelError),
    row(
        "an id too large", forward([1000], [0], [0, 1]), "got: 1000", "0 to 999", "another tokenizer's", kind=ModelError
    ),
    row("a position too large", forward([1], [64], [0, 1]), "got: 64", "0 to 63", kind=ModelError),
    row("no borders", forward([1, 2], [0, 1], [1, 2]), "got: [1, 2]", "[0, 3, 5]", kind=ModelError),
    row("borders of another row", forward([1, 2], [0, 1], [0, 3]), "borders up to 3 for 2 tokens", kind=ModelError),
]
