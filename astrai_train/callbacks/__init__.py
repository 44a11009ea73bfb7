"""What watches a run: metrics and progress.

A callback is any object with some of these methods: `on_train_begin(trainer)`, `on_step_end(trainer, report)`,
`on_checkpoint(trainer, path)`, `on_train_end(trainer, outcome)`.
"""

from astrai_train.callbacks.metrics_file import MetricsFile
from astrai_train.callbacks.notify import notify
from astrai_train.callbacks.progress import ProgressBar, ProgressLines

__all__ = ["MetricsFile", "ProgressBar", "ProgressLines", "notify"]
