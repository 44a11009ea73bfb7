"""Saved states: where a loader stands, and all that decides what comes next.

A state is plain JSON. It counts what was delivered, never what was read ahead, and knows nothing of ranks and
workers: it goes on with any number of both. It goes on with nothing else: another store, split, seed, rule or batch
would silently give other samples.
"""

from dataclasses import asdict

from astrai_data.load.errors import LoadError
from astrai_data.load.schedule import Cursor, Schedule
from astrai_data.load.stream import BatchStream

FORMAT, VERSION = "astrai-loader-state", 1

_MEANING = {
    "store_id": "the store holds other data",
    "split": "the other split was read",
    "seed": "samples come in another order",
    "rule": "samples come in another order",
    "samples": "rows and windows are cut differently",
    "samples_per_batch": "batches have another size",
}


def state_dict(stream: BatchStream, cursor: Cursor, num_batches: int) -> dict:
    """The state of a loader that has delivered `num_batches` batches and stands at `cursor`."""
    return {"format": FORMAT, "version": VERSION, "num_batches": num_batches} | asdict(cursor) | _identity(stream)


def read_state(state: dict, stream: BatchStream) -> tuple[Cursor, int]:
    """The cursor and the number of batches delivered.

    Raises:
        LoadError: no state of a loader, or one of another store, split, seed, rule or batch.
    """
    if not isinstance(state, dict) or (state.get("format"), state.get("version")) != (FORMAT, VERSION):
        shown = type(state).__name__
        got = {name: state.get(name) for name in ("format", "version")} if isinstance(state, dict) else shown
        raise LoadError(
            "this is no state of a loader",
            where="format and version of the state",
            got=got,
            wanted=f"{FORMAT!r}, version {VERSION}",
            hint="give what `state_dict()` of a loader returned, or begin anew without a state",
        )
    _check_identity(state, _identity(stream))
    _check_numbers(state, stream.schedule)
    return Cursor(state["epoch"], state["position"]), state["num_batches"]


def _identity(stream: BatchStream) -> dict:
    store, schedule = stream.samples.store, stream.schedule
    return {
        "store_id": store.store_id,
        "split": store.split,
        "seed": schedule.rule.seed,
        "rule": schedule.rule.state_dict(),
        "samples": stream.samples.state_dict(),
        "samples_per_batch": schedule.samples_per_batch,
    }


def _check_identity(state: dict, own: dict) -> None:
    other = [name for name in own if state.get(name) != own[name]]
    if other:
        raise LoadError(
            "the saved state does not belong to this loader: " + "; ".join(f"{n}: {_MEANING[n]}" for n in other),
            where=", ".join(other),
            got="; ".join(f"{name} {state.get(name)!r}" for name in other),
            wanted="; ".join(f"{name} {own[name]!r}" for name in other),
            hint="load with the settings and the store of the saved run, or begin anew without its state",
        )


def _check_numbers(state: dict, schedule: Schedule) -> None:
    numbers = {name: state.get(name) for name in ("epoch", "position", "num_batches")}
    whole = all(isinstance(number, int) and number >= 0 for number in numbers.values())
    if not whole or numbers["position"] >= schedule.num_samples:
        wanted = f"whole numbers from 0, a position below {schedule.num_samples}"
        where, hint = "epoch, position and num_batches of the state", "take an older state, or begin anew without one"
        raise LoadError("the saved state is damaged", where=where, got=numbers, wanted=wanted, hint=hint)
