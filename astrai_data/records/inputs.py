"""Input arguments (paths, directories, globs, URLs) to the planned files of a run, in a fixed order.

A file named by a path or a glob must be readable, or its name is an error; in a directory only files with a known
suffix are taken, since README and licence files lie beside data everywhere.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Protocol

from astrai_data.errors import InputError
from astrai_data.records.formats import READABLE_SUFFIXES, is_wanted, resolve_format
from astrai_data.records.listing import find_files


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


def expand_inputs(specs: Iterable[InputSpec]) -> list[InputFile]:
    """The files of all `specs`: arguments in the order given, bytewise by name within one.

    Raises `InputError` for a missing path, a glob without match, a directory without usable files, an unknown format.
    """
    return [file for spec in specs for file in _expand(spec)]


def _expand(spec: InputSpec) -> Iterator[InputFile]:
    found, is_directory = find_files(spec.path)
    if is_directory:
        found = [file for file in found if is_wanted(file.name, spec.format)]
        if not found:
            raise _no_usable_files(spec)
    for file in sorted(found, key=lambda file: file.name.encode()):
        format_name, compression = resolve_format(file.url, spec.format)
        yield InputFile(*file, format_name, compression, spec.domain, dict(spec.fields))


def _no_usable_files(spec: InputSpec) -> InputError:
    return InputError(
        "a directory holds no file that can be read",
        where=spec.path,
        got="no such file in it or below it",
        wanted=f"a file ending in one of {', '.join(READABLE_SUFFIXES)} (plain, .gz or .zst)"
        + ("" if spec.format == "auto" else f" and of format {spec.format!r}"),
        hint="to read files with other suffixes, give a glob and set `format`",
    )
