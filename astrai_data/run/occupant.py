"""What already lies where a store is to be written, and whether this run may go on there."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import orjson

from astrai_data.errors import RunError
from astrai_data.run.plan import RunPlan
from astrai_data.run.work import WorkFolder
from astrai_data.store import Manifest, TokenStore

OUR_NAMES = frozenset({"manifest.json", "meta", "data", "rejects", ".work"})


@dataclass(frozen=True)
class Occupant:
    """The output folder as found.

    manifest: of the finished store, if there is one.
    input_names: names of that store's inputs.
    config_hash, config: of the work found, finished or not; None in an empty folder.
    notes: task key -> note, of finished tasks.
    """

    manifest: Manifest | None
    input_names: tuple[str, ...]
    config_hash: str | None
    config: dict
    notes: dict[str, dict]


def find_occupant(root: Path) -> Occupant:
    """Look at the output folder.

    Raises:
        RunError: it is a file, or holds things that are not ours.
        StoreError: its manifest is damaged or of a newer format.
    """
    _refuse_foreign(root)
    work = WorkFolder(root)
    under_way, notes = work.read_plan(), work.done_notes()
    if not (root / "manifest.json").exists():
        plan = under_way or {}
        return Occupant(None, (), plan.get("config_hash"), plan.get("config", {}), notes)
    store = TokenStore.open(root, split=None)
    manifest = store.manifest
    names = tuple(store.table("inputs").column("name").to_pylist())
    config = orjson.loads((root / manifest.pipeline["path"]).read_bytes())["config"]
    finished = orjson.loads((root / manifest.run["path"]).read_bytes()).get("tasks", {})
    return Occupant(manifest, names, manifest.config_hash, config, finished | notes)


def is_finished(occupant: Occupant, plan: RunPlan) -> bool:
    """Whether the store that the plan makes is there already.

    `position_ids_mode` decides no stored byte but the manifest's, so it is in no hash and compared here.
    """
    manifest, mode = occupant.manifest, plan.config.output.position_ids_mode
    return manifest is not None and (manifest.plan_hash, manifest.position_ids_mode) == (plan.plan_hash, mode)


def check_may_go_on(root: Path, occupant: Occupant, plan: RunPlan, *, update: bool, overwrite: bool) -> None:
    """Raise `RunError` unless the plan continues, updates or may replace what is there."""
    if overwrite or occupant.config_hash is None:
        return
    if occupant.config_hash != plan.config_hash:
        raise RunError(
            "the output folder holds a store of another configuration",
            where=root,
            got="; ".join(_differences(occupant.config, plan.config.hashed_form())) or "another tokenizer or template",
            wanted="the configuration and tokenizer that it was begun with",
            hint="choose another output folder, or replace the store with --overwrite",
        )
    if occupant.manifest is None or occupant.manifest.plan_hash == plan.plan_hash:
        return
    missing = Counter(occupant.input_names) - Counter(file.name for file in plan.files)
    if missing:
        raise _other_inputs(root, f"without {_shortened(sorted(missing))}", "the full list of inputs, with --update")
    if not update:
        added = sorted(Counter(file.name for file in plan.files) - Counter(occupant.input_names))
        found = f"new: {_shortened(added)}" if added else "files whose content has changed"
        raise _other_inputs(root, found, "the inputs it was made from")


def _refuse_foreign(root: Path) -> None:
    if root.exists() and not root.is_dir():
        raise RunError("the output is a file", where=root, wanted="a folder, or a path where none is yet")
    foreign = sorted(path.name for path in root.iterdir() if path.name not in OUR_NAMES) if root.exists() else []
    if foreign:
        raise RunError(
            "the output folder holds other things",
            where=root,
            got=_shortened(foreign),
            wanted="an empty folder, a new path, or a token store",
            hint="choose another -o",
        )


def _other_inputs(root: Path, got: str, wanted: str) -> RunError:
    return RunError(
        "the store in the output folder was made from other inputs",
        where=root,
        got=got,
        wanted=wanted,
        hint="add --update to read what is new, or --overwrite to make the store anew",
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
