"""The loader: its settings, saved states, and workers."""

import os
import signal

from astrai_data import TokenStore
from astrai_data.load import FlatWindows, LoadError, PackedLoader

from .place import CONFIG, Place
from .row import Row


def load(**options):
    """A loader with these settings, and one batch of it."""

    def fail(place: Place) -> None:
        given = {"seed": 0, "rows_per_batch": 1} | options | place.settings
        next(PackedLoader(place.open(), **{name: value for name, value in given.items() if value != "nothing"}))

    return fail


def state(**changes):
    """A state with other values, given to a new loader."""

    def fail(place: Place) -> None:
        saved = PackedLoader(place.open(), seed=0, rows_per_batch=1).state_dict()
        PackedLoader(place.open(), seed=0, rows_per_batch=1).load_state_dict(saved | changes)

    return fail


def no_validation(place: Place) -> None:
    """Every record is for validation: the other split has no tokens."""
    place.pipeline(CONFIG | {"run": {"validation_fraction": 0.999999}})
    PackedLoader(TokenStore.open(place / "out", "train"), seed=0, rows_per_batch=1)


def killed(place: Place) -> None:
    loader = PackedLoader(place.open(), seed=0, rows_per_batch=1, workers=1)
    try:
        next(loader)
        os.kill(loader._batches._processes[0].pid, signal.SIGKILL)
        for _ in loader:
            pass
    finally:
        loader.close()


def mend_batch(place: Place) -> None:
    """Raise batch_tokens to what the message wants."""
    place.settings = {"batch_tokens": int(place.told("wanted").removeprefix("at least ").split(",")[0])}


def mend_once(place: Place) -> None:
    assert place.told("try") == "give batch_tokens, or rows_per_batch, and not both"
    place.settings = {"batch_tokens": 64, "rows_per_batch": "nothing"}


def row(name, fail, *says, mend=None) -> Row:
    return Row(name, fail, LoadError, says, mend=mend)


NEITHER = {"rows_per_batch": "nothing"}

ROWS = [
    row("a small batch", load(batch_tokens=9, **NEITHER), "got: 9", "at least 64", "`window`", mend=mend_batch),
    row("two sizes", load(batch_tokens=64), "batch_tokens 64, rows_per_batch 1", "one of the two", mend=mend_once),
    row("no size", load(**NEITHER), "batch_tokens None, rows_per_batch None", "one of the two", mend=mend_once),
    row("a rank too high", load(rank=2, world_size=2), "got: 2", "0 to 1, for world_size 2", "ranks count from 0"),
    row("a negative number", load(workers=-1), "got: -1", "0 or more", "workers=0"),
    row("a stride of rows", load(stride=5), "got: 5", "give a window as well"),
    row("no tokens", no_validation, "0 rows, split 'train'", "validation_fraction"),
    row("an empty window", lambda p: FlatWindows(p.open(), 0), "got: 0", "1 or more", "such as 2048"),
    row("a stride of nothing", lambda p: FlatWindows(p.open(), 8, 0), "got: 0", "leave it out"),
    row("no state", state(format="torch"), "'torch'", "'astrai-loader-state', version 1", "`state_dict()`"),
    row(
        "a state that is a list", lambda p: PackedLoader(p.open(), seed=0, rows_per_batch=1).load_state_dict([]), "list"
    ),
    row("a state of another seed", state(seed=7), "samples come in another order", "seed 7", "seed 0", "begin anew"),
    row("a damaged state", state(position=-3), "'position': -3", "whole numbers from 0", "an older state"),
    row("a killed worker", killed, "killed by SIGKILL", "worker 0", "use fewer workers"),
]
