"""A packing plan: which piece of which document stands where.

Packing is planning. A plan is made from lengths alone; no token is touched until `gather` copies each one once,
to where the plan wants it. The strategies:

    simple      every document is a row
    bfd         best-fit decreasing (bfd.py)
    bfd_split   as bfd, after cutting documents at multiples of the capacity
    concat      all documents joined in order and cut at every `capacity` tokens; the last row may be short
"""

import difflib
from dataclasses import dataclass

import numpy as np

from astrai_data.errors import PipelineConfigError, RunError
from astrai_data.pack.bfd import plan_bfd
from astrai_data.ragged import Ragged, offsets_of

STRATEGIES = ("simple", "bfd", "bfd_split", "concat")


@dataclass(frozen=True)
class Plan:
    """Pieces of documents, row by row, in the order in which they stand in the row.

    Attributes:
        document: int64 [m], which document a piece is of.
        begin: int64 [m], its first token in that document.
        length: int64 [m], its tokens.
        row_offsets: int64 [num_rows + 1]; row r has the pieces row_offsets[r] up to row_offsets[r + 1].
    """

    document: np.ndarray
    begin: np.ndarray
    length: np.ndarray
    row_offsets: np.ndarray

    @property
    def num_rows(self) -> int:
        """How many rows the plan makes."""
        return len(self.row_offsets) - 1

    def take_rows(self, order: np.ndarray) -> "Plan":
        """The given rows (int64 [k]) in the given order."""
        pieces = Ragged(np.arange(len(self.document)), self.row_offsets).take(order)
        chosen = pieces.flat
        return Plan(self.document[chosen], self.begin[chosen], self.length[chosen], pieces.offsets)


def plan(strategy: str, lengths: np.ndarray, capacity: int | None, *, split: bool = False) -> Plan:
    """Plan rows of at most `capacity` tokens from documents of the given lengths.

    Args:
        strategy: one of `STRATEGIES`.
        lengths: int [n], tokens of each document.
        capacity: tokens a row; None: rows of any length (`simple` without `split`).
        split: cut documents at `capacity`, 2 * `capacity`, ... first; `bfd_split` and `concat` always cut.
            Where documents are cut, those of length 0 vanish.

    Raises:
        PipelineConfigError: unknown strategy, or a capacity that it cannot use.
        RunError: a document longer than `capacity` that may not be cut: `over_long` acts before packing.
    """
    _check(strategy, capacity, split)
    lengths = np.asarray(lengths, np.int64)
    if strategy == "concat":
        return _plan_concat(lengths, capacity)
    if split or strategy == "bfd_split":
        document, begin, length = _cut(lengths, capacity)
    else:
        _check_longest(lengths, capacity)
        document, begin, length = np.arange(len(lengths)), np.zeros_like(lengths), lengths
    if strategy == "simple":
        return Plan(document, begin, length, np.arange(len(document) + 1))
    bins = plan_bfd(length, capacity)
    return Plan(document[bins.values], begin[bins.values], length[bins.values], bins.offsets)


def _plan_concat(lengths: np.ndarray, capacity: int) -> Plan:
    """Cut the joined documents where one ends or a row is full."""
    offsets = offsets_of(lengths)
    row_begins = np.arange(0, offsets[-1], capacity)
    borders = np.sort(np.concatenate([offsets, row_begins]), kind="stable")  # a merge: both are sorted
    borders = borders[np.diff(borders, prepend=-1) > 0]
    begins = borders[:-1]
    document = np.searchsorted(offsets, begins, side="right") - 1
    row_offsets = np.append(np.searchsorted(begins, row_begins), len(begins))
    return Plan(document, begins - offsets[document], np.diff(borders), row_offsets)


def _cut(lengths: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(document, begin, length) of consecutive pieces of at most `capacity` tokens.

    Lengths 25, 3, 0 at capacity 10: documents 0 0 0 1, begins 0 10 20 0, lengths 10 10 5 3.
    """
    num_pieces = -(-lengths // capacity)
    document = np.repeat(np.arange(len(lengths)), num_pieces)
    piece = np.arange(len(document)) - np.repeat(offsets_of(num_pieces)[:-1], num_pieces)
    begin = piece * capacity
    return document, begin, np.minimum(lengths[document] - begin, capacity)


def _check(strategy: str, capacity: int | None, split: bool) -> None:
    if strategy not in STRATEGIES:
        near = difflib.get_close_matches(strategy, STRATEGIES, 1)
        raise PipelineConfigError(
            "unknown packing strategy",
            where="preprocessing.packing_strategy",
            got=strategy,
            wanted=", ".join(STRATEGIES),
            hint=f"did you mean {near[0]!r}?" if near else "bfd, which fits whole documents into rows",
        )
    if capacity is None and strategy == "simple" and not split:
        return
    if capacity is None or capacity < 1:
        raise PipelineConfigError(
            f"{strategy} cannot pack rows of this capacity",
            where="preprocessing.max_packed_len",
            got="no limit" if capacity is None else capacity,
            wanted="at least 1 token",
            hint="give max_packed_len, such as 8192",
        )


def _check_longest(lengths: np.ndarray, capacity: int | None) -> None:
    longest = int(lengths.max(initial=0))
    if capacity is not None and longest > capacity:
        raise RunError(
            "a document is longer than a row",
            where=f"document {int(lengths.argmax())} of the pack window",
            got=f"{longest:,} tokens",
            wanted=f"at most {capacity:,}",
            hint="`over_long` has to truncate, split or drop documents before they are packed",
        )
