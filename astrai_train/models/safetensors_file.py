"""Safetensors files, through the safetensors library: whole or not there when written, copies when read.

Nothing in such a file is ever executed. The library checks every number of the header before a byte is believed.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from astrai_data.store.files import replacing
from astrai_train.models.errors import ModelError, ModelNotFoundError


class SafetensorsFile:
    """The tensors of one file, read when they are asked for.

    Attributes:
        metadata: strings of the header.
        names: of the tensors, sorted.

    Raises:
        ModelNotFoundError: no such file.
        ModelError: damaged, cut short, or of a dtype that torch does not know.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_file() or not os.access(self.path, os.R_OK):
            got = "a folder" if self.path.is_dir() else "a file you may not read" if self.path.is_file() else "nothing"
            wanted, hint = "a .safetensors file", "check the path"
            raise ModelNotFoundError("no such file of weights", where=self.path, got=got, wanted=wanted, hint=hint)
        try:
            with safe_open(self.path, framework="pt") as file:
                self.metadata: dict[str, str] = file.metadata() or {}
                self.names: list[str] = sorted(file.keys())
        except (SafetensorError, OSError, ValueError) as error:
            raise self._damaged(error) from None

    def tensor(self, name: str) -> torch.Tensor:
        """A copy of one tensor on the CPU, in the dtype and shape of the file."""
        try:
            with safe_open(self.path, framework="pt") as file:
                return file.get_tensor(name).clone()
        except (SafetensorError, OSError, ValueError, KeyError, AttributeError) as error:
            raise self._damaged(error, name) from None

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every name with its tensor, one at a time."""
        for name in self.names:
            yield name, self.tensor(name)

    def _damaged(self, error: Exception, name: str | None = None) -> ModelError:
        where = self.path if name is None else f"{self.path}: {name}"
        hint = "copy the file again, or take another checkpoint"
        what, wanted = "not a safetensors file, or damaged", "a whole safetensors file"
        return ModelError(what, where=where, got=error, wanted=wanted, hint=hint)


def write_safetensors(path: str | Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors to a file that is whole and on disk, or not there.

    Args:
        path: the file; its folder is made.
        tensors: of any device; no two need share memory, each is written out.
        metadata: strings for the header.

    Raises:
        ModelError: a dtype that the format does not know.
        StoreError: the system refused, for want of room or permission.
    """
    plain = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    try:
        with replacing(Path(path), durable=True) as temporary:
            _save(plain, temporary, dict(metadata) or None)
    except (SafetensorError, KeyError, ValueError) as error:
        dtypes = sorted({str(tensor.dtype) for tensor in plain.values()})
        what, got = "safetensors cannot hold these tensors", f"{error}; {dtypes}"
        wanted, hint = "tensors of the dtypes that the format has", "convert them first: tensor.to(torch.float32)"
        raise ModelError(what, where=path, got=got, wanted=wanted, hint=hint) from None


def _save(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str] | None) -> None:
    """`save_file`, but a full disk is an `OSError` like any other: "... I/O error: ... (os error 28)"."""
    try:
        save_file(tensors, path, metadata)
    except SafetensorError as error:
        if found := re.search(r"\(os error (\d+)\)", str(error)):
            raise OSError(int(found[1]), os.strerror(int(found[1])), str(path)) from error
        raise
