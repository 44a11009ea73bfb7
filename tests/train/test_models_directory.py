"""Model directories: what is written is what is read, by us and by a plain reader; what does not fit is refused."""

import json
import struct

import pytest
import torch

from astrai_train.models import ModelError, ModelNotFoundError, PackedAttention, Transformer, load_model, save_model
from tests.train.small_models import SMALL, TINY, lively, packed_row, slow_logits, tiny

VARIANTS = {"untied": {}, "tied": {"tie_word_embeddings": True}, "qk norm": {"use_qk_norm": True}}


def plain_read(path):
    """A reader of the format with nothing of ours in it."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header, data = json.loads(data[8 : 8 + size]), data[8 + size :]
    dtypes = {"F32": torch.float32, "BF16": torch.bfloat16, "F64": torch.float64, "F16": torch.float16}
    return {
        name: torch.frombuffer(bytearray(data[slice(*entry["data_offsets"])]), dtype=dtypes[entry["dtype"]]).view(
            entry["shape"]
        )
        for name, entry in header.items()
        if name != "__metadata__"
    }, header.get("__metadata__")


def plain_write(path, tensors):
    names = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float64: "F64", torch.float16: "F16"}
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = tensor.contiguous().view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": names[tensor.dtype], "shape": [*tensor.shape], "data_offsets": [len(data)]}
        data += raw
        header[name]["data_offsets"].append(len(data))
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def logits(model, row):
    return model(row["input_ids"], row["position_ids"], PackedAttention(row["cu_seqlens"]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_saved_and_loaded_it_has_the_same_bits(tmp_path, changes, dtype):
    model = lively(tiny(**SMALL | changes), dtype)
    save_model(model, tmp_path / "new" / "model")
    loaded = load_model(tmp_path / "new" / "model", dtype=dtype)
    assert loaded.config == model.config
    assert not loaded.training
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    same = zip(model.state_dict().items(), loaded.state_dict().items(), strict=True)
    assert all(a == b and torch.equal(x, y) for (a, x), (b, y) in same)
    row = packed_row([6, 3], 97)
    assert torch.equal(logits(model, row), logits(loaded, row))
    assert sorted(path.name for path in (tmp_path / "new" / "model").iterdir()) == ["config.json", "model.safetensors"]


def test_a_plain_reader_finds_the_names_of_llama_and_tied_weights_once(tmp_path):
    model = lively(tiny(tie_word_embeddings=True), torch.float32)
    save_model(model, tmp_path)
    tensors, metadata = plain_read(tmp_path / "model.safetensors")
    assert metadata == {"format": "pt"}
    assert "lm_head.weight" not in tensors
    assert len(tensors) == 20
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in tensors.items())


def llama_directory(folder, model, dtype=torch.float32):
    """What Hugging Face's library writes for a Llama: its config keys, its names."""
    config = {key: value for key, value in model.config.to_dict().items() if key in TINY} | {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "head_dim": model.config.head_dim,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "mlp_bias": False,
        "model_type": "llama",
        "pretraining_tp": 1,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "tie_word_embeddings": model.config.tie_word_embeddings,
        "torch_dtype": "float32",
        "transformers_version": "4.45.0",
        "use_cache": True,
    }
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return {name: tensor.to(dtype) for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("tied", [False, True])
def test_a_llama_directory(tmp_path, tied):
    model = lively(tiny(**SMALL | {"tie_word_embeddings": tied}))
    tensors = llama_directory(tmp_path, model, torch.float64)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    plain_write(tmp_path / "model.safetensors", tensors)
    loaded, row = load_model(tmp_path, dtype=torch.float64), packed_row([9], 97)
    slow = slow_logits(model, row["input_ids"].tolist())  # an independent half-layout rotation
    torch.testing.assert_close(logits(loaded, row), slow, rtol=1e-10, atol=1e-10)
    save_model(loaded, tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text())["model_type"] == "llama"


def test_shards_with_an_index_equal_one_file(tmp_path):
    model = lively(tiny(), torch.float32)
    tensors = llama_directory(tmp_path, model)
    names = list(tensors)
    parts = {"model-00001-of-00002.safetensors": names[:9], "model-00002-of-00002.safetensors": names[9:]}
    for file, inside in parts.items():
        plain_write(tmp_path / file, {name: tensors[name] for name in inside})
    index = {"metadata": {}, "weight_map": {name: file for file, inside in parts.items() for name in inside}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    loaded = load_model(tmp_path)
    assert all(torch.equal(tensors[name], tensor) for name, tensor in loaded.state_dict().items())
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelNotFoundError, match="00002-of-00002"):
        load_model(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../b"}}')
    with pytest.raises(ModelError, match="beside its index"):
        load_model(tmp_path)


def test_older_names_of_ours_and_the_names_of_a_compiled_model(tmp_path):
    old = {"self_attn.output_gate": "attention.gate", "self_attn": "attention", "input_layernorm": "input_norm"}
    old |= {"post_attention_layernorm": "post_attention_norm", "mlp.up_proj": "mlp.up", "mlp.down_proj": "mlp.down"}
    old |= {"mlp.gate_proj": "mlp.gate", "model.": "_orig_mod."}
    changes = {"use_gated_attention": True, "use_qk_norm": True, "qk_norm_position": "after"}
    model = lively(tiny(**SMALL | changes, rope_layout="interleaved"))
    config = {key: value for key, value in model.config.to_dict().items() if key not in ("rope_layout",)}
    del config["qk_norm_position"], config["head_dim"], config["initializer_range"]
    tensors = {}
    for name, tensor in model.state_dict().items():
        for new, was in old.items():
            name = name.replace(new, was)
        tensors[name] = tensor
    assert "_orig_mod.layers.1.attention.gate.weight" in tensors
    (tmp_path / "config.json").write_text(json.dumps(config | {"kv_lora_rank": None, "topk_method": None}))
    plain_write(tmp_path / "model.safetensors", tensors)
    row = packed_row([6, 3], 97)
    assert torch.equal(logits(load_model(tmp_path, dtype=torch.float64), row), logits(model, row))


@pytest.mark.parametrize("stored", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("wanted", [None, torch.float32, torch.bfloat16])
def test_weights_are_converted(tmp_path, stored, wanted):
    model = lively(tiny(), torch.float32)
    plain_write(tmp_path / "model.safetensors", llama_directory(tmp_path, model, stored))
    for name, tensor in load_model(tmp_path, dtype=wanted).state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name].to(stored).to(wanted or torch.float32))


def test_an_untied_model_from_a_tied_file_gets_its_own_head(tmp_path):
    model = lively(tiny(tie_word_embeddings=True), torch.float32)
    save_model(model, tmp_path)
    tiny().to_file(tmp_path / "config.json")
    loaded = load_model(tmp_path)
    assert torch.equal(loaded.lm_head.weight, loaded.model.embed_tokens.weight)
    assert loaded.lm_head.weight.data_ptr() != loaded.model.embed_tokens.weight.data_ptr()
    assert "lm_head.weight" in loaded.state_dict()


def test_a_tied_model_from_an_untied_file_takes_the_embedding(tmp_path):
    model = lively(tiny(), torch.float32)
    save_model(model, tmp_path)
    tiny(tie_word_embeddings=True).to_file(tmp_path / "config.json")
    loaded = load_model(tmp_path)
    assert torch.equal(loaded.head_weight, model.model.embed_tokens.weight)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.pop("model.norm.weight"), "missing: model.norm.weight"),
        (lambda t: t.update({"model.extra.weight": torch.ones(1)}), "unexpected: model.extra.weight"),
        (lambda t: t.update({"model.norm.weight": torch.ones(9)}), r"model.norm.weight \(9,\) instead of \(8,\)"),
        (lambda t: t.update({"norm.weight": torch.ones(8)}), "twice"),
        (lambda t: (t.pop("model.embed_tokens.weight"), t.pop("lm_head.weight")), "lm_head.weight, model.embed"),
        (lambda t: t.clear(), "and 11 more"),
    ],
)
def test_weights_that_do_not_fit(tmp_path, change, says):
    tensors = llama_directory(tmp_path, lively(tiny(), torch.float32))
    change(tensors)
    plain_write(tmp_path / "model.safetensors", tensors)
    with pytest.raises(ModelError, match=says):
        load_model(tmp_path)


def test_directories_that_are_no_model(tmp_path):
    for prepare, says in (
        (lambda: None, "no model here"),
        (lambda: tiny().to_file(tmp_path / "config.json"), "no weights"),
    ):
        prepare()
        with pytest.raises(FileNotFoundError, match=says):
            load_model(tmp_path)
    with pytest.raises(ModelNotFoundError):
        load_model(tmp_path / "none")


def test_saving_over_a_model_leaves_one_model_and_no_litter(tmp_path):
    for seed in (0, 1):
        model = lively(tiny(), torch.float32, seed)
        save_model(model, tmp_path)
    assert torch.equal(load_model(tmp_path).head_weight, model.head_weight)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_wrapped_model_is_saved_under_plain_names(tmp_path):
    model = lively(tiny(), torch.float32)
    save_model(torch.compile(model), tmp_path / "whole")
    model.model.layers[0] = torch.compile(model.model.layers[0])
    save_model(torch.nn.DataParallel(model), tmp_path / "part")
    whole, part = (plain_read(tmp_path / name / "model.safetensors")[0] for name in ("whole", "part"))
    assert list(whole) == list(part)
    assert whole.keys() == Transformer(tiny(), device="meta").state_dict().keys()
