"""Loading: what a store holds, as batches of tensors. The only room of astrai_data that imports torch.

Names are imported when they are asked for: the worker processes need none of torch.
"""

import importlib

_HOMES = {
    "FlatWindows": "windows",
    "LoadError": "errors",
    "Order": "order",
    "PackedLoader": "loader",
    "PackedRows": "rows",
}

__all__ = ["FlatWindows", "LoadError", "Order", "PackedLoader", "PackedRows"]


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
