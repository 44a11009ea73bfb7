"""`metrics.jsonl`: one line a step, written as it happens; a run that goes on cuts what lies after its checkpoint."""

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from astrai_data.store import refused, write_bytes

if TYPE_CHECKING:
    from astrai_train.report import Outcome, StepReport
    from astrai_train.trainer import Trainer

FILE_NAME = "metrics.jsonl"
COLUMNS = ("step", "epoch", "tokens", "labels", "loss")
"""Those by which a line is known for one of ours."""
MAX_FIRST_LINE = 10_000


class MetricsFile:
    """Writes each step's report into `output/metrics.jsonl`."""

    def __init__(self, output: Path) -> None:
        self._path = output / FILE_NAME
        self._file: TextIO | None = None

    def on_train_begin(self, trainer: "Trainer") -> None:
        """Keep the lines up to the step that the run goes on from."""
        with _told(self._path):
            if self._path.exists():
                lines = self._path.read_bytes().splitlines(keepends=True)
                write_bytes(self._path, b"".join(line for line in lines if _step(line) <= trainer.step))
            self._file = self._path.open("a", encoding="utf-8")

    def on_step_end(self, trainer: "Trainer", report: "StepReport") -> None:
        """One line; what is None is left out."""
        values = {name: value for name, value in asdict(report).items() if value is not None}
        with _told(self._path):
            self._file.write(json.dumps(values) + "\n")
            self._file.flush()
            if not os.fstat(self._file.fileno()).st_nlink:
                raise FileNotFoundError(errno.ENOENT, "the file was deleted under the run")

    def on_train_end(self, trainer: "Trainer", outcome: "Outcome | None") -> None:
        """Close the file."""
        if self._file is not None:
            with suppress(OSError):  # of a line that could not be written, which is told already
                self._file.close()


def foreign_line(path: Path) -> str | None:
    """The first line of a file of this name that no run of ours has begun; None: one has, or has written nothing yet.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        line = file.readline(MAX_FIRST_LINE)
    if not line or (not line.endswith(b"\n") and line.startswith(b'{"step": ')):  # or was killed in its first line
        return None
    try:
        is_ours = json.loads(line).keys() >= {*COLUMNS}
    except (ValueError, AttributeError, RecursionError):
        is_ours = False
    return None if is_ours else line.decode(errors="replace").rstrip()


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Tell what the system refuses."""
    try:
        yield
    except OSError as error:
        raise refused("the metrics cannot be written", error, path) from error


def _step(line: bytes) -> float:
    """The step of a line; infinite for one that was not written to its end."""
    try:
        return json.loads(line)["step"] if line.endswith(b"\n") else float("inf")
    except (ValueError, KeyError, TypeError):
        return float("inf")
