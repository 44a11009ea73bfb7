"""How an answer is drawn and when it ends: the settings of one request, checked at the edge."""

import math
from dataclasses import dataclass

from astrai_serve.errors import RequestError

MAX_SEED = 2**63 - 1

_LIMITS: dict[str, tuple[type, float, float, str]] = {
    "temperature": (float, 0, math.inf, "0 or more"),
    "top_p": (float, 0, 1, "0 to 1"),
    "top_k": (int, 0, math.inf, "0 (off) or more"),
    "min_p": (float, 0, 1, "0 to 1"),
    "frequency_penalty": (float, -2, 2, "-2 to 2"),
    "presence_penalty": (float, -2, 2, "-2 to 2"),
    "repetition_penalty": (float, 1e-6, math.inf, "more than 0"),
    "rep_window": (int, 1, math.inf, "1 or more, or null"),
    "max_tokens": (int, 0, math.inf, "0 or more, or null"),
    "seed": (int, 0, MAX_SEED, "0 to 2^63 - 1, or null"),
}
_MAY_BE_NONE = ("rep_window", "max_tokens", "seed")


@dataclass(frozen=True)
class SamplingParams:
    """Settings of one request.

    Attributes:
        temperature: divides the logits; 0 takes the most probable token.
        top_p: keep the most probable tokens up to the first that makes their sum exceed this; 1: all.
        top_k: keep the k largest logits, ties with the last included; 0: all.
        min_p: keep tokens at least this fraction as probable as the most probable one; 0: all.
        frequency_penalty: taken off a logit for each time the token was generated.
        presence_penalty: taken off once if it was generated at all.
        repetition_penalty: divides a positive logit of such a token and multiplies a negative one; 1: none.
        rep_window: how many of the last prompt tokens count as generated for the penalties; None: none of them.
        max_tokens: at most so many tokens; None: as many as the context holds.
        seed: makes the draw repeatable; None: another one each time.
        stop: strings that end the answer and are not part of it; empty ones are ignored.
        stop_ids: further ids that end it.
        ignore_eos: the tokenizer's own stop ids do not end it.

    Raises:
        RequestError: a value out of its range, with `param` naming it.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    rep_window: int | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        for name, limits in _LIMITS.items():
            value = getattr(self, name)
            if not (value is None and name in _MAY_BE_NONE):
                _check(name, value, *limits)

    @property
    def is_greedy(self) -> bool:
        """Whether nothing is drawn."""
        return self.temperature == 0

    @property
    def has_penalty(self) -> bool:
        """Whether what was generated changes the logits."""
        return bool(self.frequency_penalty or self.presence_penalty or self.repetition_penalty != 1)


def _check(name: str, value: object, kind: type, low: float, high: float, wanted: str) -> None:
    kinds = (int, float) if kind is float else (int,)
    if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high or value == math.inf:
        hint = f"mend {name}, or leave it out"
        raise RequestError(f"{name} is out of range", param=name, got=repr(value), wanted=wanted, hint=hint)
