"""A view of one part: what SQL and samples want to know of its rows and segments.

Everything derives from the token rows and the segments table, and only when asked for. Token columns of neighbouring
rows are views of the mapped file; others are gathered. The one assumption is the writer's order: segments lie in the
order of the rows' tokens, so that mask runs, segments and rows are three cuts of the same flat sequence.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from astrai_data.pack import Segments
from astrai_data.ragged import Ragged, offsets_of


@dataclass(frozen=True)
class PartView:
    """A shard's rows and segments.

    tokens: one row of ids a packed row; segments: the shard's segments table; trained: bool [num_rules]; rule_names:
    [num_rules]; row_begin and document_begin: ids of the shard's first row and of its task's first document.
    """

    tokens: Ragged
    segments: Segments
    trained: np.ndarray
    rule_names: pa.StringArray
    row_begin: int
    document_begin: int

    @cached_property
    def row_segments(self) -> np.ndarray:
        """int64 [num_rows + 1]: row `i` has the segments `row_segments[i]` up to `row_segments[i + 1]`."""
        return np.searchsorted(self.segments.row, np.arange(len(self.tokens) + 1)).astype(np.int64)

    @cached_property
    def segment_trained(self) -> np.ndarray:
        """int64 [num_segments]: labels that can be trained."""
        return self.segments.num_trained(self.trained)

    @cached_property
    def row_trained(self) -> np.ndarray:
        """int64 [num_rows]: labels that can be trained."""
        return np.diff(offsets_of(self.segment_trained)[self.row_segments])

    @cached_property
    def pieces(self) -> np.ndarray:
        """int64 [num_segments]: which piece of its document a segment is, in the order of the document's tokens."""
        number = np.zeros(len(self.segments), np.int64)
        cut = np.flatnonzero(self.segments.flags)
        document, start = self.segments.document[cut], self.segments.token_start[cut]
        order = np.lexsort((start, document))
        first = np.flatnonzero(np.diff(document[order], prepend=-1))
        number[cut[order]] = np.arange(len(cut)) - np.repeat(first, np.diff(first, append=len(cut)))
        return number

    @cached_property
    def segment_tokens(self) -> Ragged:
        """The ids of every segment."""
        return Ragged(self.tokens.flat, offsets_of(self.segments.length))

    @cached_property
    def row_lengths(self) -> Ragged:
        """int32: the lengths of the segments of every row."""
        return Ragged(self.segments.length, self.row_segments)

    def row_mask(self, rows: np.ndarray) -> Ragged:
        """The loss mask of the given rows, uint8: 1 where the token's rule is trained."""
        lengths, rules = (_take(runs, rows) for runs in self._runs_of_rows)
        flags = np.repeat(self.trained[rules.flat].astype(np.uint8), lengths.flat)
        return Ragged.from_lengths(flags, self.tokens.lengths[rows])

    def mask_runs(self, segments: np.ndarray) -> pa.Array:
        """The mask runs of the given segments: large_list<struct<rule, trained, length>>."""
        lengths = _take(self.segments.mask_lengths, segments)
        rules = _take(self.segments.mask_rules, segments).flat
        names = self.rule_names.take(pa.array(rules))
        runs = pa.StructArray.from_arrays(
            [names, pa.array(self.trained[rules]), pa.array(lengths.flat)], ["rule", "trained", "length"]
        )
        return pa.LargeListArray.from_arrays(pa.array(lengths.offsets - lengths.offsets[0]), runs)

    @cached_property
    def _runs_of_rows(self) -> tuple[Ragged, Ragged]:
        lengths, rules = self.segments.mask_lengths, self.segments.mask_rules
        return (
            Ragged(lengths.values, lengths.offsets[self.row_segments]),
            Ragged(rules.values, rules.offsets[self.row_segments]),
        )

    def tokens_of_rows(self, rows: np.ndarray) -> Ragged:
        """The ids of the given rows."""
        return _take(self.tokens, rows)

    def tokens_of_segments(self, segments: np.ndarray) -> Ragged:
        """The ids of the given segments."""
        return _take(self.segment_tokens, segments)

    def lengths_of_rows(self, rows: np.ndarray) -> Ragged:
        """The segment lengths of the given rows."""
        return _take(self.row_lengths, rows)


def _take(rows: Ragged, chosen: np.ndarray) -> Ragged:
    """`rows.take(chosen)`, without a copy where `chosen` is one run of neighbours."""
    first, count = int(chosen[0]), len(chosen)
    if int(chosen[-1]) - first == count - 1 and (np.diff(chosen) == 1).all():
        return Ragged(rows.values, rows.offsets[first : first + count + 1])
    return rows.take(chosen)
