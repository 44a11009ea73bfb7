"""The engine: requests in, text out, one ragged forward a step.

Names are imported when they are asked for: what a user may choose is checked without torch.
"""

import importlib

_HOMES = {
    "Completion": "sequence",
    "Engine": "engine",
    "EngineOptions": "options",
    "Job": "sequence",
    "SamplingParams": "sampling_params",
    "Sequence": "sequence",
    "Update": "sequence",
    "load_engine": "loading",
}

__all__ = ["Completion", "Engine", "EngineOptions", "Job", "SamplingParams", "Sequence", "Update", "load_engine"]


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
