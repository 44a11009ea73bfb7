"""The configuration of a decoder language model: what stands in `config.json`.

Field names are those of Hugging Face's Llama configuration where it has them. A key that is not known is an error, a
configuration that cannot be built is one too, at once and not in the first forward. Two defaults depend on who wrote
the file: see `ModelConfig.from_dict`.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, ValidationError

from astrai_data.config.files import read_object
from astrai_data.config.part import ConfigPart
from astrai_data.config.problems import config_error, nearest, of_validation, shown
from astrai_data.errors import AstraiError, PipelineConfigError
from astrai_data.store.files import write_bytes
from astrai_train.models.config_checks import problems_between
from astrai_train.models.config_names import own_names
from astrai_train.models.errors import ModelConfigError, ModelNotFoundError, NotSupportedYetError
from astrai_train.models.rope_scaling import RopeScaling

FLOAT32_EPSILON = 2.0**-23
"""What a missing epsilon has always meant, fixed so that it does not change with the dtype of the weights."""
MODEL_TYPES = ("autoregressive_lm", "llama")
LATER_CHOICES = {
    "model_type": {"embedding": "encoder"},
    "attn_type": {"mla": "latent attention (MLA)"},
    "ffn_type": {"moe": "mixture of experts"},
}
LAYOUT_DEFAULTS = {
    "autoregressive_lm": {"rope_layout": "interleaved", "qk_norm_position": "after"},
    "llama": {"rope_layout": "half"},
}
"""What a file of each type means where it does not say."""

Count = Annotated[int, Field(gt=0)]
MAX_LAYERS = 10_000
"""More are a slip of the pen; building them would take all time and memory before a weight is looked at."""


class ModelConfig(ConfigPart):
    """Sizes and switches of one decoder; frozen, checked, every value resolved.

    Raises:
        ModelConfigError: a key that is unknown, a value of the wrong type, sizes that do not fit together.
    """

    model_type: Literal["autoregressive_lm", "llama"] = "autoregressive_lm"
    """Who reads the file: `autoregressive_lm` is ours, `llama` Hugging Face's."""
    vocab_size: Count
    """Rows of the embedding."""
    hidden_size: Count
    """Width of the residual stream."""
    num_hidden_layers: Annotated[int, Field(gt=0, le=MAX_LAYERS)]
    """Number of blocks."""
    num_attention_heads: Count
    """Query heads."""
    num_key_value_heads: Count | None = None
    """Key and value heads, each read by as many query heads; null: as many as query heads."""
    head_dim: Count | None = None
    """Width of a head; null: hidden_size / num_attention_heads."""
    intermediate_size: Count
    """Inner width of the feed-forward part."""
    max_position_embeddings: Count
    """Positions the model knows, before a `rope_scaling` that stretches them."""
    rms_norm_eps: Annotated[float, Field(gt=0)] | None = None
    """Epsilon of every RMSNorm; null: 2**-23."""
    rope_theta: Annotated[float, Field(gt=1)] = 10000.0
    """Base of the rotary frequencies."""
    rope_scaling: dict[str, Any] | None = None
    """Stretching of the rotary positions: `type` or `rope_type`, `factor` and what the type needs."""
    rope_layout: Literal["half", "interleaved"] = "half"
    """Which dimensions turn together: (j, j + head_dim/2), as in Hugging Face's files, or (2j, 2j+1)."""
    tie_word_embeddings: bool = False
    """The head is the embedding."""
    attn_type: Literal["gqa", "mla"] = "gqa"
    """Kind of attention."""
    ffn_type: Literal["mlp", "moe"] = "mlp"
    """Kind of feed-forward part."""
    use_qk_norm: bool = False
    """RMSNorm over each head's query and key."""
    qk_norm_position: Literal["before", "after"] = "before"
    """Whether that norm comes before or after the rotation."""
    use_gated_attention: bool = False
    """Multiply the attention's output by a sigmoid gate of its input."""
    neftune_alpha: Annotated[float, Field(ge=0)] = 0.0
    """Noise on the embeddings in training (NEFTune, arXiv:2310.05914, algorithm 1); 0: none."""
    initializer_range: Annotated[float, Field(gt=0)] = 0.02
    """Standard deviation of fresh weights."""

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise config_error(of_validation(type(self), error), ModelConfigError, "model") from None
        self.__dict__.update(_resolved(self))
        if problems := list(problems_between(self)):
            raise config_error(problems, ModelConfigError, "model")
        _refuse_later(self.__dict__)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """The configuration that a `config.json` holds: old names, nulls and other libraries' bookkeeping accepted.

        A file without `rope_layout` or `qk_norm_position` was written before these keys existed and keeps the meaning
        it had: `interleaved` and `after` for our own type, `half` for Hugging Face's. `ModelConfig(...)` and
        `to_dict` know nothing of this: there the newer defaults hold and both keys are always written.
        """
        if not isinstance(raw, Mapping):
            raise ModelConfigError(
                "a model configuration is a JSON object",
                where="the configuration",
                got=shown(raw),
                wanted="an object",
                hint='put the keys into {...}, as in {"vocab_size": 16384, "hidden_size": 256, ...}',
            )
        model_type = raw.get("model_type") or "autoregressive_lm"
        _check_type(model_type)
        return cls(**LAYOUT_DEFAULTS[model_type] | own_names(dict(raw) | {"model_type": model_type}))

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """The configuration in a UTF-8 JSON file, as `from_dict` reads it."""
        path = Path(path)
        if not os.path.isfile(path):  # unlike that of Path, False for a name that is too long
            got = "a folder" if os.path.isdir(path) else "nothing"
            wanted, hint = "config.json of a model directory", "check the path, or take a preset: nano, tiny or small"
            raise ModelNotFoundError("no model configuration", where=path, got=got, wanted=wanted, hint=hint)
        try:
            return cls.from_dict(read_object(path))
        except (PipelineConfigError, ModelConfigError) as error:
            kind = type(error) if isinstance(error, ModelConfigError) else ModelConfigError
            raise kind(error.what, **_in_file(error, path)) from None

    def to_dict(self) -> dict[str, Any]:
        """Every field, in the order of the declarations."""
        return self.model_dump()

    def to_file(self, path: str | Path) -> None:
        """Write `to_dict` as JSON, whole or not at all."""
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"
        write_bytes(Path(path), text.encode(), durable=True)

    def with_values(self, **changes: Any) -> Self:
        """A copy with some fields changed, checked anew; what was derived from them is derived again."""
        return type(self)(**self.model_dump(exclude_unset=True) | changes)

    @property
    def scaling(self) -> RopeScaling:
        """The stretching of the rotary positions."""
        return RopeScaling.from_dict(self.rope_scaling)

    @property
    def num_positions(self) -> int:
        """Positions 0 to this, exclusive, can be used."""
        return self.scaling.num_positions(self.max_position_embeddings)


def _resolved(config: ModelConfig) -> dict[str, Any]:
    heads = config.num_attention_heads
    return {
        "num_key_value_heads": config.num_key_value_heads or heads,
        "head_dim": config.head_dim or config.hidden_size // heads,
        "rms_norm_eps": config.rms_norm_eps or FLOAT32_EPSILON,
    }


def _check_type(model_type: Any) -> None:
    _refuse_later({"model_type": model_type})
    if model_type not in MODEL_TYPES:
        raise ModelConfigError(
            "unknown kind of model",
            where="model_type",
            got=shown(model_type),
            wanted="one of " + ", ".join(MODEL_TYPES),
            hint=nearest(model_type, MODEL_TYPES) or "leave it out for a model of our own type",
        )


def _refuse_later(values: Mapping[str, Any]) -> None:
    for key, later in LATER_CHOICES.items():
        if (part := later.get(str(values.get(key)))) is not None:
            choices = [choice for choice in get_args(ModelConfig.model_fields[key].annotation) if choice not in later]
            wanted = "one of " + ", ".join(choices)
            hint = "take another model, or leave the key out"
            raise NotSupportedYetError(
                f"{part}: not supported yet", where=key, got=shown(values[key]), wanted=wanted, hint=hint
            )


def _in_file(error: AstraiError, path: Path) -> dict[str, Any]:
    where = str(error.where) if error.where else None
    if where is None or not where.startswith(str(path)):
        where = f"{path}: {where}" if where else str(path)
    return {"where": where, "got": error.got, "wanted": error.wanted, "hint": error.hint}
