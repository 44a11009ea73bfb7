"""Errors of model configurations and model files that a user can mend."""

from collections.abc import Sequence

from astrai_data.errors import AstraiError

MAX_NAMES_SHOWN = 10


class ModelError(AstraiError, ValueError):
    """A model, its files or its input that cannot be used."""


class ModelConfigError(ModelError):
    """A model configuration that cannot be used."""


class NotSupportedYetError(ModelConfigError, NotImplementedError):
    """A configuration of a model that this version cannot build."""


class ModelNotFoundError(ModelError, FileNotFoundError):
    """No model where one was expected."""


def listed(names: Sequence[str]) -> str:
    """Names for a message, the first of them if they are many; an empty text if there is none."""
    more = len(names) - MAX_NAMES_SHOWN
    return ", ".join(names[:MAX_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
