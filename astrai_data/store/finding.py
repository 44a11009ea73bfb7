"""What verification finds."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """Something wrong with a store.

    Attributes:
        path: the file, relative to the store.
        what: what is wrong with it, in words.
    """

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"
