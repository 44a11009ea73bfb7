"""The folder `.work/` of a store: what a run under way, or an interrupted one, has left to go on from.

plan.json says which plan is being worked on; done/<task key>.json says of each finished task which backend tokenized it
and which versions of its files it read. Nothing here is part of the store: a commit clears it, plan.json last, so that
where there is none nothing is left to clear.
"""

import json
import shutil
from pathlib import Path

from astrai_data.run.task import TaskSpec
from astrai_data.store import write_bytes


class WorkFolder:
    """`.work/` below a store's root."""

    def __init__(self, root: Path) -> None:
        self._path = root / ".work"

    def read_plan(self) -> dict | None:
        """What `write_plan` wrote; None if no run is under way."""
        return _read(self._path / "plan.json")

    def write_plan(self, plan: dict) -> None:
        """Say what is being worked on: `config_hash`, `plan_hash`, `config` and the names of the `inputs`."""
        write_bytes(self._path / "plan.json", json.dumps(plan).encode())

    def note_done(self, spec: TaskSpec, backend: str) -> None:
        """Note that a task is finished."""
        write_bytes(self._path / "done" / f"{spec.key}.json", json.dumps(done_note(spec, backend)).encode())

    def done_notes(self) -> dict[str, dict]:
        """Task key -> note, of the tasks finished since the last commit."""
        notes = {path.stem: _read(path) for path in (self._path / "done").glob("*.json")}
        return {key: note for key, note in notes.items() if note}

    def clear(self) -> None:
        """Forget everything but the lock, and what killed runs left of theirs."""
        shutil.rmtree(self._path / "done", ignore_errors=True)
        for path in sorted(self._path.iterdir(), key=lambda path: path.name == "plan.json"):
            if path.name != "lock.json" and not path.is_dir():
                path.unlink(missing_ok=True)


def done_note(spec: TaskSpec, backend: str) -> dict:
    """What is remembered of a finished task beside the store: the backend, and the version of each file it read."""
    return {"backend": backend, "versions": [file.version for file, _ in spec.ranges]}


def _read(path: Path) -> dict | None:
    try:
        content = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return content if isinstance(content, dict) else None
