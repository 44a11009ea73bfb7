"""One run at a time in a folder: a lock that the system lets go of when its process ends, however it ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from astrai_data.store import refused
from astrai_train.errors import TrainError

LOCK = ".lock"

try:
    import fcntl
except ImportError:  # not on Windows; there two runs are not kept apart
    fcntl = None


@contextmanager
def occupied(output: Path) -> Iterator[None]:
    """Hold the lock of `output`, which is made if need be.

    Raises:
        TrainError: another run holds it.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        file = (output / LOCK).open("w")
    except OSError as error:
        raise refused("the output folder cannot be used", error, output) from error
    with file:
        if fcntl is not None:
            _lock(file, output)
        yield


def _lock(file, output: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        hint = "wait for it, stop it, or write elsewhere with -o"
        what, got = "another run is training into this folder", f"{LOCK}, which a process holds"
        raise TrainError(what, where=output, got=got, wanted="one run in a folder", hint=hint) from None
