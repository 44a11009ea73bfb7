"""What is told of a run: of each step, and of its end."""

from dataclasses import dataclass
from pathlib import Path

FINISHED = "finished"


@dataclass(frozen=True)
class StepReport:
    """One line of `metrics.jsonl`.

    Attributes:
        step: optimizer steps done, this one included.
        epoch: of the step's last micro-batch, from 0.
        tokens: consumed since the run's begin.
        labels: trained in this step.
        loss: their mean; 0 where there is none.
        lr: of this step.
        grad_norm: of this step, before clipping.
        tokens_per_s: of this step, without evaluations and checkpoints.
        seconds: spent in steps since the run's begin.
        val_loss: mean over the validation split after this step, where it was evaluated.
    """

    step: int
    epoch: int
    tokens: int
    labels: int
    loss: float
    lr: float
    grad_norm: float
    tokens_per_s: float
    seconds: float
    val_loss: float | None = None


@dataclass(frozen=True)
class Outcome:
    """How a run ended: `reason` is `finished`, `interrupted` or `max_seconds`."""

    reason: str
    step: int
    checkpoint: Path
    last: StepReport | None
