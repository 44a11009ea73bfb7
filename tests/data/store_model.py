"""A slow model of a run: which documents a store must have, in which parts and rows, and what its ledger must say.

Rows are lists of pieces (document number, first token in the sequence as built, token after the last). The plans are
the textbook's, a document at a time.
"""

from bisect import insort
from collections import Counter
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from astrai_data import PipelineConfig

from .configurations import Case
from .document_model import Document, DocumentModel, SlowTokenizer

Piece = tuple[int, int, int]
Row = list[Piece]


@dataclass
class PartModel:
    """One part: the documents that wait in a window, then its rows."""

    split: str
    domain: str | None
    documents: list[int] = field(default_factory=list)
    num_tokens: int = 0
    rows: list[Row] = field(default_factory=list)


class StoreModel:
    """What a case must give.

    Attributes:
        documents: those kept, in order.
        rejects: (source, position, reason) in order.
        parts: in order.
        ledger: (balance, domain, what, reason) -> count, none 0.
        num_records: read from each source.
    """

    def __init__(self, case: Case, config: PipelineConfig, tokenizer: Path) -> None:
        self.case, self.config = case, config
        self.model = DocumentModel(config, SlowTokenizer(tokenizer))
        self.documents: list[Document] = []
        self.rejects: list[tuple[int, int, str]] = []
        self.parts: list[PartModel] = []
        self.ledger: Counter = Counter()
        self.num_records = [0] * len(case.sources)
        for task in self._tasks():
            self._run(task)

    @property
    def failure(self) -> str | None:
        """What the run must fail with, if it must."""
        read, rejected = sum(self.num_records), len(self.rejects)
        if rejected > self.config.run.max_reject_ratio * read and rejected >= self.config.run.min_rejects:
            return "too many records were rejected"
        return None if self.documents else "nothing was kept"

    def _tasks(self) -> list[list[int]]:
        """Source numbers of each task: neighbours of one kind, or all together under a limit."""
        numbers = range(len(self.case.sources))
        if self.config.preprocessing.max_items:
            return [list(numbers)]
        return [list(group) for _, group in groupby(numbers, key=lambda number: self.case.sources[number].kind)]

    def _run(self, task: list[int]) -> None:
        most, num_parts = self.config.preprocessing.max_items, len(self.parts)
        windows: dict[tuple, PartModel] = {}
        for number in task:
            source = self.case.sources[number]
            for position, record in source.entries(self.config.data.max_record_bytes, self.model.wanted):
                document = self.model.document((number, position), record, source.domain)
                if most and len(self.documents) == most and not document.is_unreadable:
                    break
                self.num_records[number] += 1
                self._enter(document)
                if document.lost is None:
                    self._wait(document, windows)
            else:
                continue
            break
        rest = sorted(windows, key=lambda key: (key[0], key[1] is not None, (key[1] or "").encode()))
        self.parts += [windows[key] for key in rest]
        for part in self.parts[num_parts:]:
            self._pack(part)

    def _wait(self, document: Document, windows: dict[tuple, PartModel]) -> None:
        key = "validation" if document.validation else "train", document.domain
        window = windows.setdefault(key, PartModel(*key))
        window.documents.append(len(self.documents))
        window.num_tokens += document.end - document.begin
        self.documents.append(document)
        if window.num_tokens >= self.config.output.max_tokens_per_shard:
            self.parts.append(windows.pop(key))

    def _enter(self, document: Document) -> None:
        what, reason = document.lost or ("kept", "")
        seen, what = what != "unreadable", "rejected" if what == "unreadable" else what
        if what == "rejected":
            self.rejects.append((*document.place, reason))
        self._add("records", document, "read", 1)
        self._add("records", document, what, 1, reason)
        if seen:
            added = sum(is_added for _, _, is_added in document.tokens)
            self._add("text_bytes", document, "read", document.num_bytes)
            self._add("text_bytes", document, "kept" if what == "kept" else "dropped", document.num_bytes, reason)
            self._add("tokens", document, "from_text", len(document.tokens) - added)
            self._add("tokens", document, "added", added)
            if what == "kept":
                self._add("tokens", document, "truncated", len(document.tokens) - document.end + document.begin)
            else:
                self._add("tokens", document, "dropped", len(document.tokens), reason)

    def _add(self, balance: str, of: Document | PartModel, what: str, count: int, reason: str = "") -> None:
        if count:
            self.ledger[balance, of.domain, what, reason] += count

    def _pack(self, part: PartModel) -> None:
        limits = self.config.preprocessing
        pieces = [(number, self.documents[number].begin, self.documents[number].end) for number in part.documents]
        part.rows = rows_of(pieces, limits.packing_strategy, limits.max_packed_len, limits.over_long == "split")
        for number, begin, end in (piece for row in part.rows for piece in row):
            for place in range(begin, end):
                name, is_trained = self.documents[number].tokens[place][1]
                if is_trained and place > begin:
                    self._add("tokens", part, "trained", 1)
                else:
                    self._add("tokens", part, "masked", 1, "segment_start" if is_trained else name)
        if limits.packing_strategy != "simple":
            slots = len(part.rows) * limits.max_packed_len
            self._add("slots", part, "slots", slots)
            self._add("slots", part, "tokens", part.num_tokens)
            self._add("slots", part, "padding", slots - part.num_tokens)


def rows_of(documents: list[Piece], strategy: str, capacity: int, split: bool) -> list[Row]:
    """The rows of one part, before they are shuffled."""
    if strategy == "concat":
        return _concatenated(documents, capacity)
    pieces = documents
    if split or strategy == "bfd_split":
        pieces = [(n, at, min(at + capacity, end)) for n, begin, end in pieces for at in range(begin, end, capacity)]
    if strategy == "simple":
        return [[piece] for piece in pieces]
    rows: list[Row] = []
    open_rows: list[tuple[int, int]] = []  # (room, row), rising
    for piece in sorted(pieces, key=lambda piece: piece[1] - piece[2]):
        size = piece[2] - piece[1]
        room, row = next((entry for entry in open_rows if entry[0] >= size), (capacity, len(rows)))
        if row == len(rows):
            rows.append([])
        else:
            open_rows.remove((room, row))
        rows[row].append(piece)
        insort(open_rows, (room - size, row))
    return rows


def _concatenated(documents: list[Piece], capacity: int) -> list[Row]:
    rows: list[Row] = []
    room = 0
    for number, begin, end in documents:
        while begin < end:
            if room == 0:
                rows.append([])
                room = capacity
            cut = min(end, begin + room)
            rows[-1].append((number, begin, cut))
            room, begin = room - (cut - begin), cut
    return rows
