"""What a manifest reaches, and sweeping away what it does not.

Only `data/`, `meta/` and `rejects/` of the store are swept, and files that a killed run had not yet renamed;
anything else in the directory is not ours to delete.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from astrai_data.store.files import is_temporary
from astrai_data.store.manifest import FILE_NAME, Manifest

OWN_FOLDERS = ("data", "meta", "rejects")


def reachable(manifest: Manifest, tasks: pa.Table) -> set[str]:
    """Paths, relative to the store, of every file that the manifest names, itself included.

    Args:
        manifest: the store's.
        tasks: its `tasks` table.
    """
    meta = [entry["path"] for entry in (*manifest.tables.values(), manifest.pipeline, manifest.run)]
    tokenizer = [f"{manifest.tokenizer['path']}/{name}" for name in manifest.tokenizer["files"]]
    written = [file["path"] for files in tasks["files"].to_pylist() for file in files]
    return {FILE_NAME, *meta, *tokenizer, *written}


def is_under_way(root: Path) -> bool:
    """Whether a run works on the store, or was killed at it: what nothing refers to is then its work, not litter."""
    return (root / ".work" / "plan.json").exists()


def delete_temporaries(root: Path) -> None:
    """Delete the files that killed runs had not yet renamed; the caller holds the lock of the store."""
    for path in list(unreferenced(root, set())):
        if is_temporary(path.rpartition("/")[2]):
            (root / path).unlink(missing_ok=True)


def unreferenced(root: Path, referenced: set[str]) -> Iterator[str]:
    """Paths of files in the store's own folders that are not in `referenced`, deepest folders first."""
    yield from sorted(name for name in os.listdir(root) if is_temporary(name))
    for folder in OWN_FOLDERS:
        for parent, _, names in os.walk(root / folder, topdown=False):
            for name in sorted(names):
                path = Path(parent, name).relative_to(root).as_posix()
                if path not in referenced:
                    yield path


def delete_unreferenced(root: Path, referenced: set[str]) -> None:
    """Delete every file in the store's own folders that is not in `referenced`, and folders left empty."""
    for path in list(unreferenced(root, referenced)):
        (root / path).unlink(missing_ok=True)
    for folder in OWN_FOLDERS:
        for parent, folders, _ in os.walk(root / folder, topdown=False):
            for name in folders:
                _remove_if_empty(Path(parent, name))
        _remove_if_empty(root / folder)


def _remove_if_empty(folder: Path) -> None:
    if folder.is_symlink():
        return
    try:
        folder.rmdir()
    except OSError:  # it holds something, or is not there
        return
