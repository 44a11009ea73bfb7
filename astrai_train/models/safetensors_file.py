"""Safetensors files: a JSON header that names tensors and their byte ranges, then the bytes.

Eight bytes give the header's length (little-endian), the header gives for each tensor `dtype`, `shape` and
`data_offsets` within what follows. Nothing in such a file is ever executed. Reading maps the file and copies one
tensor at a time; every number of the header is checked before it is used.
"""

import json
import math
import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch

from astrai_data.store.files import replacing
from astrai_train.models.errors import ModelError, ModelNotFoundError

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000
METADATA = "__metadata__"


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a file: bytes `begin` to `end` after the header."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


class SafetensorsFile:
    """The tensors of one file, read when they are asked for.

    Raises:
        ModelNotFoundError: no such file.
        ModelError: damaged, cut short, or of a dtype that torch does not know.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise ModelNotFoundError("no such file of weights", where=self.path)
        with self.path.open("rb") as file:
            header, self._data_begin = _read_header(file, self.path)
            # A private map is writable for torch and never reaches the file.
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        self.metadata: dict[str, str] = header.pop(METADATA, None) or {}
        size = len(self._bytes) - self._data_begin
        self.entries = {name: _entry(self.path, name, raw, size) for name, raw in header.items()}

    def tensor(self, name: str) -> torch.Tensor:
        """A copy of one tensor on the CPU, in the dtype and shape of the file."""
        entry = self.entries[name]
        if entry.begin == entry.end:
            return torch.empty(entry.shape, dtype=entry.dtype)
        begin, count = self._data_begin + entry.begin, entry.end - entry.begin
        # Copied as bytes first: some writers do not align, and the copy is aligned.
        data = torch.frombuffer(self._bytes, dtype=torch.uint8, offset=begin, count=count).clone()
        return data.view(entry.dtype).reshape(entry.shape)

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every name with its tensor, one at a time."""
        for name in self.entries:
            yield name, self.tensor(name)


def write_safetensors(path: str | Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors, sorted by name, to a file that is whole and on disk, or not there.

    Args:
        path: the file; its folder is made.
        tensors: of any device; no two need share memory, each is written out.
        metadata: strings for the header.

    Raises:
        ModelError: a dtype that the format does not know.
    """
    header, end = {METADATA: dict(metadata)} if metadata else {}, 0
    for name in sorted(tensors):
        tensor = tensors[name]
        if tensor.dtype not in DTYPE_NAMES:
            raise ModelError("safetensors has no such dtype", where=name, got=tensor.dtype, wanted=", ".join(DTYPES))
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPE_NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % LENGTH_BYTES)  # so that the data begins at a multiple of eight
    with replacing(Path(path), durable=True) as temporary, temporary.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(tensors):
            flat = tensors[name].detach().to("cpu").contiguous().flatten()
            if flat.numel():  # a tensor without elements has no bytes to view
                file.write(flat.view(torch.uint8).numpy().data)


def _read_header(file: BinaryIO, path: Path) -> tuple[dict[str, Any], int]:
    start = file.read(LENGTH_BYTES)
    size = struct.unpack("<Q", start)[0] if len(start) == LENGTH_BYTES else None
    available = path.stat().st_size - LENGTH_BYTES
    if size is None or size > min(available, MAX_HEADER_BYTES):
        got = f"a header of {size} bytes in a file of {available + LENGTH_BYTES}"
        raise ModelError("not a safetensors file, or cut short", where=f"{path}, byte 0", got=got)
    try:
        header = json.loads(file.read(size))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ModelError("the header is not JSON", where=f"{path}, byte {LENGTH_BYTES}", got=error) from None
    if not isinstance(header, dict):
        raise ModelError("the header is not an object", where=f"{path}, byte {LENGTH_BYTES}", got=type(header).__name__)
    return header, LENGTH_BYTES + size


def _entry(path: Path, name: str, raw: Any, size: int) -> TensorEntry:
    where = f"{path}: {name}"
    try:
        dtype_name, shape, (begin, end) = raw["dtype"], tuple(raw["shape"]), raw["data_offsets"]
    except (KeyError, TypeError, ValueError):
        wanted = "dtype, shape and data_offsets"
        raise ModelError("the header does not describe this tensor", where=where, got=raw, wanted=wanted) from None
    if dtype_name not in DTYPES:
        raise ModelError("unknown dtype", where=where, got=dtype_name, wanted="one of " + ", ".join(DTYPES))
    if not all(isinstance(number, int) and number >= 0 for number in (*shape, begin, end)):
        raise ModelError("a size that is no whole number", where=where, got=raw)
    num_bytes = math.prod(shape) * DTYPES[dtype_name].itemsize
    if end > size or end - begin != num_bytes:
        got = f"bytes {begin} to {end} of {size}"
        raise ModelError("the bytes of this tensor are not there", where=where, got=got, wanted=f"{num_bytes} bytes")
    return TensorEntry(DTYPES[dtype_name], shape, begin, end)
