"""What may lie where a run is to write: nothing, a run of ours, and what people lay beside one.

Training deletes old checkpoints and cuts metrics.jsonl; and a folder with a model's `config.json` in it would go on
being taken for that model, not for the run. So anything else is refused before the first file is written.
"""

from pathlib import Path

from astrai_data.store import is_temporary
from astrai_data.store.manifest import FILE_NAME as MANIFEST
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
        TrainError: it is a token store; it holds a run and `resume` is not set; it holds other things and no run.
    """
    if (output / MANIFEST).exists():
        wanted, hint = "a folder without a store", "-o with another folder: `astrai preprocess` may clear this one"
        raise TrainError("the output folder is a token store", where=output, got=MANIFEST, wanted=wanted, hint=hint)
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
