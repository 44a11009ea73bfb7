"""Names of weights: ours are Llama's; older names of ours and wrappers' prefixes are understood."""

import re

WRAPPERS = frozenset({"_orig_mod", "module", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"})
"""What compiling, distributing and checkpointing put into the names of a wrapped model."""
RECOMPUTED = re.compile(r".*\.rotary_emb\.inv_freq")
OLD_MODULES = {
    "input_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "attention": "self_attn",
    "attention.gate": "self_attn.output_gate",
    "mlp.up": "mlp.up_proj",
    "mlp.gate": "mlp.gate_proj",
    "mlp.down": "mlp.down_proj",
}
"""Within a layer: the module's old name, or that of the module and its part, and the present one."""


def plain_name(name: str) -> str:
    """A parameter's name without what wrappers added."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def own_weight_name(name: str) -> str | None:
    """The present name of a weight in a file; None for what is computed anew anyway."""
    name = plain_name(name)
    if RECOMPUTED.fullmatch(name):
        return None
    if name.startswith(("embed_tokens.", "norm.")):
        return f"model.{name}"
    if name.startswith("layers."):
        _, layer, module, *rest = name.split(".")
        return f"model.layers.{layer}." + ".".join(_present(module, rest))
    return name


def _present(module: str, rest: list[str]) -> list[str]:
    both = f"{module}.{rest[0]}" if rest else module
    return [OLD_MODULES[both], *rest[1:]] if both in OLD_MODULES else [OLD_MODULES.get(module, module), *rest]
