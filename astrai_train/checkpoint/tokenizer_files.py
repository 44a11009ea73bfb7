"""The tokenizer's files of a store, for the model directory: a model is served with what it was trained with."""

import json
from pathlib import Path

from astrai_data.errors import StoreError
from astrai_data.store import TokenStore
from astrai_data.store.files import unreadable
from astrai_data.store.identity import sha256_hex

CONFIG = "tokenizer_config.json"
TEMPLATE_DATE = "template_date"


def tokenizer_files(store: TokenStore) -> dict[str, bytes]:
    """Name -> content, as the store has it; `tokenizer_config.json` also tells the `template_date` of its pipeline.

    Raises:
        StoreError: a file is missing or is not what the manifest says.
    """
    files = {name: _read(store, name, digest) for name, digest in store.manifest.tokenizer["files"].items()}
    if date := _template_date(store):
        config = json.loads(files.get(CONFIG, b"{}"))
        files[CONFIG] = json.dumps(config | {TEMPLATE_DATE: date}, indent=2, ensure_ascii=False).encode()
    return files


def _read(store: TokenStore, name: str, digest: str) -> bytes:
    path = store.root / store.manifest.tokenizer["path"] / name
    if Path(name).name != name:
        what, wanted = "a file of the store's tokenizer lies elsewhere", "a name without folders"
        hint = "make the store anew: its manifest was not written by `astrai preprocess`"
        raise StoreError(what, where=store.root / "manifest.json", got=name, wanted=wanted, hint=hint)
    content = _content(path)
    if (got := sha256_hex(content)) != digest:
        raise unreadable(path, f"SHA-256 {got}", wanted=f"SHA-256 {digest}")
    return content


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error


def _template_date(store: TokenStore) -> str | None:
    pipeline = json.loads(_content(store.root / store.manifest.pipeline["path"]))
    return pipeline.get("config", {}).get("input", {}).get("template_date")
