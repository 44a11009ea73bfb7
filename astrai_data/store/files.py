"""Files that are either whole or not there, and files seen as memory.

Every file is written under a temporary name beside its place and renamed. Only the files that make others
count (`task.json`, `manifest.json`) are synced to disk: after a power cut a file they name may be short, and
sizes tell. What the system refuses is told as a `StoreError` that names the file and the way out.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

from astrai_data.errors import AstraiError, StoreError

TEMPORARY_SUFFIX = ".tmp"
_NO_ROOM = "make room on this disk and run the same command again: finished work is kept"
_NO_RIGHT = "choose a folder that you may write to, or have its owner let you"
_DAMAGED = (
    "restore it from a copy, or make the store anew with the same `astrai preprocess` command and --overwrite; "
    "`astrai inspect STORE --verify` names every damaged file"
)
_HINTS = {
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.EACCES: _NO_RIGHT,
    errno.EPERM: _NO_RIGHT,
    errno.EROFS: "this file system can only be read: choose another folder",
    errno.EMFILE: "too many files are open: use fewer workers, or raise the limit with `ulimit -n`",
}


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`; rename it to `path` at the end, remove it on an error.

    Args:
        path: the final name; its folder is made.
        durable: sync the file before the renaming and the folder after it.

    Raises:
        StoreError: the system refused, for want of room or permission.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        if durable:
            sync(temporary)
        os.replace(temporary, path)
        if durable:
            sync(path.parent)
    except OSError as error:
        _forget(temporary)
        if isinstance(error, AstraiError):
            raise
        where = error.filename if error.filename not in (None, str(temporary)) else path
        raise refused("a file cannot be written", error, where) from error
    except BaseException:
        _forget(temporary)
        raise


def _forget(temporary: Path) -> None:
    with suppress(OSError):
        temporary.unlink(missing_ok=True)


def refused(what: str, error: OSError, where: object = None) -> StoreError:
    """What the system refused to do, told with the way out; `where` is by default the file it speaks of."""
    return StoreError(
        what,
        where=where or error.filename,
        got=os.strerror(error.errno) if error.errno else error,
        wanted="a place where the system lets this run write",
        hint=_HINTS.get(error.errno, "run the same command again when the cause is mended: finished work is kept"),
    )


def unreadable(
    path: Path,
    error: object,
    *,
    what: str = "a file of the store cannot be read",
    wanted: str = "the file that the manifest names, whole",
) -> StoreError:
    """A file of a finished store that is missing, closed to us, or damaged; `error`: what was found, or went wrong."""
    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
    return StoreError(what, where=path, got=reason, wanted=wanted, hint=_DAMAGED)


def is_temporary(name: str) -> bool:
    """Whether a file of this name is one that `replacing` had not yet renamed, of a run that is or was."""
    return name.startswith(".") and name.endswith(TEMPORARY_SUFFIX)


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
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if status.st_size == 0:  # an empty file cannot be mapped
        return pa.py_buffer(b"")
    with pa.memory_map(str(path)) as mapped:
        return mapped.read_buffer()
