"""Language models: configuration, network, files."""

from astrai_train.models.attention import AttentionContext
from astrai_train.models.config import ModelConfig
from astrai_train.models.directory import load_model, save_model
from astrai_train.models.errors import ModelConfigError, ModelError, ModelNotFoundError, NotSupportedYetError
from astrai_train.models.packed_attention import PackedAttention
from astrai_train.models.presets import PRESETS, preset
from astrai_train.models.transformer import Transformer

__all__ = [
    "PRESETS",
    "AttentionContext",
    "ModelConfig",
    "ModelConfigError",
    "ModelError",
    "ModelNotFoundError",
    "NotSupportedYetError",
    "PackedAttention",
    "Transformer",
    "load_model",
    "preset",
    "save_model",
]
