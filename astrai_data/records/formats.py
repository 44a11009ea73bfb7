"""Which format and compression a file has: from its configuration, else from its suffix, never from its content.

`PLANNED` formats, and files in other compressions, hold records that we cannot read yet. Where a folder holds one, the
run stops: its records would be missing from the store. A file of any other suffix is no data as far as we know, and
passed over with a word.
"""

import difflib

from astrai_data.errors import InputError

SUPPORTED = ("jsonl", "json", "parquet", "text")
PLANNED = ("csv", "arrow", "hf")
SUFFIX_FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".txt": "text",
    ".py": "text",
    ".md": "text",
    ".csv": "csv",
    ".tsv": "csv",
    ".arrow": "arrow",
}
READABLE_SUFFIXES = tuple(suffix for suffix, name in SUFFIX_FORMATS.items() if name in SUPPORTED)
READABLE_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
SUFFIX_COMPRESSIONS = READABLE_COMPRESSIONS | {".bz2": "bzip2", ".xz": "xz", ".lz4": "lz4"}


def split_suffixes(path: str) -> tuple[str, str | None]:
    """The lower-case suffix of `path` below its compression ("" if none), and the compression (None if plain)."""
    name = path.rpartition("/")[2].lower()
    stem, dot, last = name.rpartition(".")
    compression = SUFFIX_COMPRESSIONS.get(dot + last)
    if compression:
        _, dot, last = stem.rpartition(".")
    return dot + last if dot else "", compression


def resolve_format(path: str, declared: str) -> tuple[str, str | None]:
    """(format, compression) of `path`; `declared` is the `format` key of its input, or "auto".

    Raises `InputError` where the suffix says nothing, the format is unknown or cannot be read yet.
    """
    suffix, compression = split_suffixes(path)
    name = SUFFIX_FORMATS.get(suffix) if declared == "auto" else declared
    if name not in SUPPORTED:
        raise _not_readable(path, name, suffix)
    if compression not in (None, *READABLE_COMPRESSIONS.values()):
        raise InputError(
            "the compression of an input cannot be read",
            where=path,
            got=compression,
            wanted=f"a plain file, or {' or '.join(READABLE_COMPRESSIONS.values())}",
            hint="decompress the file, or compress it with zstd",
        )
    if name == "parquet" and compression:
        raise InputError(
            "Parquet inside another compression cannot be read",
            where=path,
            got=f"Parquet inside {compression}",
            wanted="plain Parquet",
            hint="decompress the file first; Parquet compresses its own pages",
        )
    return name, compression


def is_wanted(path: str, declared: str) -> bool:
    """Whether a file found in a directory is taken: only with a suffix of the declared format, or a known one."""
    suffix, _ = split_suffixes(path)
    if declared == "jsonl" and suffix == ".json":
        return True
    found = SUFFIX_FORMATS.get(suffix)
    return found is not None and declared in ("auto", found)


def kind_of(path: str) -> str:
    """The lower-case suffix of `path` as people say it, compression included: `.png`, `.tar.gz`; "" if none."""
    suffix, compression = split_suffixes(path)
    outer = next((outer for outer, name in SUFFIX_COMPRESSIONS.items() if name == compression), "")
    return suffix + outer


def _not_readable(path: str, name: str | None, suffix: str) -> InputError:
    choices = ", ".join(("auto", *SUPPORTED))
    if name is None:
        return InputError(
            "the format of an input cannot be told from its name",
            where=path,
            got=f"suffix {suffix!r}" if suffix else "no suffix",
            wanted=f"one of {', '.join(READABLE_SUFFIXES)}, each also with {' or '.join(READABLE_COMPRESSIONS)}",
            hint=f"set `format` in data.inputs to one of: {choices}",
        )
    if name in PLANNED:
        return InputError(
            f"format {name!r} is not supported yet",
            where=path,
            got=name,
            wanted=f"one of {choices}",
            hint="convert the file to jsonl or parquet, or leave it out with a narrower glob",
        )
    near = difflib.get_close_matches(name, SUPPORTED, 1)
    hint = f"did you mean {near[0]!r}?" if near else "leave `format` out where the suffix tells it"
    return InputError("unknown input format", where=path, got=name, wanted=f"one of {choices}", hint=hint)
