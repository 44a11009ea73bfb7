"""Ctrl-C, and SIGTERM like it: a KeyboardInterrupt in the main thread, that is not lost.

A handler may run anywhere. In an import it waits for the end: compiled modules that are being loaded lose the
exception, or crash. In a callback, of a weak reference or of a library, the interpreter drops the exception and goes
on; long work therefore asks `check` again and again.
"""

import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)

_asked = False


def listen() -> None:
    """Hear both signals, in the main thread; one that the caller made us ignore stays ignored."""
    for number in SIGNALS:
        if signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL):
            signal.signal(number, _handle)


def check() -> None:
    """Go on, unless a signal came.

    Raises:
        KeyboardInterrupt: one did, and what it raised was lost.
    """
    if _asked:
        raise KeyboardInterrupt


def ignore() -> None:
    """Hear neither any more: the work is done or given up, and a Python that ends would take them for its own end."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Let a signal that `listen` hears end the process where it stands: some libraries work long and look for none."""
    heard = [number for number in SIGNALS if signal.getsignal(number) is _handle]
    for number in heard:
        signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, _handle)


def _handle(signum: int, frame: FrameType | None) -> None:
    global _asked
    _asked = True
    sys.unraisablehook = lambda _: None  # what is dropped, and what is torn down half made, would each be a traceback
    imports = [at for at, _ in traceback.walk_stack(frame) if at.f_code.co_filename == "<frozen importlib._bootstrap>"]
    if not imports:
        raise KeyboardInterrupt

    def stop(at: FrameType, event: str, _: object) -> None:
        if event == "return" and at is imports[-1]:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(stop)
