"""Files that are either whole or not there, and files seen as memory.

Every file is written under a temporary name beside its place and renamed. Only the files that make others
count (`task.json`, `manifest.json`) are synced to disk: after a power cut a file they name may be short, and
sizes tell.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

TEMPORARY_SUFFIX = ".tmp"


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`; rename it to `path` at the end, remove it on an error.

    Args:
        path: the final name; its folder is made.
        durable: sync the file before the renaming and the folder after it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
    try:
        yield temporary
        if durable:
            sync(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync(path.parent)


def write_bytes(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Write `data` to `path`, whole or not at all."""
    with replacing(path, durable=durable) as temporary:
        temporary.write_bytes(data)


def sync(path: Path) -> None:
    """Wait until a file or folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def map_file(path: Path) -> pa.Buffer:
    """The file's bytes [size], mapped read-only for as long as the buffer lives; no descriptor is held."""
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return pa.py_buffer(b"")
    with pa.memory_map(str(path)) as mapped:
        return mapped.read_buffer()
