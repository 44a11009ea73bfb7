"""What a checkpoint adds to a model; last its marker, `training/complete.json`: every other file with size and hash."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import xxhash

from astrai_data.store.files import map_file, write_bytes
from astrai_train.errors import CheckpointError

TRAINING = "training"
OPTIMIZER, RANDOM = f"{TRAINING}/optimizer.safetensors", f"{TRAINING}/random.safetensors"
STATE, SETTINGS = f"{TRAINING}/state.json", f"{TRAINING}/config.json"
MARKER = f"{TRAINING}/complete.json"
FORMAT, VERSION = "astrai-checkpoint", 1


def write_marker(checkpoint: Path) -> None:
    """Name every file that is there; nothing else is written afterwards."""
    files = {path.relative_to(checkpoint).as_posix(): _identity(path) for path in _files(checkpoint)}
    marker = {"format": FORMAT, "version": VERSION, "files": files}
    write_bytes(checkpoint / MARKER, json.dumps(marker, indent=2).encode(), durable=True)


def check_marker(checkpoint: Path) -> None:
    """Compare all files with the marker.

    Raises:
        CheckpointError: the marker or a file is missing or damaged; it says which.
    """
    _check(checkpoint, _read(checkpoint))


def check_weights(checkpoint: Path) -> None:
    """Compare the weights alone, which nobody edits, with the marker; a model directory without a marker passes.

    Raises:
        CheckpointError: a file of weights is missing or damaged, or the marker is.
    """
    if _has_marker(checkpoint):
        _check(
            checkpoint,
            {name: it for name, it in _read(checkpoint).items() if "/" not in name and name.endswith(".safetensors")},
        )


def _has_marker(checkpoint: Path) -> bool:
    with _readable(checkpoint, MARKER):
        return (checkpoint / MARKER).is_file()


def _check(checkpoint: Path, files: dict[str, dict]) -> None:
    for name, wanted in files.items():
        with _readable(checkpoint, name):
            got = _identity(checkpoint / name) if (checkpoint / name).is_file() else None
        if got is None:
            raise _unusable("a file of the checkpoint is missing", checkpoint, name, "nothing", "a file")
        if got != wanted:
            raise _unusable("a file of the checkpoint is damaged", checkpoint, name, _told(got), _told(wanted))


@contextmanager
def _readable(checkpoint: Path, name: str) -> Iterator[None]:
    """Tell in our words what the system refuses."""
    try:
        yield
    except OSError as error:
        what, wanted = "a file of the checkpoint cannot be read", "a file that you may read"
        raise _unusable(what, checkpoint, name, os.strerror(error.errno), wanted) from error


def _told(identity: dict) -> str:
    return f"{identity['size']:,} bytes, xxh3_128 {identity['xxh3_128']}"


def _read(checkpoint: Path) -> dict[str, dict]:
    if not _has_marker(checkpoint):
        what = "the checkpoint is not complete: its marker is missing"
        raise _unusable(what, checkpoint, MARKER, "nothing", "the file that is written last")
    try:
        with _readable(checkpoint, MARKER):
            content = (checkpoint / MARKER).read_bytes()
        marker = json.loads(content)
        if (marker["format"], marker["version"]) == (FORMAT, VERSION):
            return dict(marker["files"])
        got = f"{marker['format']}, version {marker['version']}"
    except (ValueError, KeyError, TypeError) as error:
        got = f"{type(error).__name__}: {error}"
    raise _unusable("the marker cannot be read", checkpoint, MARKER, got, f"{FORMAT}, version {VERSION}")


def _unusable(what: str, checkpoint: Path, name: str, got: object, wanted: object) -> CheckpointError:
    hint = f"restore it from a copy, or move {checkpoint.name} away: --resume then takes the one before it"
    return CheckpointError(what, where=checkpoint / name, got=got, wanted=wanted, hint=hint)


def _files(checkpoint: Path) -> list[Path]:
    return sorted(path for path in checkpoint.rglob("*") if path.is_file())


def _identity(path: Path) -> dict:
    return {"size": path.stat().st_size, "xxh3_128": xxhash.xxh3_128_hexdigest(map_file(path))}
