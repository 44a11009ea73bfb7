"""What a user of training can mend.

Errors of models and of their files are `astrai_train.models.ModelError`: the models stand below the rest of this
package and import nothing of it.
"""

from astrai_data.errors import AstraiError


class TrainError(AstraiError):
    """A training run that cannot start or go on."""


class TrainConfigError(TrainError, ValueError):
    """A training configuration that cannot be used."""


class CheckpointError(TrainError):
    """A checkpoint that training cannot go on from, or that cannot be written."""


class NonFiniteError(TrainError, ArithmeticError):
    """A loss or gradient that is no number; the weights are those of the step before."""
