"""The one door through which `astrai_kernels` serves the models."""

import functools
import importlib
import logging
from collections.abc import Callable
from types import ModuleType

import torch


def compiled_op(name: str, x: torch.Tensor) -> Callable | None:
    """`astrai_kernels.rotary` or `.attention_varlen`, if something compiled would run for `x` [T, H, D]; else None.

    None as well where gradients are recorded: the backward of the kernels' attention is written for checking, torch's
    own is faster, and the rotation is below 1 % of a training step. Which path it is the kernels decide once, and log.
    """
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or (package := _package()) is None:
        return None
    return getattr(package, name) if package.dispatch.choose(name, x).backend != "torch" else None


@functools.cache
def _package() -> ModuleType | None:
    try:
        package = importlib.import_module("astrai_kernels")
        importlib.import_module("astrai_kernels.dispatch")
    except ImportError as error:
        logging.getLogger(__name__).info("models run on torch alone: %s", error)
        return None
    return package
