"""Errors a user can mend: each says what, where, got, wanted and what to try.

Everything raised for a user's input derives from `AstraiError`; the command line prints it without a traceback.
"""


class AstraiError(Exception):
    """A failure whose reader can act on it.

    Args:
        what: one sentence, what went wrong.
        where: file, byte, record or key.
        got: what was found there.
        wanted: what would have been right.
        hint: what to try next.
    """

    def __init__(
        self,
        what: str,
        *,
        where: object = None,
        got: object = None,
        wanted: object = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(what, where, got, wanted, hint)
        self.what, self.where, self.got, self.wanted, self.hint = what, where, got, wanted, hint

    def __reduce__(self):
        # Keyword arguments do not survive Exception's own pickling, and errors cross process borders.
        return _rebuild, (type(self), *self.args)

    def __str__(self) -> str:
        parts = [("where", self.where), ("got", self.got), ("wanted", self.wanted), ("try", self.hint)]
        return "\n".join([self.what] + [f"  {name}: {value}" for name, value in parts if value is not None])


def _rebuild(kind, what, where, got, wanted, hint):
    return kind(what, where=where, got=got, wanted=wanted, hint=hint)


class PipelineConfigError(AstraiError, ValueError):
    """A pipeline configuration that cannot be used."""


class TokenizerError(AstraiError, ValueError):
    """A tokenizer directory or chat template that cannot be used."""


class TokenizerNotFoundError(TokenizerError, FileNotFoundError):
    """No `tokenizer.json` where one was expected."""


class InputError(AstraiError):
    """An input file or pattern that cannot be read."""


class StoreError(AstraiError):
    """A token store that is missing, damaged, unknown or not what was asked for."""


class RunError(AstraiError):
    """A run that cannot start or did not end well."""
