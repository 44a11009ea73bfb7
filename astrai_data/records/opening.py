"""Opening planned files: random reads by byte, and whole files as raw blocks, local or through fsspec.

Local files are read with `os.pread` into blocks of about 1 MiB; the allocator gives the same pages out again, so a
pass over a file touches few new ones. Nothing is mapped: a file cut short under a map ends the process.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import BinaryIO

import xxhash

from astrai_data.errors import InputError
from astrai_data.records.inputs import InputFile
from astrai_data.records.listing import is_local

BLOCK_BYTES = 1 << 20


class LocalSource:
    """A local file, read by position."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        self.size = os.fstat(self._descriptor).st_size

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
    """The bytes of `file`. Raises `InputError` if it vanished, cannot be read or has another size than planned."""
    try:
        source = LocalSource(file.url) if is_local(file.url) else RemoteSource(file.url)
    except (OSError, ImportError, ValueError) as error:
        hint = "restore the file, or plan again without it"
        raise InputError("an input file cannot be opened", where=file.url, got=error, hint=hint) from error
    try:
        if source.size != file.size:
            raise changed(file, source.size)
        yield source
    except OSError as error:
        raise InputError("an input file cannot be read", where=file.url, got=error) from error
    finally:
        source.close()


def changed(file: InputFile, size: int) -> InputError:
    """The error for a file that is no longer what was planned."""
    return InputError(
        "an input file changed after the run was planned",
        where=file.url,
        got=f"{size:,} bytes",
        wanted=f"{file.size:,} bytes",
        hint="run the same command again; it plans anew and keeps finished work",
    )


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
            raise changed(file, offset)
        if offset < end:
            content.update(block)
        offset += len(block)
        yield block
