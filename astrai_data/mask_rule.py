"""A mask rule: why a token is trained or not. Builder, packer and store all speak of rules by number."""

from dataclasses import dataclass


@dataclass(frozen=True)
class MaskRule:
    """A named reason for a token's flag; `trained` is the flag. Segments refer to it by its index in the manifest."""

    name: str
    trained: bool
