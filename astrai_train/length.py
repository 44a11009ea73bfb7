"""How long a run is: batches, steps and epochs of one another.

A window of micro-batches may reach over the end of an epoch, and the last window of a run may be short: no batch is
dropped. Ten batches in windows of two are five steps, whether they are one epoch or two of five batches.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class RunLength:
    """Where a run ends; at least one of `epochs` and `max_steps` is given.

    Attributes:
        batches_per_epoch: micro-batches of an epoch.
        accumulate: micro-batches of a step.
        epochs: None: as many as `max_steps` needs.
        max_steps: None: as many as `epochs` give.
    """

    batches_per_epoch: int
    accumulate: int
    epochs: int | None
    max_steps: int | None

    @classmethod
    def of(cls, batches_per_epoch: int, accumulate: int, epochs: int | None, max_steps: int | None) -> "RunLength":
        """One epoch where nothing is said."""
        return cls(batches_per_epoch, accumulate, epochs or (None if max_steps else 1), max_steps)

    def total_steps(self, step: int = 0, num_batches: int = 0) -> int:
        """Steps of the whole run, of which `step` with `num_batches` batches are done."""
        ends = [] if self.max_steps is None else [self.max_steps]
        if self.epochs is not None:
            left = max(0, self.epochs * self.batches_per_epoch - num_batches)
            ends.append(step - (-left // self.accumulate))
        return min(ends)

    def times_read(self, step: int = 0, num_batches: int = 0) -> float:
        """How often each row is read until the end of the run, of which `step` with `num_batches` batches are done."""
        whole = num_batches + (self.total_steps(step, num_batches) - step) * self.accumulate
        if self.epochs is not None:
            whole = min(whole, self.epochs * self.batches_per_epoch)
        return whole / self.batches_per_epoch

    def window(self, num_batches: int) -> int:
        """Micro-batches of the step that begins after `num_batches` batches."""
        if self.epochs is None:
            return self.accumulate
        return min(self.accumulate, self.epochs * self.batches_per_epoch - num_batches)

    def epoch(self, num_batches: int) -> int:
        """The epoch of the last of `num_batches` batches, from 0."""
        return max(0, num_batches - 1) // self.batches_per_epoch
