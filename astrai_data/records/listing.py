"""What a path, directory, glob or URL names: plain files with name, size and version, in no particular order.

Local paths are walked by `patterns`; whatever holds `://` goes through fsspec. Names that begin with a
dot are passed over below a directory or a wildcard, as a shell does.
"""

import difflib
import errno
import glob
import os
import stat
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from urllib.parse import unquote

from astrai_data.errors import InputError
from astrai_data.records.patterns import match


class FoundFile(NamedTuple):
    """A file as its storage lists it; `name` is the path below the wildcard-free prefix of the argument."""

    url: str
    name: str
    size: int
    version: str


_HINTS = {
    errno.ENOENT: "restore the file, or run the same command again: it plans anew",
    errno.EACCES: "have its owner let you read it, or leave it out",
    errno.ELOOP: "it is a link that leads back to itself: mend or remove it",
    errno.EMFILE: "too many files are open: use fewer workers, or raise the limit with `ulimit -n`",
}


def cannot_open(path: str, error: Exception) -> InputError:
    """The error for an input file that the system or its storage does not open."""
    code = getattr(error, "errno", None)
    got = os.strerror(code) if code else error
    hint = _HINTS.get(code, "mend what the system says, or leave the file out")
    if code == errno.ENOENT and os.path.islink(path):
        got, hint = "a link to nothing", "mend or remove it"
    return InputError(
        "an input file cannot be opened", where=path, got=got, wanted="a file that you may read", hint=hint
    )


def is_local(path: str) -> bool:
    """Whether `path` is a path of this machine rather than a URL; `file://` URLs are local."""
    return "://" not in path or path.startswith("file://")


def _local_path(path: str) -> str:
    """The path behind a `file://` URL, with its %-escapes undone; a path as it is."""
    if not path.startswith("file://"):
        return path
    host, slash, rest = path.removeprefix("file://").partition("/")
    if host not in ("", "localhost"):
        hint = "write file:///path, or the path alone"
        wanted = "a file of this machine"
        raise InputError("a file:// URL names another machine", where=path, got=host, wanted=wanted, hint=hint)
    return unquote(slash + rest)  # `?` is a wildcard here, as in paths


def find_files(path: str) -> tuple[list[FoundFile], bool]:
    """The files that `path` names, and whether it is a directory. Raises `InputError` where there is none."""
    if is_local(path):
        return _find_local(os.path.abspath(_local_path(path)))
    return _find_remote(path)


def _find_local(path: str) -> tuple[list[FoundFile], bool]:
    if os.path.isfile(path):
        return list(_local_files(os.path.dirname(path), [os.path.basename(path)])), False
    if os.path.isdir(path):
        return list(_local_files(path, match(path, "**"))), True
    if not glob.has_magic(path):
        raise _unusable(path)
    prefix, pattern = _split_pattern(path)
    files = list(_local_files(prefix, set(match(prefix, pattern))))
    if not files:
        raise _missing(path, "no file matches a pattern")
    return files, False


def _unusable(path: str) -> InputError:
    """The error for a path that is no file and no folder."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return _missing(path, "no such input file")
    except OSError as error:
        return cannot_open(path, error)
    hint = "write what comes out of it to a file, and name that"
    return InputError(
        "an input is no file", where=path, got="a device, pipe or socket", wanted="a file or a folder", hint=hint
    )


def _local_files(root: str, names: Iterable[str]) -> Iterator[FoundFile]:
    """The regular files among `names`; a link to nothing is an error, not an absence."""
    for name in names:
        path = os.path.join(root, name)
        try:
            status = os.stat(path)
        except OSError as error:
            raise cannot_open(path, error) from error
        if stat.S_ISREG(status.st_mode):
            yield FoundFile(path, _printable(name), status.st_size, str(status.st_mtime_ns))


def _printable(name: str) -> str:
    """Names enter tables as UTF-8; bytes of a name that are not are replaced."""
    return os.fsencode(name).decode("utf-8", "replace")


def _split_pattern(path: str) -> tuple[str, str]:
    """("/a/b", "*/c") of "/a/b/*/c": the directories before the first wildcard, and the rest."""
    parts = path.split("/")
    first = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    return "/".join(parts[:first]) or "/", "/".join(parts[first:])


def _find_remote(url: str) -> tuple[list[FoundFile], bool]:
    file_system, path = _file_system(url)
    try:
        if file_system.isfile(path):
            infos, prefix, is_directory = [file_system.info(path)], path.rpartition("/")[0], False
        elif file_system.isdir(path):
            infos, prefix, is_directory = file_system.find(path, detail=True).values(), path, True
        elif glob.has_magic(path):
            infos, is_directory = file_system.glob(path, detail=True).values(), False
            prefix = _split_pattern(path)[0]
        else:
            raise _missing_remote(file_system, path, url, "no such input file")
    except OSError as error:
        wanted, hint = "a storage that answers", "check the URL, and that this machine may and can reach it"
        raise InputError("an input cannot be listed", where=url, got=error, wanted=wanted, hint=hint) from error
    files = [_remote_file(file_system, info, prefix) for info in infos if info["type"] == "file"]
    if is_directory or glob.has_magic(path):
        files = [file for file in files if not _is_hidden(file.name)]
    if not files and not is_directory:
        raise _missing_remote(file_system, path, url, "no file matches a pattern")
    return files, is_directory


def _file_system(url: str):
    import fsspec

    try:
        return fsspec.core.url_to_fs(url)
    except (ImportError, ValueError, OSError) as error:
        wanted = "a URL of a protocol that fsspec knows here"
        hint = "mend the protocol (s3://, gs://, https://), install its fsspec package, or copy the files here"
        raise InputError("an input URL cannot be opened", where=url, got=error, wanted=wanted, hint=hint) from error


def _remote_file(file_system, info: dict, prefix: str) -> FoundFile:
    stamps = ("ETag", "etag", "mtime", "LastModified", "last_modified", "created")
    version = next((str(info[key]) for key in stamps if info.get(key)), "")
    name = info["name"].removeprefix(prefix).lstrip("/")
    return FoundFile(file_system.unstrip_protocol(info["name"]), name, int(info["size"] or 0), version)


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _missing(path: str, what: str) -> InputError:
    """The error for `path`, with near names from the deepest directory of it that exists."""
    parent, base = os.path.split(path.rstrip("/"))
    while not os.path.isdir(parent):
        parent, base = os.path.split(parent)
    try:
        names = sorted(os.listdir(parent))
    except OSError:
        names = []
    return _missing_error(path, what, parent, base, names)


def _missing_remote(file_system, path: str, url: str, what: str) -> InputError:
    parent, _, base = path.rpartition("/")
    try:
        names = sorted(name.rpartition("/")[2] for name in file_system.ls(parent, detail=False))
    except OSError:
        names = []
    return _missing_error(url, what, parent, base, names)


def _missing_error(where: str, what: str, parent: str, base: str, names: Iterable[str]) -> InputError:
    names = list(names)
    near = difflib.get_close_matches(base, names, 3, 0.5)
    if near:
        hint = f"did you mean {' or '.join(near)} in {parent}?"
    elif names:
        hint = f"{parent} holds {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"
    else:
        hint = f"{parent} is empty"
    return InputError(what, where=where, got="nothing", wanted="a file, a directory, a glob or a URL", hint=hint)
