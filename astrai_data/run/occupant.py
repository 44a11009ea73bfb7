"""What already lies where a store is to be written, and whether this run may go on there."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import orjson

from astrai_data.errors import RunError, StoreError
from astrai_data.run.plan import RunPlan
from astrai_data.run.reuse import CHANGED, obstacle
from astrai_data.run.work import WorkFolder
from astrai_data.store import Manifest, TokenStore, finished, is_temporary, meta_folder, read_task

OUR_NAMES = frozenset({"manifest.json", "meta", "data", "rejects", ".work"})


@dataclass(frozen=True)
class Occupant:
    """The output folder as found.

    manifest: of the finished store, if there is one.
    input_names: names of that store's inputs, or of those that a run under way was given.
    config_hash, config: of the work found, finished or not; None in an empty folder.
    notes: task key -> note, of finished tasks.
    under_way: `plan_hash` of a run that was not seen to its end; None if there is none.
    """

    manifest: Manifest | None
    input_names: tuple[str, ...]
    config_hash: str | None
    config: dict
    notes: dict[str, dict]
    under_way: str | None


def find_occupant(root: Path, *, replaceable: bool = False) -> Occupant:
    """Look at the output folder.

    Args:
        root: the output folder.
        replaceable: a store that cannot be read is to be replaced; it counts as none.

    Raises:
        RunError: it is a file, or holds things that are not ours.
        StoreError: its manifest is damaged or of a newer format.
    """
    _refuse_foreign(root)
    work = WorkFolder(root)
    plan, notes = work.read_plan() or {}, work.done_notes()
    if (root / "manifest.json").exists():
        try:
            return _finished_store(root, notes, plan.get("plan_hash"))
        except StoreError:
            if not replaceable:
                raise
    names = tuple(plan.get("inputs", ()))
    return Occupant(None, names, plan.get("config_hash"), plan.get("config", {}), notes, plan.get("plan_hash"))


def _finished_store(root: Path, notes: dict[str, dict], under_way: str | None) -> Occupant:
    store = TokenStore.open(root, split=None)
    manifest = store.manifest
    names = tuple(store.table("inputs").column("name").to_pylist())
    config = _read_object(root / manifest.pipeline["path"]).get("config", {})
    finished = _read_object(root / manifest.run["path"]).get("tasks", {})
    return Occupant(manifest, names, manifest.config_hash, config, finished | notes, under_way)


def _read_object(path: Path) -> dict:
    """A JSON file of the store; nothing if it is damaged: what it would have told is then not known."""
    try:
        content = orjson.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def is_finished(occupant: Occupant, plan: RunPlan) -> bool:
    """Whether the manifest that the plan makes is there already, and nothing is left for a run to clear up.

    The names of inputs and `position_ids_mode` decide no task's bytes, so they are in no hash and compared here.
    """
    manifest = occupant.manifest
    if manifest is None or occupant.under_way == plan.plan_hash:
        return False
    found = (manifest.plan_hash, occupant.input_names, manifest.position_ids_mode, manifest.run["path"])
    return found == (
        plan.plan_hash,
        tuple(file.name for file in plan.files),
        plan.config.output.position_ids_mode,
        f"{meta_folder(plan.plan_hash)}/run.json",  # elsewhere while a run replaces the store by one of equal plan
    )


def check_may_go_on(root: Path, occupant: Occupant, plan: RunPlan, *, update: bool, overwrite: bool) -> None:
    """Raise `RunError` unless the plan continues, updates or may replace what is there.

    Work that has kept nothing, such as a run's that failed for it, is no loss: any plan may take its place.
    """
    if overwrite or occupant.config_hash is None or not _has_kept(root, occupant):
        return
    if occupant.config_hash != plan.config_hash:
        kind = "a store" if occupant.manifest else "unfinished work"
        raise RunError(
            f"the output folder holds {kind} of another configuration",
            where=root,
            got="; ".join(_differences(occupant.config, plan.config.hashed_form())) or "another tokenizer or template",
            wanted="the configuration and tokenizer that it was begun with",
            hint=f"choose another output folder, or replace the {kind.split()[-1]} with --overwrite",
        )
    if occupant.manifest is None or occupant.manifest.plan_hash != plan.plan_hash:
        _check_inputs(root, occupant, plan, update=update)
    elif not update and _has_changed(root, occupant, plan):
        raise _other_inputs(root, "files whose content has changed", update=False)


def _has_kept(root: Path, occupant: Occupant) -> bool:
    """Whether there is a store, or a finished task of an unfinished run that kept a document."""
    done = (key for key in occupant.notes if finished(root, key))
    return occupant.manifest is not None or any(read_task(root, key).num_documents for key in done)


def _check_inputs(root: Path, occupant: Occupant, plan: RunPlan, *, update: bool) -> None:
    """A finished store takes more inputs only on request; neither it nor unfinished work gives any up."""
    names = [file.name for file in plan.files]
    if missing := sorted(Counter(occupant.input_names) - Counter(names)):
        raise _other_inputs(root, f"without {_shortened(missing)}", update=update)
    if occupant.manifest is None or update:
        return
    if added := sorted(Counter(names) - Counter(occupant.input_names)):
        raise _other_inputs(root, f"new: {_shortened(added)}", update=update)
    reordered = tuple(names) != occupant.input_names
    found = "the same inputs in another order" if reordered else "files whose content has changed"
    raise _other_inputs(root, found, update=update)


def _has_changed(root: Path, occupant: Occupant, plan: RunPlan) -> bool:
    """Whether an input has changed where its fingerprint does not look."""
    return any(obstacle(root, task, occupant.notes.get(task.key)) == CHANGED for task in plan.tasks)


def is_whole(root: Path, occupant: Occupant, plan: RunPlan) -> bool:
    """Whether every task of the store stands as running it now would make it."""
    return all(obstacle(root, task, occupant.notes.get(task.key)) is None for task in plan.tasks)


def _refuse_foreign(root: Path) -> None:
    if root.exists() and not root.is_dir():
        raise RunError(
            "the output is a file",
            where=root,
            got="a file",
            wanted="a folder, or a path where nothing is yet",
            hint="choose another -o",
        )
    names = sorted(path.name for path in root.iterdir()) if root.exists() else []
    foreign = [name for name in names if name not in OUR_NAMES and not is_temporary(name)]
    if foreign:
        raise RunError(
            "the output folder holds other things",
            where=root,
            got=_shortened(foreign),
            wanted="an empty folder, a new path, or a token store",
            hint="choose another -o",
        )


def _other_inputs(root: Path, got: str, *, update: bool) -> RunError:
    more = "" if update else "; with --update, more or changed ones may be among them"
    return RunError(
        "the store in the output folder was made from other inputs",
        where=root,
        got=got,
        wanted=f"all the inputs it was made from{more}",
        hint="give the full list of inputs" + ("" if update else " with --update") + ", or --overwrite to begin anew",
    )


def _differences(old: dict, new: dict, path: str = "") -> list[str]:
    """`key: old -> new` for every value that differs."""
    found = []
    for key in sorted(old.keys() | new.keys()):
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            found += _differences(a, b, f"{path}{key}.")
        elif a != b:
            found.append(f"{path}{key}: {a!r} -> {b!r}")
    return found


def _shortened(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
