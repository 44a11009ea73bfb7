"""Writing checkpoints: complete or not there.

Everything is written into a folder with a temporary name, synced, and renamed as the last act. A kill leaves at most a
folder whose name begins with a dot, which the next run clears away. Older checkpoints go only after the new one
stands, and each loses its name first.
"""

import json
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch

from astrai_data.store import refused, write_bytes
from astrai_data.store.files import TEMPORARY_SUFFIX, sync
from astrai_train.checkpoint.marker import OPTIMIZER, RANDOM, SETTINGS, STATE, write_marker
from astrai_train.models import Transformer, save_model
from astrai_train.models.finding import all_checkpoints
from astrai_train.models.safetensors_file import write_safetensors


@dataclass(frozen=True)
class Snapshot:
    """Everything that a checkpoint holds.

    Attributes:
        step, epoch: they name it.
        model: its weights and configuration.
        tokenizer: file name -> content, put beside the model.
        optimizer, random: tensors by name.
        state: what else training goes on from, as JSON.
        settings: the training configuration, as JSON.
    """

    step: int
    epoch: int
    model: Transformer
    tokenizer: dict[str, bytes]
    optimizer: dict[str, torch.Tensor]
    random: dict[str, torch.Tensor]
    state: dict
    settings: dict


def write_checkpoint(output: Path, snapshot: Snapshot) -> Path:
    """Write `output/epoch_E_step_S`; its path.

    Raises:
        StoreError: the system refused, for want of room or permission; nothing is left behind.
    """
    name = f"epoch_{snapshot.epoch}_step_{snapshot.step}"
    temporary = output / f".{name}.{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY_SUFFIX}"
    try:
        _write_files(temporary, snapshot)
        os.rename(temporary, output / name)
        sync(output)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError):
            raise refused("a checkpoint cannot be written", error, output / name) from error
        raise
    return output / name


def _write_files(folder: Path, snapshot: Snapshot) -> None:
    save_model(snapshot.model, folder)
    for name, content in snapshot.tokenizer.items():
        write_bytes(folder / name, content, durable=True)
    write_safetensors(folder / OPTIMIZER, snapshot.optimizer, {})
    write_safetensors(folder / RANDOM, snapshot.random, {})
    for name, content in ((STATE, snapshot.state), (SETTINGS, snapshot.settings)):
        write_bytes(folder / name, json.dumps(content, indent=2).encode(), durable=True)
    write_marker(folder)


def delete_old(output: Path, keep: int) -> None:
    """Keep the newest `keep` checkpoints."""
    for old in all_checkpoints(output)[:-keep]:
        hidden = old.path.with_name(f".{old.path.name}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
        os.rename(old.path, hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def clear_leftovers(output: Path) -> None:
    """Remove what killed runs had not finished writing or deleting. Only for who holds the lock of `output`."""
    for path in output.glob(f".epoch_*{TEMPORARY_SUFFIX}"):
        shutil.rmtree(path, ignore_errors=True)
