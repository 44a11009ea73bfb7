"""Documents: what the builder makes of records, and what packing takes."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from astrai_data.build.strips import Strip
from astrai_data.ragged import Ragged


@dataclass(frozen=True)
class DocumentBatch:
    """Kept documents, one entry each; everything has the same length `n`.

    input: int32, number of the input that the record lies in.
    position: int64, where the record lies in its input.
    domain: int32, number of the document's domain in `domains`.
    validation: bool, whether the document belongs to the validation split.
    text_hash: `n` digests of 16 bytes one after the other, xxh3_128 of the strings that were tokenized.
    text_bytes: int64, UTF-8 bytes of the section values and message contents.
    meta: the kept fields as an Arrow struct, or None without any.
    sequence: tokens and mask runs.
    token_start: int64, offset of the first kept token in the sequence as built.
    flags: uint8, 1 cut before, 2 cut after.
    """

    input: np.ndarray
    position: np.ndarray
    domain: np.ndarray
    domains: tuple[str | None, ...]
    validation: np.ndarray
    text_hash: bytes
    text_bytes: np.ndarray
    meta: pa.StructArray | None
    sequence: Strip
    token_start: np.ndarray
    flags: np.ndarray

    def __len__(self) -> int:
        return len(self.position)

    @property
    def tokens(self) -> Ragged:
        """Ids as they are stored, one row a document."""
        return self.sequence.tokens
