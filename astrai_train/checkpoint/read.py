"""Finding what training wrote: the checkpoints of a run, and the files of a model among them.

A checkpoint `epoch_E_step_S/` is a model directory with `training/` beside the model's files. It gets that name in the
last moment of writing, so a directory with exactly such a name is complete; anything else (a temporary folder, a copy
somebody made) is passed over.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from astrai_train.checkpoint.marker import TRAINING, check_weights
from astrai_train.models import ModelConfig, ModelNotFoundError
from astrai_train.models.directory import CONFIG
from astrai_train.models.weights import weight_files

CHECKPOINT_NAME = re.compile(r"epoch_(0|[1-9]\d*)_step_(0|[1-9]\d*)", re.ASCII)
TOKENIZER = "tokenizer.json"


@dataclass(frozen=True, order=True)
class Checkpoint:
    """A complete checkpoint; the later of two is the one with more optimizer steps."""

    step: int
    epoch: int
    path: Path

    @property
    def training(self) -> Path:
        """Where the state of training stands; absent in a directory that was reduced to its model."""
        return self.path / TRAINING


@dataclass(frozen=True)
class ModelFiles:
    """The files of one model."""

    directory: Path
    config: ModelConfig
    weights: tuple[Path, ...]
    """One safetensors file, or the shards."""
    tokenizer: Path | None
    """The directory to load the tokenizer from, if it has one."""


def list_checkpoints(run: str | Path) -> list[Checkpoint]:
    """The complete checkpoints directly in a directory, oldest first; none where there is no such directory."""
    run = Path(run)
    places = [(CHECKPOINT_NAME.fullmatch(path.name), path) for path in (run.iterdir() if run.is_dir() else ())]
    found = [Checkpoint(int(name[2]), int(name[1]), path) for name, path in places if name and _has_config(path)]
    return sorted(found)


def find_model_directory(path: str | Path) -> Path:
    """The model directory that a path means: itself, or the newest checkpoint in it.

    Raises:
        ModelNotFoundError: neither a model nor a complete checkpoint is there.
    """
    path = Path(path)
    if _has_config(path):
        return path
    if checkpoints := list_checkpoints(path):
        return checkpoints[-1].path
    got = "no such directory" if not path.is_dir() else ", ".join(sorted(p.name for p in path.iterdir())[:10])
    wanted = f"a directory with {CONFIG}, or one with checkpoints epoch_E_step_S"
    hint = "name the folder that `astrai train -o` or a download wrote"
    raise ModelNotFoundError("no model here", where=path, got=got or "an empty directory", wanted=wanted, hint=hint)


def read_model_files(path: str | Path) -> ModelFiles:
    """Configuration, weights and tokenizer of the model that a path means; of a checkpoint the weights are checked.

    Raises:
        CheckpointError: the weights of a checkpoint are damaged.
        ModelNotFoundError: no model, or one without weights.
        ModelConfigError: a configuration that cannot be used.
    """
    directory = find_model_directory(path)
    config = ModelConfig.from_file(directory / CONFIG)
    check_weights(directory)
    tokenizer = directory if (directory / TOKENIZER).is_file() else None
    return ModelFiles(directory, config, tuple(weight_files(directory)), tokenizer)


def _has_config(path: Path) -> bool:
    return (path / CONFIG).is_file()
