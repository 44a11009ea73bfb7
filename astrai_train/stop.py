"""Stopping in good order: signals and the clock.

The first SIGINT or SIGTERM asks for a stop, which the loop honours before its next micro-batch; the second ends the
process at once. The clock is looked at after a step. Afterwards the handlers are those of before.
"""

import logging
import signal
import threading
import time
from types import FrameType

INTERRUPTED, OUT_OF_TIME = "interrupted", "max_seconds"
STOPPING = "stopping, with a checkpoint of the last whole step; once more ends at once, without one"


class InterruptedStepError(Exception):
    """A signal came in the middle of a step, which is to be undone; nobody outside the loop sees this."""


class Stop:
    """Says whether to stop, while a `with` block runs.

    Args:
        max_seconds: of the block; None: no limit.
    """

    def __init__(self, max_seconds: float | None = None) -> None:
        self._max_seconds = max_seconds
        self._asked = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> "Stop":
        self._began = time.monotonic()
        if threading.current_thread() is threading.main_thread():  # no other may set handlers
            self._before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def reason(self) -> str | None:
        """`INTERRUPTED`, `OUT_OF_TIME`, or None: go on."""
        if self._asked:
            return INTERRUPTED
        if self._max_seconds is not None and time.monotonic() - self._began >= self._max_seconds:
            return OUT_OF_TIME
        return None

    def check(self) -> None:
        """Go on, unless a signal asked for a stop.

        Raises:
            InterruptedStepError: one did.
        """
        if self._asked:
            raise InterruptedStepError

    def seconds_left(self) -> float | None:
        """Until the limit, if there is one."""
        return None if self._max_seconds is None else max(0.0, self._max_seconds - (time.monotonic() - self._began))

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        logging.getLogger("astrai.train").info(STOPPING)
