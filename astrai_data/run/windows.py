"""Pack windows: documents wait here, one window a (split, domain), until there are enough to pack.

A window closes at `min(max_tokens_per_shard, 2^24)` tokens; when a task holds 2^25 tokens, its largest window closes.
Closing depends on the order of documents alone, never on how they were cut into batches.

Tokens are laid into memory that is reserved for the whole window, of which the system gives a page when it is first
written to. So they are copied once, and what lives as long as a window lies apart from what lives as long as a batch,
which would otherwise tear up the heap and make long runs need more memory than short ones.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from astrai_data.build import DocumentBatch
from astrai_data.ragged import Ragged

MOST_TOKENS_A_PART = 2**24
MOST_TOKENS_A_TASK = 2**25
FEW_TOKENS = 2**20
SPLITS = ("train", "validation")

Key = tuple[str, str | None]


@dataclass(frozen=True)
class WindowColumns:
    """The documents of a closed window: what `pack.gather` takes, but for the plan."""

    tokens: Ragged
    run_lengths: Ragged
    run_rules: Ragged
    token_start: np.ndarray
    document: np.ndarray
    flags: np.ndarray


@dataclass
class Window:
    """Documents of one (split, domain) that wait to be packed, as narrow columns: 33 bytes a short one, and tokens.

    most: tokens after which it will be closed; only one that has few has not yet room for them all.
    """

    split: str
    domain: str | None
    most: int
    num_tokens: int = 0
    _tokens: np.ndarray | None = None
    _columns: defaultdict[str, list[np.ndarray]] = field(default_factory=lambda: defaultdict(list))

    def append(self, documents: DocumentBatch, rows: np.ndarray | slice, first: int) -> None:
        """Take the given rows of a batch; `first` is the ordinal of its first document."""
        sequence = documents.sequence
        ragged = [sequence.tokens, sequence.run_lengths, sequence.run_rules]
        if isinstance(rows, np.ndarray):
            ragged = [column.take(rows) for column in ragged]
        tokens, run_lengths, run_rules = ragged
        added = {
            "length": tokens.lengths.astype(np.int32),
            "run_lengths": run_lengths.flat,
            "run_rules": run_rules.flat,
            "num_runs": run_lengths.lengths.astype(np.int32),
            "token_start": documents.token_start[rows],
            "document": np.arange(first, first + len(documents), dtype=np.int32)[rows],
            "flags": documents.flags[rows],
        }
        for name, values in added.items():
            self._columns[name].append(values)
        self._lay(tokens.flat)

    def _lay(self, tokens: np.ndarray) -> None:
        end = self.num_tokens + len(tokens)
        if self._tokens is None:
            self._tokens = np.empty(0, tokens.dtype)
        if end > len(self._tokens):
            room = np.empty(2 * end if end < FEW_TOKENS else max(end, self.most), tokens.dtype)
            room[: self.num_tokens] = self._tokens[: self.num_tokens]
            self._tokens = room
        self._tokens[self.num_tokens : end] = tokens
        self.num_tokens = end

    def release(self) -> WindowColumns:
        """All documents joined; the window is empty then, and a column is let go of as soon as it is joined."""
        tokens, self._tokens = self._tokens[: self.num_tokens], None
        joined = {name: np.concatenate(self._columns.pop(name)) for name in list(self._columns)}
        run_lengths = Ragged.from_lengths(joined["run_lengths"], joined["num_runs"])
        return WindowColumns(
            tokens=Ragged.from_lengths(tokens, joined["length"]),
            run_lengths=run_lengths,
            run_rules=Ragged(joined["run_rules"], run_lengths.offsets),
            token_start=joined["token_start"],
            document=joined["document"],
            flags=joined["flags"],
        )


class Windows:
    """All windows of one task."""

    def __init__(self, max_tokens_per_shard: int) -> None:
        self._most = min(max_tokens_per_shard, MOST_TOKENS_A_PART)
        self._open: dict[Key, Window] = {}
        self._num_documents = 0

    def add(self, documents: DocumentBatch) -> Iterator[Window]:
        """Take documents; yield each window that they close, in the order in which it happens."""
        lengths = documents.tokens.lengths
        keys, number = _keys(documents)
        begin = 0
        while begin < len(documents):
            end = self._first_close(lengths, keys, number, begin)
            self._append(documents, keys, number, begin, end)
            begin = end
            yield from self._full()
        self._num_documents += len(documents)

    def rest(self) -> Iterator[Window]:
        """Close what is open: train before validation, then by domain, the nameless first."""
        for key in sorted(self._open, key=_order):
            yield self._open.pop(key)

    def _append(self, documents: DocumentBatch, keys: list[Key], number: np.ndarray, begin: int, end: int) -> None:
        for index, key in enumerate(keys):
            rows = begin + np.flatnonzero(number[begin:end] == index)
            if len(rows):
                whole = len(rows) == len(documents)
                window = self._open.setdefault(key, Window(*key, self._most))
                window.append(documents, slice(None) if whole else rows, self._num_documents)

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
    occurs = np.bincount(pair) > 0
    present, number = np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[pair]
    return [(SPLITS[p % 2], documents.domains[p // 2]) for p in present.tolist()], number


def _order(key: Key) -> tuple:
    split, domain = key
    return SPLITS.index(split), domain is not None, (domain or "").encode()
