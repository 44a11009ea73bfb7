"""What can go wrong while a store is loaded."""

from astrai_data.errors import AstraiError


class LoadError(AstraiError, ValueError):
    """A store, a setting or a saved state that cannot be loaded from, or a worker process that ended."""
