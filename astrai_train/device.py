"""Where and in what training computes: decided once, with the reason in words."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch

from astrai_train.errors import TrainError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Precision:
    """A device and what is computed in on it. The weights are float32 whatever it says.

    Attributes:
        device: of model and batches.
        dtype: torch.float32, or torch.bfloat16 for autocast.
        device_reason, dtype_reason: why.
    """

    device: torch.device
    dtype: torch.dtype
    device_reason: str
    dtype_reason: str

    def autocast(self) -> AbstractContextManager:
        """The context for forward passes."""
        return nullcontext() if self.dtype == torch.float32 else torch.autocast(self.device.type, self.dtype)


def choose_precision(device: str = "auto", dtype: str = "auto") -> Precision:
    """Settle `auto`, and refuse what this machine does not have.

    Raises:
        TrainError: no such device here, or one that cannot compute in this dtype.
    """
    chosen, reason = _choose_device(device)
    kind, why = _choose_dtype(dtype, chosen)
    precision = Precision(chosen, kind, reason, why)
    _try_out(precision)
    return precision


@contextmanager
def cpu_threads(count: int | None) -> Iterator[None]:
    """Let torch compute on the CPU with so many threads inside the block; None: leave it as it is."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count is not None:
            torch.set_num_threads(before)


def _choose_device(name: str) -> tuple[torch.device, str]:
    if name != "auto":
        return _named_device(name), "asked for"
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device()), torch.cuda.get_device_name()
    if torch.backends.mps.is_available():
        return torch.device("mps"), "no CUDA here, but MPS"
    return torch.device("cpu"), "neither CUDA nor MPS here"


def _named_device(name: str) -> torch.device:
    wanted = "auto, cpu, cuda, cuda:N or mps"
    try:
        device = torch.device(name)
    except RuntimeError:
        hint = "auto takes the best that is here"
        raise TrainError("there is no such device", where="device", got=name, wanted=wanted, hint=hint) from None
    available = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if (device.index or 0) >= available.get(device.type, 0):
        here = ", ".join(kind for kind, count in available.items() if count)
        wanted, hint = f"auto, or one of: {here}", "auto takes the best that is here; `astrai doctor` says what is"
        raise TrainError("this machine has no such device", where="device", got=name, wanted=wanted, hint=hint)
    return device


def _choose_dtype(name: str, device: torch.device) -> tuple[torch.dtype, str]:
    if name != "auto":
        return DTYPES[name], "asked for"
    if device.type != "cuda":
        return torch.float32, f"on {device.type} bfloat16 has to be asked for"
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.bfloat16, "the device has it; weights stay float32"
    return torch.float32, "the device has no bfloat16"


def _try_out(precision: Precision) -> None:
    """One small product, so that what cannot work fails now and in our words."""
    try:
        one = torch.ones(8, 8, device=precision.device)
        with precision.autocast():
            (one @ one).sum().item()
    except RuntimeError as error:
        got = f"{precision.device} in {precision.dtype}: {error}"
        what, wanted = "the device does not compute in this dtype", "a dtype and a device that go together"
        hint = "--dtype float32, or another --device"
        raise TrainError(what, where="dtype", got=got, wanted=wanted, hint=hint) from error
