"""Which path takes a call: one capability check for all operators, its reason logged once.

`auto` decides once per process whether the compiled kernels are there, so a run never changes its bits half-way
because a compiler finished: a library that is not built yet is built in the background for the next process.
"""

import logging
import os
from dataclasses import dataclass
from functools import cache

import torch

from astrai_kernels import native
from astrai_kernels.errors import KernelArgumentError, KernelError

BACKENDS = ("auto", "torch", "cpu")
VARIABLE = "ASTRAI_KERNELS"
NATIVE_DTYPES = (torch.float32, torch.bfloat16)
MAX_HEAD_DIM = 256
HEAD_DIM_STEP = 8


@dataclass(frozen=True)
class Choice:
    """The path of a call, `torch` or `cpu`, and why."""

    backend: str
    reason: str


def choose(op: str, x: torch.Tensor, backend: str = "") -> Choice:
    """The path for operator `op` on `x`, its first tensor [..., head_dim].

    Args:
        op: `attention_varlen` or `rotary`.
        x: only its device, dtype and last axis count.
        backend: `auto`, `torch` or `cpu`; empty: what the environment says.

    Raises:
        KernelError: `cpu` was asked for and cannot take the call; the reason stands in the message.
    """
    wanted = requested(backend)
    if wanted == "torch":
        return Choice("torch", "asked for")
    reason = refusal(op, x)
    if reason is None:
        built = native.require() if wanted == "cpu" else native.decide()
        reason = built.reason
        if built.loaded:
            return _logged(op, Choice("cpu", reason))
    if wanted == "cpu":
        raise KernelError(f"{op}: the compiled CPU kernel was asked for and cannot take this call: {reason}")
    return _logged(op, Choice("torch", reason))


def requested(backend: str = "") -> str:
    """The backend asked for: `backend`, else the environment variable ASTRAI_KERNELS, else `auto`."""
    name, source = (backend, "backend") if backend else (os.environ.get(VARIABLE, "auto"), VARIABLE)
    name = name.strip().lower() or "auto"
    if name not in BACKENDS:
        raise KernelArgumentError(f"{source}: got {name!r}, wanted one of {', '.join(BACKENDS)}")
    return name


def refusal(op: str, x: torch.Tensor) -> str | None:
    """Why the compiled kernel cannot take `x`, built or not; None: it can."""
    if x.device.type != "cpu":
        return f"tensors on {x.device.type}: the compiled kernels run on the CPU"
    if x.dtype not in NATIVE_DTYPES:
        return f"dtype {x.dtype}: compiled are {', '.join(map(str, NATIVE_DTYPES))}"
    if op == "attention_varlen" and not _compiled_head_dim(x.shape[-1]):
        return f"head_dim {x.shape[-1]}: compiled are multiples of {HEAD_DIM_STEP} up to {MAX_HEAD_DIM}"
    return None


def with_dense_rows(x: torch.Tensor) -> torch.Tensor:
    """`x` itself where its last axis is dense, as the kernels need it; else a copy."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _compiled_head_dim(head_dim: int) -> bool:
    return 0 < head_dim <= MAX_HEAD_DIM and head_dim % HEAD_DIM_STEP == 0


@cache
def _logged(op: str, choice: Choice) -> Choice:
    logging.getLogger(__name__).info("%s runs on %s: %s", op, choice.backend, choice.reason)
    return choice
