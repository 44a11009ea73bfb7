"""Text in, token stores out."""

import importlib

_HOMES = {
    "Pipeline": "astrai_data.run",
    "PipelineConfig": "astrai_data.config",
    "TokenStore": "astrai_data.store",
    "Tokenizer": "astrai_data.tokenizer",
}

__all__ = ["Pipeline", "PipelineConfig", "TokenStore", "Tokenizer"]


def __getattr__(name: str):
    """The public classes, imported when they are asked for: a store opens without the tokenizer libraries."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
