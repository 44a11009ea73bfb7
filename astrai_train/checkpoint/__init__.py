"""Checkpoints: model directories that training can go on from."""

from astrai_train.checkpoint.read import (
    Checkpoint,
    ModelFiles,
    find_model_directory,
    list_checkpoints,
    read_model_files,
)

__all__ = ["Checkpoint", "ModelFiles", "find_model_directory", "list_checkpoints", "read_model_files"]
