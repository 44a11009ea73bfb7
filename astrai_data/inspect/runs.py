"""Runs of neighbouring tokens under one mask rule, as text in which special tokens can be told from their names.

A user may write `<|im_end|>` in a message; the mark that ends the message looks the same and is one token. Runs say
which characters came from special tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from astrai_data.ragged import Ragged


@dataclass(frozen=True)
class MaskRun:
    """Neighbouring tokens under one mask rule, and their text.

    `special_spans`: (begin, end) of the characters of `text` that are special tokens, in order.
    """

    rule: str
    trained: bool
    num_tokens: int
    text: str
    special_spans: tuple[tuple[int, int], ...] = ()


def mask_runs(tokenizer, rules: list[tuple[str, bool]], pieces: Ragged, numbers: np.ndarray) -> list[MaskRun]:
    """Runs from their ids (`pieces`, one row a run) and rule `numbers`; `rules`: (name, trained) by number."""
    texts = tokenizer.decode_batch(pieces)
    spans = _special_spans(tokenizer, pieces, texts)
    facts = zip(numbers.tolist(), pieces.lengths.tolist(), texts, spans, strict=True)
    return [MaskRun(*rules[number], length, text, tuple(marks)) for number, length, text, marks in facts]


def _special_spans(tokenizer, pieces: Ragged, texts: list[str]) -> Iterator[list[tuple[int, int]]]:
    """The spans of each run; none where the text is not its tokens' texts one after the other."""
    is_special = _are_special(tokenizer, pieces.flat)
    # A run is cut in front of and behind every special token.
    cuts = np.flatnonzero(is_special[1:] | is_special[:-1]) + 1
    borders = pieces.offsets - pieces.offsets[0]
    bounds = np.unique(np.concatenate([borders, cuts]))
    decoded = tokenizer.decode_batch(Ragged(pieces.flat, bounds))
    first = np.searchsorted(bounds, borders)
    for text, (begin, end) in zip(texts, pairwise(first.tolist()), strict=True):
        parts = decoded[begin:end]
        marks = is_special[bounds[begin:end]]
        ends = np.cumsum([0, *map(len, parts)]).tolist()
        whole = "".join(parts) == text
        yield [(ends[i], ends[i + 1]) for i in np.flatnonzero(marks).tolist()] if whole else []


def _are_special(tokenizer, ids: np.ndarray) -> np.ndarray:
    """bool [n]: ids that `decode` leaves out when it is asked to leave out special tokens."""
    each, back = np.unique(ids, return_inverse=True)
    alone = Ragged(each, np.arange(len(each) + 1))
    shown, hidden = (tokenizer.decode_batch(alone, skip_special_tokens=skip) for skip in (False, True))
    return np.array([bool(a) and not b for a, b in zip(shown, hidden, strict=True)], bool)[back]
