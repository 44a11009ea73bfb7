"""Which token stands at a place of the text.

For a byte-level tokenizer that leaves the text as it is, the running total of token lengths says where each token
begins, in bytes, with either backend and without asking it. That the totals meet the texts' lengths is checked on
every call. For all other tokenizers the `tokenizers` library encodes and says where tokens begin, in characters.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from astrai_data.ragged import Ragged, offsets_of
from astrai_data.tokenizer.backends import Backend, SpecialTokens, TokenizersBackend


@dataclass(frozen=True)
class Encoded:
    """Texts as tokens.

    Attributes:
        ids: int32, one row a text.
        begins: int64 [total], where in its own text each token begins.
        in_bytes: the unit of `begins`: UTF-8 bytes, or else characters.
    """

    ids: Ragged
    begins: np.ndarray
    in_bytes: bool

    def begins_of(self, row: int) -> np.ndarray:
        """`begins` of one text."""
        return self.begins[self.ids.offsets[row] : self.ids.offsets[row + 1]]

    def measure(self, text: str) -> int:
        """The length of `text` in the unit of `begins`."""
        return count_bytes(text) if self.in_bytes else len(text)

    def locate(self, rows: np.ndarray, places: np.ndarray) -> np.ndarray:
        """int64 [k]: in text `rows[k]`, the first token that begins at `places[k]` or after it."""
        if len(rows) == 0:
            return np.zeros(0, np.int64)
        # One search for all: texts are laid out one after the other on a common line.
        stride = max(int(self.begins.max(initial=0)), int(places.max())) + 1
        line = self.begins + np.repeat(np.arange(len(self.ids)) * stride, self.ids.lengths)
        found = np.searchsorted(np.maximum.accumulate(line), places + rows * stride, side="left")
        return np.minimum(found, self.ids.offsets[rows + 1]) - self.ids.offsets[rows]


@dataclass(frozen=True)
class Aligner:
    """Encodes texts so that places in them can be found again.

    Attributes:
        backend: encodes where token lengths decide.
        truth: encodes where they do not (a function: it is built only if needed).
        token_lengths: int64 [number of ids], bytes of each token; None where they do not decide.
    """

    backend: Backend
    truth: Callable[[], TokenizersBackend]
    token_lengths: np.ndarray | None

    def encode(self, texts: list[str], special_tokens: SpecialTokens) -> Encoded:
        """All texts in one call to the backend."""
        if self.token_lengths is not None:
            ids = self.backend.encode_batch(texts, special_tokens)
            starts = offsets_of(self.token_lengths[ids.flat])
            bounds = starts[ids.offsets]
            if np.array_equal(np.diff(bounds), [count_bytes(text) for text in texts]):
                return Encoded(ids, starts[:-1] - np.repeat(bounds[:-1], ids.lengths), in_bytes=True)
        return Encoded(*self.truth().encode_with_begins(texts, special_tokens), in_bytes=False)


def count_bytes(text: str) -> int:
    """The length of `text` in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())
