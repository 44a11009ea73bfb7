"""The configuration: what files may hold, what is refused, what is written."""

import json

import pytest

from astrai_train.models import PRESETS, ModelConfig, ModelConfigError, NotSupportedYetError, Transformer, preset
from astrai_train.models.config import FLOAT32_EPSILON
from tests.train.small_models import TINY, tiny


@pytest.mark.parametrize("model_type", [None, "", "autoregressive_lm"])
def test_no_type_is_a_decoder(model_type):
    config = ModelConfig.from_dict(TINY | {"model_type": model_type})
    assert config.model_type == "autoregressive_lm"


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({}, "vocab_size"),
        ({"model_type": "lama"}, "one of autoregressive_lm, llama"),
        (TINY | {"model_type": 3}, "autoregressive_lm"),
        (TINY | {"attn_type": "mha"}, "gqa, mla"),
        (TINY | {"ffn_type": "dense"}, "mlp, moe"),
        (TINY | {"hidden_size": 8.5}, "a whole number"),
        (TINY | {"hidden_size": -8}, "above 0"),
        (TINY | {"hiden_size": 8}, "hidden_size"),
        (TINY | {"hidden_size": 9}, "cannot be divided"),
        (TINY | {"num_attention_heads": 8}, "pairs"),
        (TINY | {"head_dim": 3}, "pairs"),
        (TINY | {"num_attention_heads": 2, "num_key_value_heads": 3}, "divide"),
        (TINY | {"rope_layout": "split"}, "half, interleaved"),
        (TINY | {"dim": 16}, "two values"),
        (TINY | {"model_type": "llama", "use_qk_norm": True}, "Llama has none"),
        ([], "an object"),
    ],
)
def test_what_is_refused(raw, says):
    with pytest.raises(ModelConfigError, match=says):
        ModelConfig.from_dict(raw)


@pytest.mark.parametrize(
    "key",
    [
        {"attn_type": "mla"},
        {"ffn_type": "moe"},
        {"model_type": "embedding"},
        {"kv_lora_rank": 4},
        {"n_routed_experts": 4},
        {"n_activated_experts": 2},
        {"pooling_type": "mean"},
        {"attention_bias": True},
        {"hidden_act": "gelu"},
        {"sliding_window": 4096},
        {"quantization_config": {"bits": 4}},
        {"mlp_only_layers": [0]},
    ],
)
def test_what_is_not_supported_yet(key):
    with pytest.raises(NotSupportedYetError, match="not supported yet") as caught:
        ModelConfig.from_dict(TINY | key)
    assert caught.value.where == next(iter(key))
    assert isinstance(caught.value, NotImplementedError)


def test_switches_of_later_parts_may_stand_there_where_they_do_nothing():
    inert = {"kv_lora_rank": None, "n_routed_experts": None, "topk_method": "greedy", "decoder_sparse_step": 1}
    inert |= {"norm_topk_prob": True, "moe_aux_loss_coef": 0.01, "mlp_only_layers": None, "attention_dropout": 0.0}
    inert |= {"architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "hidden_act": "silu"}
    assert ModelConfig.from_dict(TINY | inert) == ModelConfig.from_dict(TINY)


def test_numbers_as_people_write_them():
    config = ModelConfig.from_dict(TINY | {"vocab_size": "12", "hidden_size": 8.0, "tie_word_embeddings": "true"})
    assert (config.vocab_size, config.hidden_size, config.tie_word_embeddings) == (12, 8, True)


def test_old_names():
    old = {"dim": 8, "n_heads": 2, "n_kv_heads": 1, "dim_ffn": 16, "max_len": 64, "n_layers": 2, "norm_eps": 1e-5}
    with pytest.warns(DeprecationWarning, match="dim is now hidden_size"):
        config = ModelConfig.from_dict(old | {"vocab_size": 1000})
    assert config == ModelConfig.from_dict(TINY)


def test_what_is_left_out_is_resolved():
    config = ModelConfig(**{key: value for key, value in TINY.items() if key not in ("num_key_value_heads",)})
    assert (config.num_key_value_heads, config.head_dim) == (2, 4)
    assert tiny(rms_norm_eps=None).rms_norm_eps == FLOAT32_EPSILON
    assert ModelConfig.from_dict(TINY | {"rope_theta": None}).rope_theta == 10000


@pytest.mark.parametrize(
    ("raw", "layout", "position"),
    [
        ({}, "interleaved", "after"),
        ({"model_type": "autoregressive_lm"}, "interleaved", "after"),
        ({"rope_layout": "half", "qk_norm_position": "before"}, "half", "before"),
        ({"model_type": "llama"}, "half", "before"),
    ],
)
def test_a_file_without_layout_keeps_its_old_meaning_and_is_written_with_it(tmp_path, raw, layout, position):
    config = ModelConfig.from_dict(TINY | raw)
    assert (config.rope_layout, config.qk_norm_position) == (layout, position)
    config.to_file(tmp_path / "config.json")
    written = json.loads((tmp_path / "config.json").read_text())
    assert (written["rope_layout"], written["qk_norm_position"]) == (layout, position)


@pytest.mark.parametrize("changes", [{}, {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, {"head_dim": 6}])
def test_written_and_read_it_is_the_same(tmp_path, changes):
    config = tiny(**changes)
    config.to_file(tmp_path / "config.json")
    assert ModelConfig.from_file(tmp_path / "config.json") == config
    text = (tmp_path / "config.json").read_text(encoding="utf-8")
    assert json.loads(text).keys() == ModelConfig.model_fields.keys()
    assert text.startswith('{\n  "model_type"')


def test_both_forms_of_rotary_parameters():
    scaling = {"rope_type": "linear", "factor": 2.0}
    new = ModelConfig.from_dict(TINY | {"rope_parameters": scaling | {"rope_theta": 5000.0}})
    assert new == ModelConfig.from_dict(TINY | {"rope_scaling": scaling, "rope_theta": 5000.0})
    assert ModelConfig.from_dict(TINY | {"rope_parameters": {"rope_theta": 5000.0}}).rope_scaling is None


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "config.json"
    for text, says in (("{", "JSON"), ('{"vocab_size": 5}', "hidden_size"), ("[]", "an object")):
        path.write_text(text)
        with pytest.raises(ModelConfigError, match=says) as caught:
            ModelConfig.from_file(path)
        assert str(path) in str(caught.value)
    with pytest.raises(FileNotFoundError):
        ModelConfig.from_file(tmp_path / "none.json")


def test_values_are_checked_and_frozen_when_changed():
    config = tiny().with_values(neftune_alpha=5.0)
    assert config.neftune_alpha == 5
    with pytest.raises(ModelConfigError):
        config.with_values(hidden_size=9)
    with pytest.raises(Exception, match="frozen"):
        config.hidden_size = 16


@pytest.mark.parametrize(("name", "low", "high"), [("nano", 1e6, 3e6), ("tiny", 1e7, 2e7), ("small", 7e7, 1e8)])
def test_presets(name, low, high):
    model = Transformer(preset(name, vocab_size=8192), device="meta")
    assert low < model.num_parameters(embeddings=False) < high
    config = model.config
    attention = config.head_dim * config.hidden_size * 2 * (config.num_attention_heads + config.num_key_value_heads)
    layer = attention + 3 * config.hidden_size * config.intermediate_size + 2 * config.hidden_size
    own = config.num_hidden_layers * layer + config.hidden_size
    assert model.num_parameters(embeddings=False) == own
    assert model.num_parameters() == own + 8192 * config.hidden_size
    assert preset(name, vocab_size=100, num_hidden_layers=1).num_hidden_layers == 1


def test_an_unknown_preset():
    assert set(PRESETS) == {"nano", "tiny", "small"}
    with pytest.raises(ModelConfigError, match="nano, tiny, small"):
        preset("smal", vocab_size=10)
