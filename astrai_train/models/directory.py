"""Model directories: `config.json` and `model.safetensors`, or shards with an index.

A checkpoint is such a directory with more beside it, so whatever reads one reads the other.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from astrai_train.models.config import ModelConfig
from astrai_train.models.finding import CONFIG, find_model_directory
from astrai_train.models.safetensors_file import write_safetensors
from astrai_train.models.transformer import Transformer
from astrai_train.models.weight_files import WEIGHTS, weight_files
from astrai_train.models.weight_names import plain_name
from astrai_train.models.weights import load_weights, read_weights


def load_model(
    directory: str | Path, *, dtype: torch.dtype | None = None, device: torch.device | str = "cpu"
) -> Transformer:
    """The model of a directory or a run, in evaluation mode.

    Args:
        directory: with `config.json` and weights, as a checkpoint is; or a run's folder, whose newest checkpoint is
            taken.
        dtype: of the parameters, whatever the file's; default float32, what training updates.
        device: where to put them. One tensor at a time is held besides.

    Raises:
        ModelNotFoundError: neither a model nor a checkpoint, or no weights.
        ModelError: names or shapes that are not the configuration's, a damaged file.
    """
    directory = find_model_directory(directory)
    model = Transformer(ModelConfig.from_file(directory / CONFIG), device="meta")
    files = weight_files(directory)
    load_weights(model, dict(read_weights(files, dtype=dtype or torch.float32, device=device)), directory)
    return model.eval()


def save_model(model: nn.Module, directory: str | Path) -> None:
    """Write a model, also a compiled or distributed wrapper of one, as a model directory.

    Tied embeddings are written once. For sharded parameters gather them first and call `save_weights`.
    """
    config = next(module.config for module in model.modules() if isinstance(module, Transformer))
    save_weights(model.state_dict(), config, directory)


def save_weights(weights: Mapping[str, torch.Tensor], config: ModelConfig, directory: str | Path) -> None:
    """Write weights and their configuration; each file is whole and on disk, or not there.

    The configuration comes last: a new directory without it is no model yet.
    """
    directory = Path(directory)
    plain = {plain_name(name): tensor for name, tensor in weights.items()}
    write_safetensors(directory / WEIGHTS, plain, {"format": "pt"})
    config.to_file(directory / CONFIG)
