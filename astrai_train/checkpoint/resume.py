"""Reading what a run left behind, to go on from it; no torch before its tensors are asked for."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from astrai_train.checkpoint.marker import OPTIMIZER, RANDOM, SETTINGS, STATE, check_marker
from astrai_train.errors import CheckpointError
from astrai_train.models.finding import all_checkpoints

if TYPE_CHECKING:
    import torch

FORMAT, VERSION = "astrai-training-state", 1
NEEDED = {"step": int, "num_batches": int, "tokens": int, "seconds": (int, float)} | {
    "strategy": str, "schedule": dict, "data": dict, "random": dict
}  # fmt: skip
"""What a state of training has at least."""


@dataclass(frozen=True)
class SavedRun:
    """A complete checkpoint of a run.

    Attributes:
        path: its directory.
        settings: the training configuration it was trained with.
        state: see `Trainer`.
    """

    path: Path
    settings: dict[str, Any]
    state: dict[str, Any]

    @property
    def step(self) -> int:
        """Optimizer steps done."""
        return self.state["step"]

    @property
    def num_batches(self) -> int:
        """Micro-batches consumed."""
        return self.state["num_batches"]

    def optimizer(self) -> "dict[str, torch.Tensor]":
        """The optimizer's tensors, by name."""
        return self._tensors(OPTIMIZER)

    def random(self) -> "dict[str, torch.Tensor]":
        """Torch's generators, by kind of device."""
        return self._tensors(RANDOM)

    def _tensors(self, name: str) -> "dict[str, torch.Tensor]":
        from astrai_train.models.safetensors_file import SafetensorsFile

        return dict(SafetensorsFile(self.path / name).tensors())


def find_saved(output: Path) -> SavedRun | None:
    """The newest checkpoint in a run's folder; None if there is none.

    Raises:
        CheckpointError: it is damaged or lacks a file. An older one is not taken in its place unasked.
    """
    found = all_checkpoints(output)
    return read_saved(found[-1].path) if found else None


def saved_settings(output: Path) -> dict[str, Any]:
    """The training configuration of the newest checkpoint in a run's folder, nothing else of which is looked at yet.

    Raises:
        CheckpointError: it is not there or cannot be read.
    """
    found = all_checkpoints(output)
    if not found:
        return {}
    try:
        return dict(json.loads((found[-1].path / SETTINGS).read_bytes()))
    except (OSError, ValueError, TypeError):
        return read_saved(found[-1].path).settings  # says what is wrong


def read_saved(path: Path) -> SavedRun:
    """The checkpoint at `path`, every byte of it compared with its marker."""
    check_marker(path)
    settings, state = (_object(path / name) for name in (SETTINGS, STATE))
    if (state.get("format"), state.get("version")) != (FORMAT, VERSION):
        got = f"{state.get('format')}, version {state.get('version')}"
        hint = "train on with the version of AstrAI that wrote it; its weights can be used as --model"
        wanted = f"{FORMAT}, version {VERSION}"
        raise CheckpointError("a state of training in another format", where=path, got=got, wanted=wanted, hint=hint)
    if wrong := [key for key, kinds in NEEDED.items() if not isinstance(state.get(key), kinds)]:
        what, wanted = "the state of training lacks what training goes on from", ", ".join(NEEDED)
        hint = "take the checkpoint before it; its weights can be used as --model"
        raise CheckpointError(what, where=path / STATE, got=f"no {wrong[0]}", wanted=wanted, hint=hint)
    return SavedRun(path, settings, state)


def _object(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_bytes()))
    except (ValueError, TypeError) as error:
        hint = "restore it from a copy, or take the checkpoint before it"
        raise CheckpointError(
            "a file of the checkpoint is no JSON object", where=path, got=error, wanted="an object", hint=hint
        ) from None
