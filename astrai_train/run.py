"""A run from a configuration: the output folder, the checkpoint to go on from, the plan, the trainer."""

import logging
from collections.abc import Iterable
from pathlib import Path

from astrai_data.store.manifest import FILE_NAME as MANIFEST
from astrai_train.callbacks import MetricsFile
from astrai_train.callbacks.metrics_file import FILE_NAME
from astrai_train.checkpoint.resume import SavedRun, find_saved
from astrai_train.checkpoint.write import all_checkpoints, clear_leftovers
from astrai_train.config import UNSAVED, TrainConfig
from astrai_train.errors import TrainError
from astrai_train.models import PRESETS
from astrai_train.occupancy import occupied
from astrai_train.plan import Plan, make_plan
from astrai_train.report import Outcome
from astrai_train.start_model import choose_model
from astrai_train.trainer import Trainer

PLACES = ("data", "model", "output_dir")
"""Keys that say where something is, not what: a run may have been moved."""


def train(config: TrainConfig, *, resume: bool = False, callbacks: Iterable[object] = ()) -> Outcome:
    """Train as configured.

    Args:
        config: what to do.
        resume: go on from the newest checkpoint in its output folder; begin anew where there is none.
        callbacks: after the one that writes metrics.jsonl.

    Raises:
        TrainError: the folder holds a run and `resume` is not set, a damaged checkpoint, something that does not fit.
        AstraiError: data, model or device cannot be used.
    """
    output = Path(config.output_dir)
    _refuse_store(output)  # before a lock is written into it
    with occupied(output):
        plan = plan_run(config, resume=resume)
        clear_leftovers(output)
        return Trainer(plan, [MetricsFile(output), *callbacks]).run()


def plan_run(config: TrainConfig, *, resume: bool = False) -> Plan:
    """The plan of that run; nothing is written."""
    output = Path(config.output_dir)
    _refuse_store(output)
    saved = find_saved(output) if resume else None
    if not resume:
        _refuse_used(output)
    if saved:
        _tell_changes(config, saved)
    plan = make_plan(config, saved)
    if saved:
        _check_same_run(plan, saved)
    return plan


def _check_same_run(plan: Plan, saved: SavedRun) -> None:
    """Refuse another strategy and another model; what decides the data, the loader refuses by itself."""
    if plan.strategy != saved.state["strategy"]:
        raise _other_run("strategy", plan.strategy, saved.state["strategy"])
    name = plan.config.model
    if name not in PRESETS and not Path(name).exists():
        return  # it was moved or deleted since, and is no longer needed
    own, wanted = choose_model(name, plan.store, plan.config.window).config.to_dict(), plan.model.config.to_dict()
    if differing := [key for key in wanted if own[key] != wanted[key]]:
        got, had = (", ".join(f"{key} {values[key]}" for key in differing) for values in (own, wanted))
        raise _other_run("model", f"{name}: {got}", had)


def _refuse_store(output: Path) -> None:
    if (output / MANIFEST).exists():
        wanted, hint = "a folder without a store", "-o with another folder: `astrai preprocess` may clear this one"
        raise TrainError("the output folder is a token store", where=output, got=MANIFEST, wanted=wanted, hint=hint)


def _refuse_used(output: Path) -> None:
    found = [checkpoint.path.name for checkpoint in all_checkpoints(output)]
    if found or (output / FILE_NAME).exists():
        raise TrainError(
            "the output folder holds a run already",
            where=output,
            got=found[-1] if found else FILE_NAME,
            wanted="a folder without a run",
            hint="--resume goes on with it; -o with another folder begins a new one",
        )


def _tell_changes(config: TrainConfig, saved: SavedRun) -> None:
    """Say which settings are not those of the checkpoint."""
    own, ignored = config.to_dict(), {*PLACES, *UNSAVED}
    changed = [key for key in own if key not in ignored and own[key] != saved.settings.get(key)]
    if changed:
        words = ", ".join(f"{key} {saved.settings.get(key)} -> {own[key]}" for key in changed)
        logging.getLogger("astrai.train").info("other settings than the checkpoint's: %s", words)


def _other_run(key: str, got: object, wanted: object) -> TrainError:
    hint = "leave it out, or begin another run with -o; a checkpoint can be its --model"
    return TrainError(f"another {key} than the checkpoint's", where=key, got=got, wanted=wanted, hint=hint)
