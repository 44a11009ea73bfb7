"""The random number generators of a process: Python's, NumPy's and torch's, on the CPU and the device."""

import random

import numpy as np
import torch


def seed_all(seed: int) -> None:
    """Begin all of them anew."""
    random.seed(seed)
    np.random.seed(seed % (1 << 32))
    torch.manual_seed(seed)  # of every device


def random_state(device: torch.device) -> tuple[dict[str, torch.Tensor], dict]:
    """Torch's states as uint8 tensors, by kind of device, and the others as plain JSON."""
    tensors = {"cpu": torch.get_rng_state()}
    if device.type in ("cuda", "mps"):
        tensors[device.type] = getattr(torch, device.type).get_rng_state()
    name, keys, *rest = np.random.get_state()
    return tensors, {"python": random.getstate(), "numpy": [name, keys.tolist(), *rest]}


def restore_random_state(tensors: dict[str, torch.Tensor], others: dict, device: torch.device) -> None:
    """Go on where `random_state` was; the device's only if it is of the same kind."""
    torch.set_rng_state(tensors["cpu"])
    if device.type in tensors and device.type != "cpu":
        getattr(torch, device.type).set_rng_state(tensors[device.type])
    version, internal, gauss = others["python"]
    random.setstate((version, tuple(internal), gauss))
    np.random.set_state(tuple(others["numpy"]))
