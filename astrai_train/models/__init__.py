"""Language models: configuration, network, files.

Names are imported when they are asked for: finding a model and reading its configuration take no torch.
"""

import importlib

_HOMES = {
    "PRESETS": "presets",
    "AttentionContext": "attention",
    "ModelConfig": "config",
    "ModelConfigError": "errors",
    "ModelError": "errors",
    "ModelNotFoundError": "errors",
    "NotSupportedYetError": "errors",
    "PackedAttention": "packed_attention",
    "Transformer": "transformer",
    "load_model": "directory",
    "preset": "presets",
    "save_model": "directory",
}

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


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
