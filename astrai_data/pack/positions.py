"""Position ids from segment lengths.

Positions are never stored: they follow from the segments table. The mode decides whether they restart at every
segment (`doc_reset`) or run on (`continuous`). Padding is no segment and has no positions.
"""

import numpy as np

from astrai_data.ragged import offsets_of


def doc_reset(lengths: np.ndarray) -> np.ndarray:
    """0 .. length - 1 for each of `lengths` int [n], joined: int32 [total].

    Lengths 3, 1, 0, 2 give 0 1 2 | 0 | | 0 1.
    """
    offsets = offsets_of(lengths)
    return np.arange(offsets[-1], dtype=np.int32) - np.repeat(offsets[:-1].astype(np.int32), lengths)


def continuous(lengths: np.ndarray) -> np.ndarray:
    """0 .. total - 1 over all of `lengths` int [n]: int32 [total]."""
    return np.arange(np.sum(lengths, dtype=np.int64), dtype=np.int32)
