"""Finding the model that a path means: a model directory, or the newest checkpoint of a run.

A checkpoint `epoch_E_step_S/` is a model directory with more beside the model's files. It gets that name in the last
moment of writing, so a directory with exactly such a name is complete; anything else (a temporary folder, a copy
somebody made) is passed over.
"""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from astrai_train.models.errors import ModelNotFoundError, listed

CONFIG = "config.json"
CHECKPOINT_NAME = re.compile(r"epoch_(0|[1-9]\d*)_step_(0|[1-9]\d*)", re.ASCII)


@dataclass(frozen=True, order=True)
class Checkpoint:
    """A checkpoint; the later of two is the one with more optimizer steps."""

    step: int
    epoch: int
    path: Path


def all_checkpoints(run: str | Path) -> list[Checkpoint]:
    """The directories in a run's folder that bear a checkpoint's name, complete or damaged, oldest first."""
    run = Path(run)
    places = [(CHECKPOINT_NAME.fullmatch(path.name), path) for path in (run.iterdir() if os.path.isdir(run) else ())]
    return sorted(Checkpoint(int(name[2]), int(name[1]), path) for name, path in places if name and path.is_dir())


def list_checkpoints(run: str | Path) -> list[Checkpoint]:
    """Those that hold a model, oldest first; none where there is no such folder."""
    return [checkpoint for checkpoint in all_checkpoints(run) if _has_config(checkpoint.path)]


def find_model_directory(path: str | Path) -> Path:
    """The model directory that a path means: itself, or the newest checkpoint in it.

    Raises:
        ModelNotFoundError: neither a model nor a complete checkpoint is there.
    """
    path = Path(path)
    if _has_config(path):
        return path
    with suppress(OSError):  # closed to us, as is told below
        if checkpoints := list_checkpoints(path):
            return checkpoints[-1].path
    wanted = f"a directory with {CONFIG}, or one with checkpoints epoch_E_step_S"
    hint = "name the folder that `astrai train -o` or a download wrote"
    raise ModelNotFoundError("no model here", where=path, got=_found(path), wanted=wanted, hint=hint)


def _has_config(path: Path) -> bool:
    return os.path.isfile(path / CONFIG)  # unlike that of Path, False for a name that is too long


def _found(path: Path) -> str:
    if os.path.isfile(path):
        return "a file"
    try:
        names = listed(sorted(os.listdir(path)))
        os.stat(os.path.join(path, "."))  # some may be listed, and nothing in them looked at
        return names or "an empty directory"
    except FileNotFoundError:
        return "no such directory"
    except OSError as error:
        what = "a directory that cannot be read" if os.path.isdir(path) else "no such directory"
        return f"{what}: {os.strerror(error.errno)}"
