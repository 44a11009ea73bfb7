"""Handing a store on to other tools: the reference's directories, or JSON lines."""

import difflib
import os
import secrets
import shutil
from pathlib import Path

from astrai_data.errors import StoreError
from astrai_data.records.formats import SUFFIX_FORMATS, split_suffixes
from astrai_data.store.export_jsonl import write_jsonl
from astrai_data.store.export_reference import write_reference
from astrai_data.store.files import TEMPORARY_SUFFIX
from astrai_data.store.token_store import TokenStore

FORMATS = ("reference", "jsonl")


def format_of(dest: str | Path) -> str:
    """The format that the name of a destination stands for: `jsonl` for .jsonl and .ndjson, else `reference`."""
    return "jsonl" if SUFFIX_FORMATS.get(split_suffixes(str(dest))[0]) == "jsonl" else "reference"


def export_store(
    store: TokenStore, dest: str | Path, to: str | None = None, *, skip_special_tokens: bool = False
) -> int:
    """Write `store` (the split it was opened with) to `dest` in another format, whole or not at all.

    Args:
        store: what to export.
        dest: a folder that is missing or empty (`reference`), or a file that is missing (`jsonl`).
        to: one of `FORMATS`; None: `format_of` the destination.
        skip_special_tokens: leave special tokens out of the text (`jsonl`).

    Returns:
        Shard directories, or lines, written.

    Raises:
        StoreError: an unknown format, a name of a compressed file, something at `dest`, or values that do not fit.
    """
    dest, to = Path(dest), to or format_of(dest)
    _check(dest, to, Path(store.root))
    dest.parent.mkdir(parents=True, exist_ok=True)
    temporary = dest.with_name(f".{dest.name}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
    try:
        if to == "jsonl":
            count = write_jsonl(store, temporary, skip_special_tokens=skip_special_tokens)
        else:
            temporary.mkdir()
            count = write_reference(store, temporary)
        os.replace(temporary, dest)
    except BaseException:
        _remove(temporary)
        raise
    return count


def _check(dest: Path, to: str, store_root: Path) -> None:
    if to not in FORMATS:
        near = difflib.get_close_matches(to, FORMATS, 1)
        hint = f"did you mean {near[0]!r}?" if near else "leave --to out: a name ending in .jsonl means jsonl"
        raise StoreError("unknown export format", where="--to", got=to, wanted=" or ".join(FORMATS), hint=hint)
    if dest.absolute().is_relative_to(store_root.absolute()):
        raise StoreError(
            "an export cannot lie inside its store",
            where=dest,
            got=f"a place in the store {store_root}",
            wanted="a place outside",
            hint="choose another destination",
        )
    compression = split_suffixes(str(dest))[1]
    if to == "jsonl" and compression:
        raise StoreError(
            "an export to JSON lines is not compressed",
            where=dest,
            got=f"the name of a {compression} file",
            wanted="a name without the suffix of a compression",
            hint=f"export to {dest.with_suffix('')}, and compress that",
        )
    empty_folder = to == "reference" and dest.is_dir() and not any(dest.iterdir())
    if dest.exists() and not empty_folder:
        wanted = "a folder that is missing or empty" if to == "reference" else "a file that is not there yet"
        raise StoreError(
            "there is something at the destination already",
            where=dest,
            got="a folder" if dest.is_dir() else "a file",
            wanted=wanted,
            hint="choose another destination, or remove what is there",
        )


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
