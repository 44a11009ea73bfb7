"""Small models and a slow, plain twin of the decoder, for the tests of models and of what uses them."""

import torch

from astrai_train.models import ModelConfig, Transformer

TINY = {
    "vocab_size": 1000,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 16,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
}
SMALL = TINY | {"vocab_size": 97, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2}


def tiny(**changes) -> ModelConfig:
    """The configuration that the acceptance cases call "Tiny", changed."""
    return ModelConfig(**TINY | changes)


def lively(config: ModelConfig, dtype: torch.dtype = torch.float64, seed: int = 0) -> Transformer:
    """A model whose weights are large enough for attention, norms and gates to matter."""
    torch.manual_seed(seed)
    model = Transformer(config).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3 + (parameter.dim() == 1))
    return model


def packed_row(lengths: list[int], vocab_size: int, seed: int = 0) -> dict[str, torch.Tensor]:
    """`input_ids`, `position_ids`, `cu_seqlens` of a row of documents with these lengths."""
    generator = torch.Generator().manual_seed(seed)
    return {
        "input_ids": torch.randint(0, vocab_size, (sum(lengths),), generator=generator),
        "position_ids": torch.cat([torch.arange(length) for length in lengths]),
        "cu_seqlens": torch.tensor([0, *lengths]).cumsum(0).to(torch.int32),
    }


def slow_logits(model: Transformer, ids: list[int]) -> torch.Tensor:
    """Logits [S, V] of one document in float64, one head and one query at a time; differentiable."""
    config = model.config
    weight = {name: tensor.double() for name, tensor in model.state_dict(keep_vars=True).items()}
    stream = weight["model.embed_tokens.weight"][ids]
    for layer in range(config.num_hidden_layers):
        part = {
            name.removeprefix(f"model.layers.{layer}.").removesuffix(".weight"): tensor
            for name, tensor in weight.items()
            if name.startswith(f"model.layers.{layer}.")
        }
        stream = stream + _slow_attention(config, part, _slow_norm(config, stream, part["input_layernorm"]))
        inner = _slow_norm(config, stream, part["post_attention_layernorm"])
        gate = inner @ part["mlp.gate_proj"].T
        inner = gate / (1 + torch.exp(-gate)) * (inner @ part["mlp.up_proj"].T)
        stream = stream + inner @ part["mlp.down_proj"].T
    head = weight["model.embed_tokens.weight" if config.tie_word_embeddings else "lm_head.weight"]
    return _slow_norm(config, stream, weight["model.norm.weight"]) @ head.T


def _slow_norm(config, x, weight):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + config.rms_norm_eps) * weight


def _slow_rotate(config, x, position):
    half, out = config.head_dim // 2, torch.empty_like(x)
    for pair in range(half):
        one, two = (pair, pair + half) if config.rope_layout == "half" else (2 * pair, 2 * pair + 1)
        angle = torch.tensor(position * config.rope_theta ** (-2 * pair / config.head_dim), dtype=torch.float64)
        out[one] = x[one] * angle.cos() - x[two] * angle.sin()
        out[two] = x[one] * angle.sin() + x[two] * angle.cos()
    return out


def _slow_head(config, part, name, projected, position):
    """One head's query or key at one position, normed and rotated in the configured order."""
    if not config.use_qk_norm:
        return _slow_rotate(config, projected, position)
    if config.qk_norm_position == "before":
        return _slow_rotate(config, _slow_norm(config, projected, part[f"self_attn.{name}_norm"]), position)
    return _slow_norm(config, _slow_rotate(config, projected, position), part[f"self_attn.{name}_norm"])


def _slow_attention(config, part, x):
    dim, group = config.head_dim, config.num_attention_heads // config.num_key_value_heads
    q, k, v = (x @ part[f"self_attn.{name}_proj"].T for name in "qkv")
    out = torch.zeros_like(q)
    for head in range(config.num_attention_heads):
        own, shared = slice(head * dim, (head + 1) * dim), slice(head // group * dim, (head // group + 1) * dim)
        keys = torch.stack([_slow_head(config, part, "k", k[t, shared], t) for t in range(len(x))])
        for t in range(len(x)):
            scores = keys[: t + 1] @ _slow_head(config, part, "q", q[t, own], t) / dim**0.5
            weights = torch.exp(scores - scores.max())
            out[t, own] = weights / weights.sum() @ v[: t + 1, shared]
    if config.use_gated_attention:
        out = out * torch.sigmoid(x @ part["self_attn.output_gate"].T)
    return out @ part["self_attn.o_proj"].T
