"""Finding a store and a split of it: from an address to a manifest, or to an error that says what stands there."""

from pathlib import Path

from astrai_data.errors import StoreError
from astrai_data.store.identity import sha256_hex
from astrai_data.store.manifest import FILE_NAME, Manifest

_WANTED = "a directory with a manifest.json, as `astrai preprocess` writes it"

SPLITS = "num_rows and num_tokens count those of the opened split; split=None (`--split all`) opens all of them"
"""What to try where a split, row or range is not there."""


def local_root(url: str | Path) -> Path:
    """The store's directory; `file://` is accepted.

    Raises:
        StoreError: the address is not on this machine.
    """
    text = str(url).removeprefix("file://")
    if "://" in text:
        raise StoreError(
            "stores are read from local directories only",
            where=url,
            got=f"the protocol {text.partition('://')[0]!r}",
            wanted="a folder of this machine",
            hint="copy the store to this machine, or mount the bucket",
        )
    return Path(text).absolute()


def read_manifest(root: Path) -> tuple[Manifest, str]:
    """The manifest of the store at `root`, and the store id (SHA-256 of the manifest's bytes).

    Raises:
        StoreError: nothing there, something else, an unfinished store, or a manifest that cannot be used.
    """
    try:
        data = (root / FILE_NAME).read_bytes()
    except OSError as error:
        raise _no_store(root, error) from error
    return Manifest.from_bytes(data, root / FILE_NAME), sha256_hex(data)


def split_counts(manifest: Manifest, split: str | None, root: Path) -> dict:
    """`num_rows`, `num_tokens`, ... of a split of the store at `root`; of all splits together if `split` is None.

    Raises:
        StoreError: the store has no such split.
    """
    if split is None:
        return manifest.totals
    by_split = {entry["split"]: entry for entry in manifest.splits}
    if split not in by_split:
        wanted = " or ".join(by_split)
        raise StoreError("the store has no such split", where=root, got=split, wanted=wanted, hint=SPLITS)
    return by_split[split]


def _no_store(root: Path, error: OSError) -> StoreError:
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return StoreError(
            "the manifest cannot be read",
            where=root / FILE_NAME,
            got=error.strerror,
            wanted="a file that you may read",
            hint="have its owner let you read it, or restore it from a copy",
        )
    if not root.exists():
        return StoreError(
            "there is no token store here",
            where=root,
            got="nothing",
            wanted=_WANTED,
            hint="check the path, or make one: astrai preprocess INPUT... -o STORE -c PIPELINE --tokenizer DIR",
        )
    if not root.is_dir():
        return StoreError(
            "a token store is a directory",
            where=root,
            got="a file",
            wanted=_WANTED,
            hint="name the folder of the store, not a file in it",
        )
    if any((root / name).is_dir() for name in ("data", ".work")):
        return StoreError(
            "this store is not finished",
            where=root,
            got="work of a run, but no manifest.json",
            wanted="a store whose run came to its end",
            hint="run the same `astrai preprocess` again: it continues where it stopped, or says what is in the way",
        )
    names = sorted(path.name for path in root.iterdir())
    return StoreError(
        "this directory is no token store",
        where=root,
        got=", ".join(names[:5]) + (", ..." if len(names) > 5 else "") or "an empty directory",
        wanted=_WANTED,
        hint="name the folder that `astrai preprocess` was given as -o",
    )
