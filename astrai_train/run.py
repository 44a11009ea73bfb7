"""A run from a configuration: the output folder, the checkpoint to go on from, the plan, the trainer.

What needs torch is imported after everything that needs none is checked.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from astrai_train.callbacks import MetricsFile
from astrai_train.checkpoint.resume import find_saved
from astrai_train.config import TrainConfig
from astrai_train.inputs import choose_inputs
from astrai_train.occupancy import occupied
from astrai_train.output_folder import check_folder
from astrai_train.report import Outcome
from astrai_train.same_run import check_same_run, tell_changes

if TYPE_CHECKING:
    from astrai_train.plan import Plan


def train(config: TrainConfig, *, resume: bool = False, callbacks: Iterable[object] = ()) -> Outcome:
    """Train as configured.

    Args:
        config: what to do.
        resume: go on from the newest checkpoint in its output folder; begin anew where there is none.
        callbacks: after the one that writes metrics.jsonl.

    Raises:
        TrainError: the folder holds other things, or a run and `resume` is not set; a damaged checkpoint; something
            that does not fit.
        AstraiError: data, model or device cannot be used.
    """
    output = Path(config.output_dir)
    check_folder(output, resume=resume)  # before a lock is written into it
    with occupied(output):
        plan = plan_run(config, resume=resume)
        from astrai_train.checkpoint.write import clear_leftovers
        from astrai_train.device import cpu_threads
        from astrai_train.trainer import Trainer

        clear_leftovers(output)
        with cpu_threads(config.threads):
            return Trainer(plan, [MetricsFile(output), *callbacks]).run()


def plan_run(config: TrainConfig, *, resume: bool = False) -> "Plan":
    """The plan of that run; nothing is written."""
    output = Path(config.output_dir)
    check_folder(output, resume=resume)
    saved = find_saved(output) if resume else None
    inputs = choose_inputs(config, saved)
    from astrai_train.plan import plan_over

    plan = plan_over(inputs)
    if saved:
        check_same_run(plan, saved)
        tell_changes(config, saved)
    return plan
