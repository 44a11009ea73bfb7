"""Segments: what stands where in the rows of one part.

A segment is one document, or one piece of one, inside a row. Nothing else says where a document ends: borders,
positions, `cu_seqlens` and masks all derive from this table. It is not the token data, and it does not know
which mask rules are trained: a rule is an index, and the store's `mask_rules` give it a meaning.
"""

from dataclasses import dataclass

import numpy as np

from astrai_data.ragged import Ragged, offsets_of

CUT_BEFORE = 1
"""Flag: tokens of the document were cut away, or lie in another segment, before this one."""
CUT_AFTER = 2
"""Flag: tokens of the document were cut away, or lie in another segment, after this one."""


@dataclass(frozen=True)
class Segments:
    """The segments of one part in the order of its rows (store-format.md, "Segments").

    Attributes:
        row: int32 [m], row in the part, never falling.
        length: int32 [m], tokens.
        document: int32 [m], ordinal in the task's documents.
        token_start: int64 [m], offset of the segment's first token in the sequence as it was built.
        flags: uint8 [m], `CUT_BEFORE` | `CUT_AFTER`.
        mask_lengths: Ragged int32, one row a segment: lengths of its mask runs, each above 0, sum = `length`.
        mask_rules: Ragged uint16, same shape: the rule of each run, never twice the same in succession.
    """

    row: np.ndarray
    length: np.ndarray
    document: np.ndarray
    token_start: np.ndarray
    flags: np.ndarray
    mask_lengths: Ragged
    mask_rules: Ragged

    def __len__(self) -> int:
        return len(self.length)

    def num_trained(self, trained: np.ndarray) -> np.ndarray:
        """Labels that can be trained: flagged tokens, but never the first of a segment.

        Args:
            trained: bool [num_rules], whether the labels under a rule are trained.

        Returns:
            int64 [m], one count a segment.
        """
        runs, bounds = self.mask_lengths.flat, self.mask_lengths.bounds
        begins = offsets_of(runs)
        at_start = begins[:-1] == np.repeat(begins[bounds[:-1]], np.diff(bounds))
        labels = np.maximum(runs - at_start, 0) * np.asarray(trained, bool)[self.mask_rules.flat]
        totals = offsets_of(labels)[bounds]
        return np.diff(totals)
