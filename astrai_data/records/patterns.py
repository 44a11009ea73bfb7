"""Which names a glob matches: links are followed, but never in a circle.

The standard library's `glob` follows a link back to a folder above it to a depth of forty (two such links: for ever),
and passes over a folder that it may not read as if it were empty.
"""

import fnmatch
import glob
import os
from collections.abc import Iterator

from astrai_data.errors import InputError


def match(root: str, pattern: str) -> Iterator[str]:
    """Relative names below `root` that match `pattern`, as `glob` has it, in no particular order, perhaps repeated.

    `*`, `?` and `[...]` stand inside a name, `**` for any folders; none of them matches a name's leading dot.

    Raises:
        InputError: a folder on the way cannot be read.
    """
    yield from _match(root, "", pattern.split("/"))


def _match(root: str, below: str, parts: list[str]) -> Iterator[str]:
    part, rest = parts[0], parts[1:]
    if part == "**":
        yield from _match_deep(root, below, rest, frozenset())
    elif not glob.has_magic(part):
        if rest or os.path.lexists(os.path.join(root, below, part)):
            yield from _go_on(root, below + part, rest)
    elif os.path.isdir(os.path.join(root, below)):
        for entry in _entries(root, below):
            if fnmatch.fnmatchcase(entry.name, part) and (part[0] == "." or entry.name[0] != "."):
                yield from _go_on(root, below + entry.name, rest)


def _match_deep(root: str, below: str, rest: list[str], ancestors: frozenset) -> Iterator[str]:
    """What matches `rest` in the folder `below` and in all folders under it."""
    try:
        status = os.stat(os.path.join(root, below))
    except (FileNotFoundError, NotADirectoryError):
        return
    here = (status.st_dev, status.st_ino)
    if here in ancestors or not os.path.isdir(os.path.join(root, below)):
        return
    if rest:
        yield from _match(root, below, rest)
    for entry in _entries(root, below):
        if entry.name.startswith("."):
            continue
        if _is_folder(entry):
            yield from _match_deep(root, f"{below}{entry.name}/", rest, ancestors | {here})
        elif not rest:
            yield below + entry.name


def _go_on(root: str, name: str, rest: list[str]) -> Iterator[str]:
    if rest:
        yield from _match(root, f"{name}/", rest)
    else:
        yield name


def _entries(root: str, below: str) -> list[os.DirEntry]:
    folder = os.path.join(root, below)
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise InputError(
            "an input folder cannot be read",
            where=folder.rstrip("/"),
            got=error.strerror,
            wanted="a folder that you may read",
            hint="have its owner let you read it, or name the files that you want",
        ) from error


def _is_folder(entry: os.DirEntry) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself: whoever opens it will say so
        return False
