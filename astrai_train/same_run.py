"""Whether a run may go on from a checkpoint: the same store, read in the same way, the same strategy and model.

Only what things are is compared, not where they lie: a run may have been moved. What may change is told in a line.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from astrai_data.inspect.numbers import counted
from astrai_data.store import TokenStore
from astrai_train.checkpoint.resume import SavedRun
from astrai_train.config import BATCH_SIZES, UNSAVED, TrainConfig
from astrai_train.errors import TrainError
from astrai_train.models import PRESETS
from astrai_train.start_model import choose_model

if TYPE_CHECKING:
    from astrai_train.plan import Plan

PLACES = ("data", "model", "output_dir")
"""Keys that say where something is, not what."""
ID_LENGTH = 16
"""Characters of a store's id that are shown."""


def check_store(store: TokenStore, config: TrainConfig, saved: SavedRun) -> None:
    """Refuse another store than the checkpoint's; it is looked at before anything that depends on it.

    Raises:
        TrainError: it is another one.
    """
    had = saved.state["data"].get("store_id")
    if had not in (store.store_id, None):
        raise TrainError(
            "the checkpoint was trained on another store",
            where=saved.path,
            got=f"{config.data}, whose id is {store.store_id[:ID_LENGTH]}",
            wanted=f"the store with id {had[:ID_LENGTH]}; it was {saved.settings.get('data')}",
            hint="give that store as --data; or begin another run with -o: a checkpoint can be its --model",
        )


def check_same_run(plan: "Plan", saved: SavedRun) -> None:
    """Refuse settings that would make it another run.

    Raises:
        TrainError: another order or cut of the data, another strategy or another model; it lists all that differs.
    """
    if differing := [*_of_reading(plan, saved), *_of_training(plan, saved)]:
        names, got, wanted = zip(*differing, strict=True)
        raise TrainError(
            f"another {' and '.join(names)} than the checkpoint's",
            where=saved.path,
            got="; ".join(got),
            wanted="; ".join(wanted),
            hint="give the checkpoint's, as the command does where nothing is given; or begin another run with -o: a "
            "checkpoint can be its --model",
        )


def tell_changes(config: TrainConfig, saved: SavedRun) -> None:
    """Say which settings are not those of the checkpoint."""
    own, ignored = config.to_dict(), {*PLACES, *UNSAVED}
    changed = [key for key in own if key not in ignored and own[key] != saved.settings.get(key)]
    if changed:
        words = ", ".join(f"{key} {_shown(saved.settings.get(key))} -> {_shown(own[key])}" for key in changed)
        logging.getLogger("astrai.train").info("other settings than the checkpoint's: %s", words)


def _shown(value: object) -> str:
    return "unset" if value is None else str(value)


def _of_reading(plan: "Plan", saved: SavedRun) -> Iterator[tuple[str, str, str]]:
    """(what differs, how it is, how it was) of the samples, as the user sets it; the loader itself refuses the rest."""
    own, had = plan.loader().state_dict(), saved.state["data"]
    if own.keys() - had.keys():
        return  # no state of a loader
    if own["seed"] != had["seed"]:
        yield "seed", f"seed {own['seed']}", f"seed {had['seed']}"
    if own["samples"] != had["samples"]:
        yield "window", _window_words(own["samples"]), _window_words(had["samples"])
    elif own["samples_per_batch"] != had["samples_per_batch"]:
        yield "size of a batch", _batch_words(plan.config.to_dict(), own), _batch_words(saved.settings, had)


def _of_training(plan: "Plan", saved: SavedRun) -> Iterator[tuple[str, str, str]]:
    if plan.strategy != saved.state["strategy"]:
        yield "strategy", f"strategy {plan.strategy}", f"strategy {saved.state['strategy']}"
    name = plan.config.model
    if name not in PRESETS and not Path(name).exists():
        return  # it was moved or deleted since, and is no longer needed
    own, wanted = choose_model(name, plan.store, plan.config.window).config.to_dict(), plan.model.config.to_dict()
    if differing := [key for key in wanted if own[key] != wanted[key]]:
        got, had = (", ".join(f"{key} {values[key]}" for key in differing) for values in (own, wanted))
        yield "model", f"model {name}: {got}", had


def _window_words(samples: dict[str, Any]) -> str:
    return f"window {samples['window']}" if "window" in samples else "no window, but whole rows"


def _batch_words(settings: dict[str, Any], state: dict[str, Any]) -> str:
    """`batch_tokens 128: 2 rows a batch`; without the setting where it was left to the default."""
    given = "".join(f"{key} {settings[key]:,}: " for key in BATCH_SIZES if settings.get(key))
    return f"{given}{counted(state['samples_per_batch'], state['samples']['kind'].removesuffix('s'))} a batch"
