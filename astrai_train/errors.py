"""What a user of training can mend.

Errors of models and of their files are `astrai_train.models.ModelError`: the models stand below the rest of this
package and import nothing of it.
"""

from astrai_data.errors import AstraiError


class TrainError(AstraiError):
    """A training run that cannot start or go on."""
