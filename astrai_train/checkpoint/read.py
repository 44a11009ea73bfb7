"""Reading the files of a model, of a checkpoint or of any model directory."""

from dataclasses import dataclass
from pathlib import Path

from astrai_train.checkpoint.marker import check_weights
from astrai_train.models import ModelConfig
from astrai_train.models.finding import CONFIG, find_model_directory
from astrai_train.models.weight_files import weight_files

TOKENIZER = "tokenizer.json"


@dataclass(frozen=True)
class ModelFiles:
    """The files of one model."""

    directory: Path
    config: ModelConfig
    weights: tuple[Path, ...]
    """One safetensors file, or the shards."""
    tokenizer: Path | None
    """The directory to load the tokenizer from, if it has one."""


def read_model_files(path: str | Path) -> ModelFiles:
    """What `find_model_files` finds; of a checkpoint the weights are checked, every byte of them.

    Raises:
        CheckpointError: the weights of a checkpoint are damaged.
        ModelNotFoundError, ModelConfigError: as `find_model_files`.
    """
    files = find_model_files(path)
    check_weights(files.directory)
    return files


def find_model_files(path: str | Path) -> ModelFiles:
    """Configuration, weights and tokenizer of the model that a path means: quick, and without torch.

    Raises:
        ModelNotFoundError: no model, or one without weights.
        ModelConfigError: a configuration that cannot be used.
    """
    directory = find_model_directory(path)
    config = ModelConfig.from_file(directory / CONFIG)
    tokenizer = directory if (directory / TOKENIZER).is_file() else None
    return ModelFiles(directory, config, tuple(weight_files(directory)), tokenizer)
