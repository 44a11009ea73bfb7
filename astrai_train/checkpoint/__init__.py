"""Checkpoints: model directories that training can go on from."""

from astrai_train.checkpoint.read import ModelFiles, read_model_files
from astrai_train.models.finding import Checkpoint, find_model_directory, list_checkpoints

__all__ = ["Checkpoint", "ModelFiles", "find_model_directory", "list_checkpoints", "read_model_files"]
