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
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np

from astrai_data.build import DocumentBatch
from astrai_data.ragged import Ragged, offsets_of

MOST_TOKENS_A_PART = 2**24
MOST_TOKENS_A_TASK = 2**25
FEW_TOKENS = 2**20
SPLITS = ("train", "validation")

Key = tuple[str, str | None]


@dataclass(frozen=True)
class WindowColumns:
    """Documents: what `pack.gather` takes, but for the plan."""

    tokens: Ragged
    run_lengths: Ragged
    run_rules: Ragged
    token_start: np.ndarray
    document: np.ndarray
    flags: np.ndarray

    def take(self, rows: np.ndarray) -> "WindowColumns":
        """The given documents in the given order, copied."""
        return WindowColumns(
            self.tokens.take(rows),
            self.run_lengths.take(rows),
            self.run_rules.take(rows),
            self.token_start[rows],
            self.document[rows],
            self.flags[rows],
        )

    def slice(self, begin: int, end: int) -> "WindowColumns":
        """Documents `begin` to `end`, not copied."""
        ragged = (self.tokens, self.run_lengths, self.run_rules)
        return WindowColumns(
            *(Ragged(column.values, column.offsets[begin : end + 1]) for column in ragged),
            self.token_start[begin:end],
            self.document[begin:end],
            self.flags[begin:end],
        )


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

    def append(self, documents: WindowColumns) -> None:
        """Take documents; nothing of theirs is held, but copies."""
        added = {
            "length": documents.tokens.lengths.astype(np.int32),
            "run_lengths": documents.run_lengths.flat.copy(),
            "run_rules": documents.run_rules.flat.copy(),
            "num_runs": documents.run_lengths.lengths.astype(np.int32),
            "token_start": documents.token_start.copy(),
            "document": documents.document.copy(),
            "flags": documents.flags.copy(),
        }
        for name, values in added.items():
            self._columns[name].append(values)
        self._lay(documents.tokens.flat)

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


class _Group:
    """The documents of one key in a batch: rows `begin` to `end` of the batch's grouped columns.

    rows: int64 [n], places of the documents in the batch, rising.
    lengths: int64 [n], their tokens.
    """

    def __init__(self, key: Key, begin: int, rows: np.ndarray, lengths: np.ndarray) -> None:
        self.key, self.begin, self.rows = key, begin, rows
        self.num_taken = 0
        self._ends = np.cumsum(lengths)

    def place_of_close(self, num_tokens: int) -> int | None:
        """The place in the batch of the document with which `num_tokens` more are reached; None: beyond the batch."""
        taken = int(self._ends[self.num_taken - 1]) if self.num_taken else 0
        found = int(np.searchsorted(self._ends, taken + num_tokens))
        return int(self.rows[found]) if found < len(self.rows) else None

    def take_until(self, place: int) -> tuple[int, int]:
        """Rows of the grouped columns: what was not taken yet of the documents before `place` in the batch."""
        begin, self.num_taken = self.num_taken, int(np.searchsorted(self.rows, place))
        return self.begin + begin, self.begin + self.num_taken


class Windows:
    """All windows of one task."""

    def __init__(self, max_tokens_per_shard: int) -> None:
        self._most = min(max_tokens_per_shard, MOST_TOKENS_A_PART)
        self._open: dict[Key, Window] = {}
        self._num_documents = self._num_tokens = 0

    def add(self, documents: DocumentBatch) -> Iterator[Window]:
        """Take documents; yield each window that they close, in the order in which it happens."""
        columns, groups = _grouped(documents, self._num_documents)
        ends = np.cumsum(documents.tokens.lengths)
        self._num_documents += len(documents)
        next_closes = self._next_closes(groups)
        held = self._num_tokens  # of what is open, but for this batch's documents
        while True:
            at = int(np.searchsorted(ends, MOST_TOKENS_A_TASK - held))  # the task is full with this document
            if next_closes and next_closes[0][0] <= at:
                at, number = heappop(next_closes)
                group = groups[number]
                self._append(columns, group, at + 1)
                window = self._open.pop(group.key)
                self._note_next_close(next_closes, number, group)
            elif at < len(ends):
                for group in groups:
                    self._append(columns, group, at + 1)
                window = self._open.pop(max(sorted(self._open, key=_order), key=lambda key: self._open[key].num_tokens))
                next_closes = self._next_closes(groups)
            else:
                break
            held -= window.num_tokens
            yield window
        for group in groups:
            self._append(columns, group, len(documents))
        self._num_tokens = held + int(documents.tokens.lengths.sum())

    def rest(self) -> Iterator[Window]:
        """Close what is open: train before validation, then by domain, the nameless first."""
        for key in sorted(self._open, key=_order):
            yield self._open.pop(key)

    def _append(self, columns: WindowColumns, group: _Group, place: int) -> None:
        """Give the documents of the group that stand before `place` in the batch to its window."""
        begin, end = group.take_until(place)
        if begin < end:
            window = self._open.setdefault(group.key, Window(*group.key, self._most))
            window.append(columns.slice(begin, end))

    def _next_closes(self, groups: list[_Group]) -> list[tuple[int, int]]:
        """A heap of (place in the batch with which a window closes, number of its group)."""
        heap: list[tuple[int, int]] = []
        for number, group in enumerate(groups):
            self._note_next_close(heap, number, group)
        return heap

    def _note_next_close(self, heap: list[tuple[int, int]], number: int, group: _Group) -> None:
        held = self._open[group.key].num_tokens if group.key in self._open else 0
        if (place := group.place_of_close(self._most - held)) is not None:
            heappush(heap, (place, number))


def _grouped(documents: DocumentBatch, first: int) -> tuple[WindowColumns, list[_Group]]:
    """The columns of a batch, key by key, and the keys' groups; `first` is the ordinal of its first document."""
    pair = documents.domain * 2 + documents.validation
    order, counts = np.argsort(pair, kind="stable"), np.bincount(pair)
    present = np.flatnonzero(counts)
    columns = WindowColumns(
        documents.sequence.tokens,
        documents.sequence.run_lengths,
        documents.sequence.run_rules,
        documents.token_start,
        np.arange(first, first + len(documents), dtype=np.int32),
        documents.flags,
    )
    if len(present) > 1:
        columns = columns.take(order)
    lengths, bounds = columns.tokens.lengths, offsets_of(counts[present]).tolist()
    groups = []
    for number, (begin, end) in zip(present.tolist(), pairwise(bounds), strict=True):
        key = (SPLITS[number % 2], documents.domains[number // 2])
        groups.append(_Group(key, begin, order[begin:end], lengths[begin:end]))
    return columns, groups


def _order(key: Key) -> tuple:
    split, domain = key
    return SPLITS.index(split), domain is not None, (domain or "").encode()
