"""Some rows of a store as a reader would check them: decoded, borders visible, trained tokens told from masked ones.

Text is decoded run by run, a run being the neighbouring tokens under one mask rule: single tokens may end inside a
character, runs do so only where the pipeline cut there.
"""

from dataclasses import asdict, dataclass
from itertools import pairwise

import numpy as np

from astrai_data.errors import StoreError
from astrai_data.inspect.columns import StoreColumns, owners
from astrai_data.inspect.documents import StoreDocuments
from astrai_data.inspect.part_view import PartView
from astrai_data.inspect.runs import MaskRun, mask_runs
from astrai_data.pack import CUT_AFTER, CUT_BEFORE
from astrai_data.ragged import Ragged
from astrai_data.store import TokenStore


@dataclass(frozen=True)
class Segment:
    """One document, or a piece of one, inside a row.

    `source`, `position` and the input's `format` say where its record lies; `cut_before` and `cut_after` that the
    document has more tokens.
    """

    document_id: int
    source: str
    position: int
    format: str
    piece: int
    cut_before: bool
    cut_after: bool
    num_tokens: int
    num_trained: int
    runs: list[MaskRun]


@dataclass(frozen=True)
class SampleRow:
    """A row with its segments."""

    row_id: int
    domain: str | None
    split: str
    num_tokens: int
    num_trained: int
    segments: list[Segment]

    def to_dict(self) -> dict:
        """JSON-ready."""
        return asdict(self)


def sample(store: TokenStore, num_rows: int, split: str | None = None) -> list[SampleRow]:
    """At most `num_rows` rows, evenly spread over the store or one `split`; the same rows every time.

    Args:
        store: opened with all its splits, so that row ids are those of SQL.
        num_rows: how many.
        split: `train`, `validation` or None for all.

    Raises:
        StoreError: the store has no rows in `split`.
    """
    sampler = _Sampler(store)
    return [sampler.row(row_id) for row_id in _spread(sampler.columns, num_rows, split)]


def one_row(store: TokenStore, row_id: int) -> SampleRow:
    """The row `row_id` of `store` (opened with all its splits), counted as in SQL.

    Raises:
        StoreError: there is no such row.
    """
    if not 0 <= row_id < store.num_rows:
        wanted = f"0 to {store.num_rows - 1:,}" if store.num_rows else "a store with rows"
        hint = "the view `rows` lists them: --sql 'SELECT row_id FROM rows'"
        raise StoreError("no such row", where=store.root, got=f"row {row_id:,}", wanted=wanted, hint=hint)
    return _Sampler(store).row(row_id)


class _Sampler:
    """Rows of one store, decoded."""

    def __init__(self, store: TokenStore) -> None:
        self.columns, self.documents = StoreColumns(store), StoreDocuments(store)
        self.tokenizer = store.tokenizer()
        self.rules = [(rule.name, rule.trained) for rule in store.mask_rules]

    def row(self, row_id: int) -> SampleRow:
        shard = int(owners(self.columns.row_begins, np.array([row_id]))[0])
        part, row = self.columns.part(shard), row_id - int(self.columns.row_begins[shard])
        begin, end = part.row_segments[row : row + 2].tolist()
        origins, runs = self._origins(part, begin, end), self._runs(part, row, begin, end)
        return SampleRow(
            row_id=row_id,
            domain=self.columns.shards["domain"][shard].as_py(),
            split=self.columns.shards["split"][shard].as_py(),
            num_tokens=len(part.tokens[row]),
            num_trained=int(part.row_trained[row]),
            segments=[_segment(part, begin + i, origins[i], runs[i]) for i in range(end - begin)],
        )

    def _origins(self, part: PartView, begin: int, end: int) -> list[dict]:
        """What is told of the documents of the segments `begin` to `end`."""
        ids = part.segments.document[begin:end].astype(np.int64) + part.document_begin
        if not len(ids):
            return []
        columns = {
            "document_id": ids.tolist(),
            "source": self.documents.inputs("name", ids).to_pylist(),
            "position": self.documents.column("position", ids).to_pylist(),
            "format": self.documents.inputs("format", ids).to_pylist(),
        }
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def _runs(self, part: PartView, row: int, begin: int, end: int) -> list[list[MaskRun]]:
        """The mask runs of the segments `begin` to `end`, which are those of `row`."""
        lengths, rules = part.segments.mask_lengths, part.segments.mask_rules
        first, last = int(lengths.offsets[begin]), int(lengths.offsets[end])
        pieces = Ragged.from_lengths(part.tokens[row], lengths.values[first:last])
        runs = mask_runs(self.tokenizer, self.rules, pieces, rules.values[first:last])
        return [runs[a:b] for a, b in pairwise((lengths.offsets[begin : end + 1] - first).tolist())]


def _spread(columns: StoreColumns, num_rows: int, split: str | None) -> list[int]:
    """Row ids at the middles of `num_rows` equal stretches of the split."""
    splits = np.array(columns.shards["split"].to_pylist(), object)
    chosen = np.flatnonzero(splits == split) if split else np.arange(len(splits))
    lengths = np.diff(columns.row_begins)[chosen]
    ends = np.cumsum(lengths)
    if not lengths.sum():
        raise StoreError(
            "no rows to show",
            where=columns.store.root,
            got=f"split {split!r}" if split else "no rows at all",
            wanted=_splits(splits),
            hint="`astrai inspect STORE` shows what the store holds",
        )
    count = min(num_rows, int(ends[-1]))
    places = (2 * np.arange(count) + 1) * int(ends[-1]) // (2 * count)
    owner = np.searchsorted(ends, places, side="right")
    return (columns.row_begins[chosen[owner]] + places - (ends - lengths)[owner]).tolist()


def _splits(splits: np.ndarray) -> str:
    return " or ".join(sorted(set(splits))) or "a store with rows"


def _segment(part: PartView, number: int, origin: dict, runs: list[MaskRun]) -> Segment:
    flags = int(part.segments.flags[number])
    return Segment(
        **origin,
        piece=int(part.pieces[number]),
        cut_before=bool(flags & CUT_BEFORE),
        cut_after=bool(flags & CUT_AFTER),
        num_tokens=int(part.segments.length[number]),
        num_trained=int(part.segment_trained[number]),
        runs=runs,
    )
