"""Stop strings in a text that arrives in pieces.

The match that is complete first ends the text; of two that end together, the longer. So the result does not depend on
where the pieces are cut. Held back is the longest tail that could still become a stop string, and nothing more.
"""

from collections.abc import Iterable


class StopMatcher:
    """Looks for stop strings across pieces.

    Attributes:
        matched: the stop string that ended the text, if one did.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = sorted({stop for stop in stops if stop}, key=len, reverse=True)
        self._held = ""
        self.matched: str | None = None

    def push(self, piece: str) -> str:
        """The text that can be shown now; once `matched`, nothing follows."""
        if not self._stops:
            return piece
        text = self._held + piece
        if (found := self._first_match(text)) is not None:
            end, self.matched = found
            self._held = ""
            return text[: end - len(self.matched)]
        keep = self._num_held(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """What was held back and became no stop."""
        held, self._held = self._held, ""
        return held

    def _first_match(self, text: str) -> tuple[int, str] | None:
        """(end, stop) of the earliest complete match; `_stops` are longest first, and `min` keeps the first."""
        found = [(begin + len(stop), stop) for stop in self._stops if (begin := text.find(stop)) >= 0]
        return min(found, key=lambda match: match[0], default=None)

    def _num_held(self, text: str) -> int:
        """Length of the longest tail that begins a stop string."""
        longest = min(len(text), len(self._stops[0]) - 1)
        tails = (length for length in range(longest, 0, -1))
        return next((n for n in tails if any(stop.startswith(text[-n:]) for stop in self._stops)), 0)
