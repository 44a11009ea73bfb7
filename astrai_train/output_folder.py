"""What may lie where a run is to write: nothing, a run of ours, and what people lay beside one.

Training deletes old checkpoints and cuts metrics.jsonl; and a folder with a model's `config.json` in it would go on
being taken for that model, not for the run. So anything else is refused before the first file is written.
"""

import os
from pathlib import Path

from astrai_data.config.problems import shown
from astrai_data.store import is_temporary
from astrai_data.store.manifest import FILE_NAME as MANIFEST
from astrai_data.store.manifest import FORMAT
from astrai_train.callbacks.metrics_file import COLUMNS, foreign_line
from astrai_train.callbacks.metrics_file import FILE_NAME as METRICS
from astrai_train.checkpoint.read import TOKENIZER
from astrai_train.errors import TrainError
from astrai_train.models.errors import listed
from astrai_train.models.finding import CHECKPOINT_NAME, CONFIG, all_checkpoints

BESIDE = (".json", ".log", ".out", ".err")
"""Endings of what people lay beside a run: its configuration, and what it printed."""


def check_folder(output: Path, *, resume: bool) -> None:
    """Refuse a folder in which this run may not write.

    Raises:
        TrainError: it is no folder and cannot become one, or is closed to us; it is a token store or lies in one; its
            metrics.jsonl is another program's; it holds a run and `resume` is not set; it holds other things and no
            run.
    """
    _check_place(output)
    _check_store(output)
    _check_metrics(output / METRICS)
    checkpoints = [checkpoint.path.name for checkpoint in all_checkpoints(output)]
    if checkpoints or (output / METRICS).exists():
        if not resume:
            _refuse_used(output, checkpoints[-1] if checkpoints else METRICS)
    elif foreign := sorted(path.name for path in _entries(output) if not _may_lie_there(path)):
        raise TrainError(
            "the output folder holds other things than a run",
            where=output,
            got=listed(foreign),
            wanted="a new or an empty folder, or one with a run; a configuration and logs may lie in it",
            hint=f"-o with another folder, for example {output / 'run'}",
        )


def _check_place(output: Path) -> None:
    if obstacle := _obstacle(output):
        where, got = obstacle
        wanted, hint = "a folder, or a name that nothing has yet", "-o with another folder"
        raise TrainError("the output folder cannot be used", where=where, got=got, wanted=wanted, hint=hint)


def _obstacle(output: Path) -> tuple[Path, str] | None:
    """What keeps `output` from being a folder, and where; None: nothing."""
    nearest = next((path for path in (output, *output.parents) if os.path.lexists(path)), None)
    if nearest is None:
        return None
    if not os.path.isdir(nearest):
        return nearest, "a file" if os.path.exists(nearest) else "a link to nothing"
    if nearest == output:
        return _closed(output)
    missing = output.parts[len(nearest.parts) :]
    for path in (output, *(nearest / name for name in missing)):  # alone too: of a missing folder nothing else is told
        try:
            path.lstat()
        except FileNotFoundError:
            continue
        except OSError as error:  # a name that is too long, a folder that is closed to us
            return output, os.strerror(error.errno)
    return None


def _closed(folder: Path) -> tuple[Path, str] | None:
    """Why what is in a folder cannot be seen, and where; None: it can."""
    try:
        os.listdir(folder)
        os.stat(os.path.join(folder, "."))  # some may be listed, and nothing in them looked at
    except OSError as error:
        return folder, os.strerror(error.errno)
    return None


def _check_metrics(path: Path) -> None:
    """A run cuts it and writes on: of another program it would be destroyed."""
    try:
        line = foreign_line(path)
    except OSError:  # there is none; what else is wrong is told when it is to be written
        return
    if line is not None:
        raise TrainError(
            f"the output folder's {METRICS} is not one of ours",
            where=path,
            got=f"a first line {shown(line)}",
            wanted=f"an object with {', '.join(COLUMNS)}, as a run writes for each step",
            hint="move the file away, or -o with another folder",
        )


def _check_store(output: Path) -> None:
    """A run in a store would be in the way of `astrai preprocess --overwrite`."""
    if (output / MANIFEST).exists():
        what, store = "the output folder is a token store", output
    else:
        what = "the output folder lies in a token store"
        store = next(filter(_is_store, Path(os.path.realpath(output)).parents), None)
    if store is not None:
        wanted, hint = "a folder without a store", "-o with a folder elsewhere: `astrai preprocess` may clear this one"
        raise TrainError(what, where=output, got=store / MANIFEST, wanted=wanted, hint=hint)


def _is_store(folder: Path) -> bool:
    """Many programs have a `manifest.json`; ours says what it is."""
    try:
        return FORMAT.encode() in (folder / MANIFEST).read_bytes()
    except OSError:
        return False


def _refuse_used(output: Path, found: str) -> None:
    raise TrainError(
        "the output folder holds a run already",
        where=output,
        got=found,
        wanted="a folder without a run",
        hint="--resume goes on with it; -o with another folder begins a new one",
    )


def _entries(output: Path) -> list[Path]:
    return list(output.iterdir()) if output.is_dir() else []


def _may_lie_there(path: Path) -> bool:
    """Of a folder without checkpoints: hidden files, a run's lock among them, its leftovers, settings and logs."""
    if CHECKPOINT_NAME.fullmatch(path.name) or is_temporary(path.name):
        return True
    is_another = path.is_dir() or path.name in (CONFIG, TOKENIZER)
    return not is_another and (path.name.startswith(".") or path.suffix in BESIDE)
