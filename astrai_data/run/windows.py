"""Pack windows: documents wait here, one window a (split, domain), until there are enough to pack.

A window closes at `min(max_tokens_per_shard, 2^24)` tokens; when a task holds 2^25 tokens, its largest window closes.
Closing depends on the order of documents alone, never on how they were cut into batches.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from astrai_data.build import DocumentBatch
from astrai_data.ragged import Ragged

MOST_TOKENS_A_PART = 2**24
MOST_TOKENS_A_TASK = 2**25
SPLITS = ("train", "validation")

Key = tuple[str, str | None]


@dataclass
class Window:
    """Documents of one (split, domain) that wait to be packed: ordinals in the task, tokens, mask runs, cuts."""

    split: str
    domain: str | None
    num_tokens: int = 0
    document: list[np.ndarray] = field(default_factory=list)
    tokens: list[Ragged] = field(default_factory=list)
    run_lengths: list[Ragged] = field(default_factory=list)
    run_rules: list[Ragged] = field(default_factory=list)
    token_start: list[np.ndarray] = field(default_factory=list)
    flags: list[np.ndarray] = field(default_factory=list)

    def append(self, documents: DocumentBatch, rows: np.ndarray | slice, tokens: Ragged, first: int) -> None:
        """Take the given rows of a batch; `first` is the ordinal of its first document, `tokens` its stored ids."""
        sequence = documents.sequence
        columns = [tokens, sequence.run_lengths, sequence.run_rules]
        if isinstance(rows, np.ndarray):
            columns = [column.take(rows) for column in columns]
        self.document.append(np.arange(first, first + len(documents), dtype=np.int32)[rows])
        self.tokens.append(columns[0])
        self.run_lengths.append(columns[1])
        self.run_rules.append(columns[2])
        self.token_start.append(documents.token_start[rows])
        self.flags.append(documents.flags[rows])
        self.num_tokens += len(columns[0].flat)


class Windows:
    """All windows of one task."""

    def __init__(self, max_tokens_per_shard: int, dtype: np.dtype) -> None:
        self._most = min(max_tokens_per_shard, MOST_TOKENS_A_PART)
        self._dtype = dtype
        self._open: dict[Key, Window] = {}
        self._num_documents = 0

    def add(self, documents: DocumentBatch) -> Iterator[Window]:
        """Take documents; yield each window that they close, in the order in which it happens."""
        tokens = documents.tokens
        tokens = Ragged(tokens.values.astype(self._dtype), tokens.offsets)
        keys, number = _keys(documents)
        begin = 0
        while begin < len(documents):
            end = self._first_close(tokens.lengths, keys, number, begin)
            self._append(documents, tokens, keys, number, begin, end)
            begin = end
            yield from self._full()
        self._num_documents += len(documents)

    def rest(self) -> Iterator[Window]:
        """Close what is open: train before validation, then by domain, the nameless first."""
        for key in sorted(self._open, key=_order):
            yield self._open.pop(key)

    def _append(self, documents, tokens: Ragged, keys: list[Key], number: np.ndarray, begin: int, end: int) -> None:
        for index, key in enumerate(keys):
            rows = begin + np.flatnonzero(number[begin:end] == index)
            if len(rows):
                whole = len(rows) == len(documents)
                window = self._open.setdefault(key, Window(*key))
                window.append(documents, slice(None) if whole else rows, tokens, self._num_documents)

    def _first_close(self, lengths: np.ndarray, keys: list[Key], number: np.ndarray, begin: int) -> int:
        """The document after which the first window must close, counted from `begin` on, or the end of the batch."""
        held = sum(window.num_tokens for window in self._open.values())
        ends = [begin + _reach(lengths[begin:], MOST_TOKENS_A_TASK - held)]
        for index, key in enumerate(keys):
            rows = begin + np.flatnonzero(number[begin:] == index)
            held = self._open[key].num_tokens if key in self._open else 0
            reached = _reach(lengths[rows], self._most - held)
            ends.append(int(rows[reached - 1]) + 1 if reached <= len(rows) else len(lengths))
        return min(*ends, len(lengths))

    def _full(self) -> Iterator[Window]:
        for key in [key for key, window in self._open.items() if window.num_tokens >= self._most]:
            yield self._open.pop(key)
        if sum(window.num_tokens for window in self._open.values()) >= MOST_TOKENS_A_TASK:
            yield self._open.pop(max(sorted(self._open, key=_order), key=lambda key: self._open[key].num_tokens))


def _reach(lengths: np.ndarray, wanted: int) -> int:
    """How many of `lengths` it takes to reach `wanted` tokens; one more than there are if they do not."""
    return int(np.searchsorted(np.cumsum(lengths), wanted)) + 1


def _keys(documents: DocumentBatch) -> tuple[list[Key], np.ndarray]:
    """((split, domain) pairs, number of each document's pair)."""
    pair = documents.domain * 2 + documents.validation
    present, number = np.unique(pair, return_inverse=True)
    return [(SPLITS[p % 2], documents.domains[p // 2]) for p in present.tolist()], number


def _order(key: Key) -> tuple:
    split, domain = key
    return SPLITS.index(split), domain is not None, (domain or "").encode()
