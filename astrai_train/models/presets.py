"""Ready-made sizes.

| name  | parameters besides embeddings | for |
|---|---|---|
| nano  | 1.6 M | learning in minutes on a laptop's processor; tests and demos |
| tiny  | 13 M  | an hour on a processor, minutes on a GPU |
| small | 86 M  | a day on one GPU |
"""

from typing import Any

from astrai_data.config.problems import nearest
from astrai_train.models.config import ModelConfig
from astrai_train.models.errors import ModelConfigError

PRESETS: dict[str, dict[str, Any]] = {
    "nano": {
        "hidden_size": 192,
        "num_hidden_layers": 4,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "intermediate_size": 512,
        "max_position_embeddings": 4096,
    },
    "tiny": {
        "hidden_size": 384,
        "num_hidden_layers": 8,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "intermediate_size": 1088,
        "max_position_embeddings": 8192,
    },
    "small": {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
        "intermediate_size": 2432,
        "max_position_embeddings": 32768,
        "rope_theta": 100000.0,
    },
}
COMMON = {"tie_word_embeddings": True, "rms_norm_eps": 1e-5}


def preset(name: str, *, vocab_size: int, **changes: Any) -> ModelConfig:
    """A ready-made configuration for a vocabulary; `changes` are fields of `ModelConfig` that win.

    Raises:
        ModelConfigError: no such preset, or changes that do not fit.
    """
    if name not in PRESETS:
        wanted, hint = "one of " + ", ".join(PRESETS), nearest(name, PRESETS) or "nano, the smallest"
        raise ModelConfigError("unknown preset of a model", where="the preset", got=name, wanted=wanted, hint=hint)
    return ModelConfig(**COMMON | PRESETS[name] | {"vocab_size": vocab_size} | changes)
