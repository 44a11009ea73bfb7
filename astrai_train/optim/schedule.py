"""The learning rate as a pure function of the step: nothing to save, nothing to restore."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class CosineSchedule:
    """Linear warm-up, half a cosine, then the floor (Loshchilov and Hutter 2017, arXiv:1608.03983, without restarts).

    Attributes:
        lr: at its height.
        warmup_steps: steps until then.
        decay_steps: steps from there to the floor.
        min_ratio: the floor, as a part of `lr`. It cuts the curve, it does not stretch it.
    """

    lr: float
    warmup_steps: int
    decay_steps: int
    min_ratio: float

    @classmethod
    def over(cls, total_steps: int, *, lr: float, warmup: float, min_ratio: float) -> "CosineSchedule":
        """A schedule that ends with the run. `warmup` below 1 is a fraction of it, from 1 on a number of steps."""
        warmup_steps = min(int(warmup if warmup >= 1 else warmup * total_steps), total_steps)
        return cls(lr, warmup_steps, total_steps - warmup_steps, min_ratio)

    def at(self, done_steps: int) -> float:
        """The learning rate of the step after `done_steps` steps."""
        return self.lr * max(self.min_ratio, self._factor(done_steps))

    def _factor(self, t: int) -> float:
        if t < self.warmup_steps:
            return t / self.warmup_steps
        progress = min((t - self.warmup_steps) / max(self.decay_steps, 1), 1.0)
        return (1 + math.cos(math.pi * progress)) / 2
