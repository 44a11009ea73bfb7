"""Rules between the fields of a `ModelConfig`: what would otherwise fail as a shape error in the first forward."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from astrai_data.config.problems import Problem, shown
from astrai_train.models.errors import ModelConfigError, NotSupportedYetError
from astrai_train.models.rope_scaling import RopeScaling

if TYPE_CHECKING:
    from astrai_train.models.config import ModelConfig


def problems_between(config: "ModelConfig") -> Iterator[Problem]:
    """Everything that is wrong with fields that are each right alone."""
    yield from _head_problems(config)
    yield from _scaling_problems(config)
    if config.model_type == "llama":
        yield from _llama_problems(config)


def _head_problems(config: "ModelConfig") -> Iterator[Problem]:
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    if heads % kv_heads:
        wanted = f"a divisor of num_attention_heads = {heads}"
        what, hint = "key heads do not divide the query heads", "1, or leave it out for as many as query heads"
        yield Problem("num_key_value_heads", what, shown(kv_heads), wanted, hint)
    if not config.is_given("head_dim") and config.hidden_size % heads:
        yield Problem(
            "num_attention_heads",
            "the hidden size cannot be divided among the heads",
            got=f"hidden_size = {config.hidden_size}, num_attention_heads = {heads}",
            wanted=f"a hidden_size that is a multiple of {heads}",
            hint="give head_dim",
        )
    elif config.head_dim % 2:
        what, hint = "rotary positions turn dimensions in pairs", f"head_dim {config.head_dim + 1}"
        yield Problem("head_dim", what, shown(config.head_dim), "an even number", hint)


def _scaling_problems(config: "ModelConfig") -> Iterator[Problem]:
    try:
        scaling = RopeScaling.from_dict(config.rope_scaling)
    except NotSupportedYetError:
        raise
    except ModelConfigError as error:
        yield Problem(error.where, error.what, error.got, error.wanted, error.hint)
        return
    if scaling.kind in ("ntk", "yarn") and config.head_dim == 2:
        what, hint = f"{scaling.kind} scaling needs more than one pair", "a larger head_dim, or linear scaling"
        yield Problem("rope_scaling", what, "head_dim = 2", "head_dim of at least 4", hint)


def _llama_problems(config: "ModelConfig") -> Iterator[Problem]:
    for name, wanted in (("use_qk_norm", False), ("use_gated_attention", False), ("rope_layout", "half")):
        if (value := getattr(config, name)) != wanted:
            hint = 'set "model_type": "autoregressive_lm"'
            yield Problem(name, "a Llama has none of this", shown(value), shown(wanted), hint)
