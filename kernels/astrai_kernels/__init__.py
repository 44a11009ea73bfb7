"""Compiled kernels behind torch operators: rotary embedding and variable-length attention.

Everything works without a compiler: the torch path computes the same, and the capability check in `dispatch` says
which path a call takes and why. Nothing here knows the rest of AstrAI.
"""

from astrai_kernels.errors import BuildError, KernelArgumentError, KernelError
from astrai_kernels.ops import attention_varlen, rotary
from astrai_kernels.report import report

__all__ = ["BuildError", "KernelArgumentError", "KernelError", "attention_varlen", "report", "rotary"]
