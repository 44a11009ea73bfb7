"""Key names of `config.json` that are not ours: old names, bookkeeping, and what is not supported yet.

Every key of a file is one of: a field of `ModelConfig`, an old name of one, bookkeeping of other libraries (dropped),
a switch of a part that is not built yet (accepted only where it switches nothing), or an error.
"""

import warnings
from typing import Any

from astrai_data.config.problems import shown
from astrai_train.models.errors import ModelConfigError, NotSupportedYetError

OLD_NAMES = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "norm_eps": "rms_norm_eps",
    "dim_ffn": "intermediate_size",
    "tie_weight": "tie_word_embeddings",
    "max_len": "max_position_embeddings",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "qk_norm": "use_qk_norm",
}

BOOKKEEPING = frozenset({
    "_name_or_path", "architectures", "bos_token_id", "dtype", "eos_token_id", "pad_token_id", "torch_dtype",
    "transformers_version", "use_cache",
    "topk_method",  # of mixtures of experts; never read by anything
    "moe_aux_loss_coef",  # the trainer has its own
    "pretraining_tp",  # how the weights were once split; the result is the same up to rounding
})  # fmt: skip

INERT_VALUES: dict[str, tuple[tuple, str]] = {
    "kv_lora_rank": ((), "latent attention (MLA)"),
    "qk_nope_head_dim": ((), "latent attention (MLA)"),
    "qk_rope_head_dim": ((), "latent attention (MLA)"),
    "n_routed_experts": ((0,), "mixture of experts"),
    "n_shared_experts": ((0,), "mixture of experts"),
    "n_activated_experts": ((0,), "mixture of experts"),
    "num_local_experts": ((0,), "mixture of experts"),
    "moe_intermediate_size": ((), "mixture of experts"),
    "shared_expert_intermediate_size": ((), "mixture of experts"),
    "norm_topk_prob": ((True, False), "mixture of experts"),
    "decoder_sparse_step": ((1,), "mixture of experts"),
    "mlp_only_layers": (([],), "mixture of experts"),
    "pooling_type": ((), "encoder"),
    "normalize_embeddings": ((False,), "encoder"),
    "attention_bias": ((False,), "bias in projections"),
    "qkv_bias": ((False,), "bias in projections"),
    "mlp_bias": ((False,), "bias in projections"),
    "hidden_act": (("silu",), "another activation than SiLU"),
    "attention_dropout": ((0,), "dropout"),
    "sliding_window": ((), "sliding-window attention"),
    "use_sliding_window": ((False,), "sliding-window attention"),
    "partial_rotary_factor": ((1,), "rotating a part of each head"),
    "quantization_config": ((), "quantised weights"),
}
"""Key -> (values, beside null, with which the key changes nothing; the part it belongs to)."""


def own_names(raw: dict[str, Any]) -> dict[str, Any]:
    """The keys of a `config.json` as fields of `ModelConfig`; a null is left out, the field's default stands for it.

    Unknown keys are kept: the validation names them.

    Raises:
        NotSupportedYetError: a key that switches on a part that is not built yet.
        ModelConfigError: a field given under its old and its new name with different values.
    """
    values = {key: value for key, value in raw.items() if value is not None and key not in BOOKKEEPING}
    for key in INERT_VALUES.keys() & values.keys():
        _refuse_active(key, values.pop(key))
    return _without_old_names(_without_rope_parameters(values))


def _refuse_active(key: str, value: Any) -> None:
    inert, part = INERT_VALUES[key]
    if value not in inert:
        wanted = " or ".join(["null", *map(shown, inert)])
        what, hint = f"{part}: not supported yet", "take another model, or leave the key out to do without"
        raise NotSupportedYetError(what, where=key, got=shown(value), wanted=wanted, hint=hint)


def _without_rope_parameters(values: dict[str, Any]) -> dict[str, Any]:
    # Newer Hugging Face files put the base beside the scaling: {"rope_theta": 5e5, "rope_type": "llama3", ...}.
    parameters = values.pop("rope_parameters", None)
    if not isinstance(parameters, dict):
        return values if parameters is None else values | {"rope_parameters": parameters}
    parameters = dict(parameters)
    if (theta := parameters.pop("rope_theta", None)) is not None:
        values.setdefault("rope_theta", theta)
    if parameters:
        values.setdefault("rope_scaling", parameters)
    return values


def _without_old_names(values: dict[str, Any]) -> dict[str, Any]:
    old = OLD_NAMES.keys() & values.keys()
    for key in sorted(old):
        new, value = OLD_NAMES[key], values.pop(key)
        if values.setdefault(new, value) != value:
            got = f"{key} = {shown(value)} and {new} = {shown(values[new])}"
            what, hint = "one setting has two values", f"take out {key}"
            raise ModelConfigError(what, where=new, got=got, wanted=f"{new} alone", hint=hint)
    if old:
        renamed = ", ".join(f"{key} is now {OLD_NAMES[key]}" for key in sorted(old))
        warnings.warn(f"old names in a model configuration: {renamed}", DeprecationWarning, stacklevel=4)
    return values
