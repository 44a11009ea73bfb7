"""A run of few optimizer steps is told before it begins, with what would give it more.

Of a small store one epoch may be a single step: it ends well and has learnt nothing. Runs that `max_steps` ends are as
long as somebody wanted.
"""

from typing import TYPE_CHECKING

from astrai_data.inspect.numbers import counted
from astrai_data.load import PackedRows
from astrai_train.config import TrainConfig

if TYPE_CHECKING:
    from astrai_train.plan import Plan

FEW, ENOUGH = 10, 50
"""Steps below which a run is told to be short, and those that the advice aims at."""
SMALL_MODELS_LR = 3e-4


def is_few(steps: int, config: TrainConfig) -> bool:
    """Whether a run that its epochs end has fewer steps than `FEW`, or none after its warm-up."""
    by_epochs = config.max_steps is None or steps < config.max_steps
    return by_epochs and (steps < FEW or steps <= config.warmup)


def warning(plan: "Plan") -> str:
    """What is wrong with so few steps, and which options with which numbers mend it."""
    config, steps = plan.config, plan.total_steps
    why = "little will be learnt" if steps > config.warmup else f"fewer than the warm-up has ({config.warmup:g})"
    enough = max(ENOUGH, int(2 * config.warmup))
    ways = [
        f"--epochs {-(-enough * config.accumulate // plan.length.batches_per_epoch)}",
        *_smaller_batch(plan, enough),
    ]
    words = f"only {counted(steps, 'optimizer step')}: {why}. For {enough} or so: {' or '.join(ways)}"
    if plan.model.weights is not None and config.lr is None and plan.saved is None:
        words += f". For a small model also --lr {SMALL_MODELS_LR:g}: {plan.lr:g} is for large ones"
    return words


def _smaller_batch(plan: "Plan", enough: int) -> list[str]:
    """The option that makes at least twice as many steps of the same epochs, if rows are small enough for one."""
    config, store = plan.config, plan.store
    rows = -(-store.num_tokens // config.window) if config.window else store.num_rows
    epochs = plan.length.epochs or 1
    size = max(1, rows * epochs // (enough * config.accumulate))
    steps = -(-rows // size) * epochs // config.accumulate
    if steps < 2 * plan.total_steps:
        return []
    row_tokens = config.window or PackedRows(store).max_tokens()
    option = f"--batch-tokens {size * row_tokens}" if "batch_tokens" in plan.batch_size else f"--rows-per-batch {size}"
    return [f"{option} ({counted(steps, 'step')})"]
