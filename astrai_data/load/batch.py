"""A batch: several samples, one after the other, as one sequence with borders.

All of it lies in one int64 array, so that a worker hands over one buffer and the tensors are views of it.
"""

from dataclasses import dataclass

import numpy as np

from astrai_data.ragged import offsets_of

IGNORED = -100
"""Label of a token after which nothing is learnt; torch's cross entropy skips it by default."""


@dataclass(frozen=True)
class Batch:
    """`num_tokens` T tokens in n segments.

    Attributes:
        data: int64 [3 T + n + 1]: input ids, labels, position ids, then the n + 1 borders of the segments.
        num_tokens: T.
        max_seqlen: tokens of the longest segment.
    """

    data: np.ndarray
    num_tokens: int
    max_seqlen: int

    @classmethod
    def empty(cls, segment_lengths: np.ndarray) -> "Batch":
        """A batch of these segments (int [n], none of length 0), whose ids, labels and positions are to be filled."""
        borders = offsets_of(segment_lengths)
        num_tokens = int(borders[-1])
        data = np.empty(3 * num_tokens + len(borders), np.int64)
        data[3 * num_tokens :] = borders
        return cls(data, num_tokens, int(segment_lengths.max(initial=0)))

    @property
    def input_ids(self) -> np.ndarray:
        """int64 [T]."""
        return self.data[: self.num_tokens]

    @property
    def labels(self) -> np.ndarray:
        """int64 [T]: for each token the one that follows it, or `IGNORED`."""
        return self.data[self.num_tokens : 2 * self.num_tokens]

    @property
    def position_ids(self) -> np.ndarray:
        """int64 [T]."""
        return self.data[2 * self.num_tokens : 3 * self.num_tokens]

    @property
    def cu_seqlens(self) -> np.ndarray:
        """int64 [n + 1]: 0 and the end of each segment."""
        return self.data[3 * self.num_tokens :]
