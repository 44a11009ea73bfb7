"""Input arguments (paths, directories, globs, URLs) to the planned files of a run, in a fixed order.

A file named by a path or a glob must be readable, or its name is an error; in a directory only files with a known
suffix are taken, since pictures and licences lie beside data everywhere. What a directory holds besides is told.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Protocol

from astrai_data.errors import InputError
from astrai_data.records.formats import READABLE_SUFFIXES, is_wanted, resolve_format
from astrai_data.records.listing import FoundFile, find_files
from astrai_data.records.passed_over import PassedOver


class InputSpec(Protocol):
    """What is read of a `data.inputs` entry of the configuration."""

    path: str
    format: str
    domain: str | None
    fields: dict[str, str]


@dataclasses.dataclass(frozen=True)
class InputFile:
    """One planned file.

    Attributes:
        url: absolute local path, or an fsspec URL.
        name: path below the wildcard-free prefix of its argument, `/` between parts.
        size: bytes on disk.
        version: modification time in ns (local) or etag; "" where the storage gives none.
        format: one of `formats.SUPPORTED`.
        compression: "gzip", "zstd" or None.
        domain: domain of records that name none.
        fields: our field name -> this input's own name.
    """

    url: str
    name: str
    size: int
    version: str
    format: str
    compression: str | None = None
    domain: str | None = None
    fields: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The planned files in order, and what directories hold besides."""

    files: tuple[InputFile, ...]
    passed_over: PassedOver


def expand_inputs(specs: Iterable[InputSpec]) -> list[InputFile]:
    """The files of `find_inputs`."""
    return list(find_inputs(specs).files)


def find_inputs(specs: Iterable[InputSpec]) -> Inputs:
    """What all `specs` name: arguments in the order given, bytewise by name within one.

    Raises `InputError` for a missing path, a glob without match, a directory without usable files, an unknown format.
    """
    files: list[InputFile] = []
    others: dict[str, tuple[str, str]] = {}  # URL -> the directory as given, the name below it
    for spec in specs:
        wanted, unwanted = _find(spec)
        files += _planned(wanted, spec)
        others |= {file.url: (spec.path, file.name) for file in unwanted}
    for file in files:  # one input may read what another does not
        others.pop(file.url, None)
    folders = tuple(dict.fromkeys(folder for folder, _ in others.values()))
    return Inputs(tuple(files), PassedOver(folders, tuple(name for _, name in others.values())))


def _find(spec: InputSpec) -> tuple[list[FoundFile], list[FoundFile]]:
    """The files that `spec` wants, and those that lie in its directory besides."""
    found, is_directory = find_files(spec.path)
    if not is_directory:
        return found, []
    wanted = [file for file in found if is_wanted(file.name, spec.format)]
    unwanted = [file for file in found if not is_wanted(file.name, spec.format)]
    if not wanted:
        raise _no_usable_files(spec, unwanted)
    return wanted, unwanted


def _planned(found: list[FoundFile], spec: InputSpec) -> Iterator[InputFile]:
    for file in sorted(found, key=lambda file: file.name.encode()):
        format_name, compression = resolve_format(file.url, spec.format)
        yield InputFile(*file, format_name, compression, spec.domain, dict(spec.fields))


def _no_usable_files(spec: InputSpec, unwanted: list[FoundFile]) -> InputError:
    held = PassedOver((spec.path,), tuple(file.name for file in unwanted))
    return InputError(
        "a directory holds no file that can be read",
        where=spec.path,
        got=held.told if unwanted else "no files in it or below it",
        wanted=f"a file ending in one of {', '.join(READABLE_SUFFIXES)} (plain, .gz or .zst)"
        + ("" if spec.format == "auto" else f" and of format {spec.format!r}"),
        hint="to read files with other suffixes, give a glob and set `format`",
    )
