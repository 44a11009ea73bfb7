"""The one door through which `astrai_kernels` may serve the models."""

import functools
import importlib
import logging
from collections.abc import Callable

import torch


@functools.cache
def compiled_op(name: str, device_type: str, dtype: torch.dtype) -> Callable | None:
    """A compiled `rotary` or `attention_varlen` for tensors of this kind, or None: then torch does it.

    `astrai_kernels.compiled(name, device_type, dtype)` answers; it returns None wherever its own fallback would be
    torch as well. Asked once for each kind; the answer is logged.

        rotary(q [T, Hq, D], k [T, Hkv, D], cos [T, D/2], sin [T, D/2], interleaved: bool) -> (q, k)
        attention_varlen(q [T, Hq, D], k [T, Hkv, D], v, cu_seqlens int32 [n+1], max_seqlen, scale) -> [T, Hq, D]

    Both must be differentiable; the attention is causal inside each segment.
    """
    try:
        ask = getattr(importlib.import_module("astrai_kernels"), "compiled", None)
    except ImportError as error:
        found, reason = None, f"astrai_kernels is not there ({error})"
    else:
        found = ask and ask(name, device_type, dtype)
        reason = "astrai_kernels has it compiled" if found else "astrai_kernels has nothing compiled for it"
    logging.getLogger(__name__).info("%s on %s in %s: %s", name, device_type, dtype, reason)
    return found
