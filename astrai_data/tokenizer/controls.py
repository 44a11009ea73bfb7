"""The check behind `special_tokens="text"`: what people wrote became no control token.

Libraries leave special tokens alone on request, but a model may hold them as ordinary pieces, and a normaliser may
make them out of other letters. So the ids themselves are looked at: two SIMD passes over them where control tokens
stand at one end of the vocabulary, as they mostly do.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from astrai_data.errors import TokenizerError
from astrai_data.ragged import Ragged


@dataclass(frozen=True)
class Controls:
    """The ids that plain text may not become: id -> the token's string."""

    strings: dict[int, str]

    @cached_property
    def _ids(self) -> np.ndarray:
        return np.array(sorted(self.strings), np.int32)

    def find(self, ids: np.ndarray) -> np.ndarray:
        """int64 [k]: the places in `ids` [n] where control tokens stand."""
        mine = self._ids
        if not len(mine) or not len(ids) or ids.min() > mine[-1] or ids.max() < mine[0]:
            return np.zeros(0, np.int64)
        return np.flatnonzero(np.isin(ids, mine, kind="table"))

    def refuse(self, rows: Ragged) -> tuple[Ragged, dict[int, str]]:
        """(`rows`, those with a control token emptied; number of each such row -> why)."""
        places = self.find(rows.flat)
        if not len(places):
            return rows, {}
        owners = np.searchsorted(rows.offsets[1:] - rows.offsets[0], places, side="right")
        refused: dict[int, str] = {}
        for row, token_id in zip(owners.tolist(), rows.flat[places].tolist(), strict=True):
            refused.setdefault(row, self.describe(token_id))
        kept = np.ones(len(rows), bool)
        kept[list(refused)] = False
        return Ragged.from_lengths(rows.flat[np.repeat(kept, rows.lengths)], rows.lengths * kept), refused

    def describe(self, token_id: int) -> str:
        """What happened, for people."""
        token = self.strings[token_id]
        return f"this tokenizer turns a part of the text into the special token {token!r} (id {token_id})"


def raise_refused(refused: dict[int, str]) -> None:
    """Raise `TokenizerError` for the first of `refused` (number of a text -> why), if there is one."""
    for row, reason in refused.items():
        hint = 'take the token out of the text, or let it be one: special_tokens="parse"'
        what, wanted = "a text cannot be encoded as plain text", "text in which no special token comes about"
        raise TokenizerError(what, where=f"text {row}", got=reason, wanted=wanted, hint=hint)
