"""Stores of equal plan: one stands where the other is to be written.

The folder of a store's tables is named after its plan, and so is that of a store that replaces it and differs in
what is in no hash: how inputs are called, how positions are counted, files of the tokenizer that decide no id. Such
a store first steps aside: its manifest comes to name a copy of the folder, so that a kill finds it whole.
"""

import shutil
from pathlib import Path

import orjson

from astrai_data.store.files import write_bytes
from astrai_data.store.identity import sha256_hex
from astrai_data.store.manifest import FILE_NAME, Manifest


def same_store(root: Path, manifest: Manifest) -> dict[str, str] | None:
    """If the store at `root` has that very manifest: table -> SHA-256 of its file; else None."""
    data = _read(root / FILE_NAME)
    if data != manifest.to_bytes():
        return None
    run = _parsed(_read(root / manifest.run["path"]))
    files = run.get("table_files")
    return files if isinstance(files, dict) else {}


def step_aside(root: Path, folder: str) -> None:
    """Let the store at `root` stand on a copy of `folder` (relative to it), if it stands on that; else do nothing."""
    data = _read(root / FILE_NAME)
    run = _parsed(_read(root / folder / "run.json"))
    if not run or _parsed(data).get("run") != {"path": f"{folder}/run.json"}:
        return
    aside = f"{folder}-replaced"
    shutil.rmtree(root / aside, ignore_errors=True)
    for path in sorted((root / folder).rglob("*")):
        if path.is_file():
            write_bytes(root / aside / path.relative_to(root / folder), path.read_bytes())
    moved = data.replace(f'"{folder}/'.encode(), f'"{aside}/'.encode())
    write_bytes(root / aside / "run.json", orjson.dumps(run | {"store_id": sha256_hex(moved)}))
    write_bytes(root / FILE_NAME, moved, durable=True)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return b""


def _parsed(data: bytes) -> dict:
    try:
        content = orjson.loads(data)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
