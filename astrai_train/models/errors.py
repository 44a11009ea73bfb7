"""Errors of model configurations and model files that a user can mend."""

from astrai_data.errors import AstraiError


class ModelError(AstraiError, ValueError):
    """A model, its files or its input that cannot be used."""


class ModelConfigError(ModelError):
    """A model configuration that cannot be used."""


class NotSupportedYetError(ModelConfigError, NotImplementedError):
    """A configuration of a model that this version cannot build."""


class ModelNotFoundError(ModelError, FileNotFoundError):
    """No model where one was expected."""
