"""What the system refuses during a run, told as the run's own error: nobody should read a traceback of a full disk."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from astrai_data.errors import AstraiError, RunError
from astrai_data.store import refused


@contextmanager
def told_plainly(root: Path) -> Iterator[None]:
    """Turn an `OSError` out of the block into a `RunError`; `root` is what it is about if it does not say."""
    try:
        yield
    except OSError as error:
        if isinstance(error, AstraiError):
            raise
        told = refused("the run was stopped by the system", error, error.filename or root)
        raise RunError(told.what, where=told.where, got=told.got, wanted=told.wanted, hint=told.hint) from error
