"""A store's own copy of the tokenizer it was made with: what is copied, and opening it if it is still whole."""

from pathlib import Path

from astrai_data.errors import AstraiError
from astrai_data.store.files import map_file, unreadable
from astrai_data.store.identity import sha256_hex

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
)
"""What is copied of a tokenizer's directory, which may be a model's with weights beside it."""
_WHAT = "the store's copy of its tokenizer cannot be used"


def read_tokenizer_files(source: Path) -> dict[str, bytes]:
    """File name -> bytes, of a tokenizer's folder; to be read when it is opened, since a run outlives its sources."""
    return {name: (source / name).read_bytes() for name in TOKENIZER_FILES if (source / name).is_file()}


def open_tokenizer(root: Path, entry: dict):
    """The `Tokenizer` of the store at `root`; `entry` is the manifest's `tokenizer`.

    Raises:
        StoreError: a file of it is missing, cannot be read, or is another than it was.
    """
    from astrai_data.tokenizer import Tokenizer

    folder = root / entry["path"]
    for name, digest in entry["files"].items():
        _check(folder / name, digest)
    try:
        return Tokenizer.from_pretrained(folder)
    except (AstraiError, OSError, ValueError) as error:
        raise unreadable(folder, getattr(error, "what", error), what=_WHAT) from error


def _check(path: Path, digest: str) -> None:
    """Without this, a tokenizer of which one file is gone would still open, and decode to something else."""
    try:
        found = sha256_hex(map_file(path))
    except OSError as error:
        raise unreadable(path, error, what=_WHAT) from error
    if found != digest:
        raise unreadable(path, f"SHA-256 {found}", what=_WHAT, wanted=f"SHA-256 {digest}")
