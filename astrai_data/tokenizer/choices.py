"""A value out of a few known ones, or an error that names them."""

from collections.abc import Sequence
from difflib import get_close_matches

from astrai_data.errors import TokenizerError


def check_choice(what: str, value: object, known: Sequence[str]) -> None:
    """Do nothing if `value` is one of `known`.

    Raises:
        TokenizerError: it is not; the known values are named, and the nearest one is in the hint.
    """
    if isinstance(value, str) and value in known:
        return
    near = get_close_matches(str(value), known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"{known[0]!r}"
    raise TokenizerError(f"unknown {what}", where=what, got=repr(value), wanted=" or ".join(known), hint=hint)
