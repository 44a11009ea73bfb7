"""Opening planned files: random reads by byte, and whole files as raw blocks, local or through fsspec.

Local files are read with `os.pread` into blocks of 2 MiB; the allocator gives the same pages out again, so a
pass over a file touches few new ones. Nothing is mapped: a file cut short under a map ends the process.
"""

import contextlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import BinaryIO

import xxhash

from astrai_data.errors import InputError
from astrai_data.records.inputs import InputFile
from astrai_data.records.listing import cannot_open, is_local

BLOCK_BYTES = 1 << 21


class LocalSource:
    """A local file, read by position."""

    def __init__(self, path: str) -> None:
        self._path = path
        flags = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)  # a pipe in its place must not hold us
        self._descriptor = os.open(path, os.O_RDONLY | flags)
        self.size = os.fstat(self._descriptor).st_size

    def check(self, file: InputFile) -> None:
        """Raise `InputError` if the file is not as planned: its size, and the time of its last change."""
        status = os.fstat(self._descriptor)
        _check_size(file, status.st_size)
        if file.version and str(status.st_mtime_ns) != file.version:
            raise changed(file, f"modified {_told(status.st_mtime_ns)}", f"as of {_told(int(file.version))}")

    def read_at(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`; fewer only at the end of the file."""
        return os.pread(self._descriptor, size, offset)

    def as_file(self) -> str:
        """What Arrow opens by itself, natively."""
        return self._path

    def close(self) -> None:
        """Release the descriptor."""
        os.close(self._descriptor)


class RemoteSource:
    """A file behind fsspec, read by position with fsspec's own read-ahead."""

    def __init__(self, url: str) -> None:
        import fsspec

        file_system, path = fsspec.core.url_to_fs(url)
        file_system.invalidate_cache()
        self._file = file_system.open(path, "rb")
        self.size = self._file.seek(0, os.SEEK_END)

    def check(self, file: InputFile) -> None:
        """Raise `InputError` if the file has not the planned size."""
        _check_size(file, self.size)

    def read_at(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`; fewer only at the end of the file."""
        self._file.seek(offset)
        return self._file.read(size)

    def as_file(self) -> BinaryIO:
        """The fsspec file itself."""
        return self._file

    def close(self) -> None:
        """Close the file."""
        self._file.close()


Source = LocalSource | RemoteSource


@contextlib.contextmanager
def open_input(file: InputFile) -> Iterator[Source]:
    """The bytes of `file`. Raises `InputError` if it vanished, cannot be read, or was changed before or meanwhile."""
    try:
        source = LocalSource(file.url) if is_local(file.url) else RemoteSource(file.url)
    except (OSError, ImportError, ValueError) as error:
        raise cannot_open(file.url, error) from error
    try:
        source.check(file)
        yield source
        source.check(file)
    except InputError:
        source.check(file)  # damage may have come with a change
        raise
    except OSError as error:
        wanted, hint = "a file that can be read to its end", "run the same command again: finished work is kept"
        raise InputError("an input file cannot be read", where=file.url, got=error, wanted=wanted, hint=hint) from error
    finally:
        source.close()


def changed(file: InputFile, got: str, wanted: str) -> InputError:
    """The error for a file that is no longer what was planned."""
    return InputError(
        "an input file changed after the run was planned",
        where=file.url,
        got=got,
        wanted=wanted,
        hint="run the same command again when nothing writes to it: it plans anew and keeps finished work",
    )


def _told(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat(timespec="milliseconds")


def _check_size(file: InputFile, size: int) -> None:
    if size != file.size:
        raise changed(file, f"{size:,} bytes", f"{file.size:,} bytes")


def read_blocks(
    source: Source,
    file: InputFile,
    begin: int,
    end: int,
    content: xxhash.xxh3_128,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[bytes]:
    """The raw bytes of `file` from `begin` to its end in blocks; those before `end` also enter `content`.

    No block spans `end`, and none behind it is larger than 64 KiB: who stops at the first line border there reads
    little too much.
    """
    offset = begin
    while offset < file.size:
        wanted = min(block_bytes, end - offset) if offset < end else min(block_bytes, 1 << 16)
        block = source.read_at(offset, wanted)
        if not block:
            raise changed(file, f"{offset:,} bytes", f"{file.size:,} bytes")
        if offset < end:
            content.update(block)
        offset += len(block)
        yield block
