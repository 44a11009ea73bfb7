"""Progress for people: a bar on a terminal, plain lines elsewhere, on standard error."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from astrai_train.report import Outcome, StepReport
    from astrai_train.trainer import Trainer

LINE_EVERY_S = 10.0


class ProgressLines:
    """A line for the first step, then one every ten seconds, for every evaluation and checkpoint, and at the end."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def on_step_end(self, trainer: "Trainer", report: "StepReport") -> None:
        """Perhaps a line."""
        now = time.monotonic()
        is_last = report.step == trainer.plan.total_steps
        if now >= self._next_s or is_last or report.val_loss is not None:
            self._next_s = now + LINE_EVERY_S
            _say(f"step {report.step:,}/{trainer.plan.total_steps:,}  {summary(trainer, report)}")

    def on_checkpoint(self, trainer: "Trainer", path: Path) -> None:
        """A line."""
        _say(f"checkpoint {path}")


class ProgressBar:
    """A bar of steps, with loss, tokens/s and the time left."""

    _bar = None

    def on_train_begin(self, trainer: "Trainer") -> None:
        """Show it."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}", markup=False))
        self._bar = Progress(*columns, console=Console(stderr=True))
        self._bar.start()
        self._task = self._bar.add_task("", total=trainer.plan.total_steps, completed=trainer.step)

    def on_step_end(self, trainer: "Trainer", report: "StepReport") -> None:
        """Move it."""
        self._bar.update(self._task, completed=report.step, description=summary(trainer, report))

    def on_checkpoint(self, trainer: "Trainer", path: Path) -> None:
        """A line above it."""
        self._bar.console.print(f"checkpoint {path}", markup=False, highlight=False)

    def on_train_end(self, trainer: "Trainer", outcome: "Outcome | None") -> None:
        """Leave it as it stands."""
        if self._bar is not None:
            self._bar.stop()


def summary(trainer: "Trainer", report: "StepReport") -> str:
    """Loss, speed and time left of a step, in a line."""
    words = [f"loss {report.loss:.4f}"]
    if report.val_loss is not None:
        words.append(f"val_loss {report.val_loss:.4f}")
    words += [
        f"lr {report.lr:.2e}",
        f"{report.tokens_per_s:,.0f} tokens/s",
        f"{_duration(trainer.seconds_left())} left",
    ]
    return "  ".join(words)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
