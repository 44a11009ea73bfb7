"""Ragged columns: many sequences of different lengths in one flat buffer.

The NumPy face of Arrow's `large_list`: `values` holds all items, row `i` is `values[offsets[i]:offsets[i+1]]`.
Rows are gathered by one `memcpy` each: the buffer is viewed as Arrow `large_binary` and taken there, at 6 GB/s
against 1.7 to 2.5 GB/s for concatenating slices and 0.6 GB/s for taking a `large_list` (18,000 rows of 900 uint16
on average, warm; `benchmarks/packing.py`).
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa


@dataclass(frozen=True)
class Ragged:
    """`values` [total] of a fixed-width dtype and `offsets` int64 [num_rows + 1], which never fall."""

    values: np.ndarray
    offsets: np.ndarray

    @classmethod
    def from_lengths(cls, values: np.ndarray, lengths: np.ndarray) -> "Ragged":
        """Rows of the given `lengths` [num_rows], one after the other in `values`."""
        return cls(values, offsets_of(lengths))

    @classmethod
    def from_rows(cls, rows: list, dtype: np.dtype | type) -> "Ragged":
        """One row for each list or array in `rows`."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        values = np.concatenate([np.asarray(row, dtype) for row in rows]) if rows else np.empty(0, dtype)
        return cls.from_lengths(values, lengths)

    @classmethod
    def concat(cls, parts: list["Ragged"], dtype: np.dtype | type) -> "Ragged":
        """The rows of all `parts`, in order, as `dtype`, which must hold every item."""
        flat = [part.flat for part in parts]
        values = np.concatenate(flat, dtype=dtype, casting="unsafe") if parts else np.empty(0, dtype)
        lengths = np.concatenate([part.lengths for part in parts]) if parts else np.empty(0, np.int64)
        return cls.from_lengths(values, lengths)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> np.ndarray:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self):
        for begin, end in pairwise(self.offsets.tolist()):
            yield self.values[begin:end]

    @property
    def lengths(self) -> np.ndarray:
        """int64 [num_rows]."""
        return np.diff(self.offsets)

    @property
    def flat(self) -> np.ndarray:
        """All items of all rows in order, [total]."""
        return self.values[self.offsets[0] : self.offsets[-1]]

    @property
    def bounds(self) -> np.ndarray:
        """int64 [num_rows + 1]: the offsets of the rows in `flat`, from 0; the offsets themselves where they are."""
        return self.offsets if self.offsets[0] == 0 else self.offsets - self.offsets[0]

    def astype(self, dtype: np.dtype | type) -> "Ragged":
        """The same rows as `dtype`, which must hold every item; no copy where they are of it."""
        return Ragged(self.flat.astype(dtype, copy=False), self.bounds)

    def take(self, rows: np.ndarray) -> "Ragged":
        """The given rows (int64 [n]) in the given order, copied into one new, read-only buffer."""
        if len(rows) == 0:
            return Ragged(self.values[:0], np.zeros(1, np.int64))
        width = self.values.dtype.itemsize
        buffers = [None, pa.py_buffer(self.offsets * width), pa.py_buffer(np.ascontiguousarray(self.values))]
        taken = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(self), buffers).take(pa.array(rows))
        _, offsets, data = taken.buffers()
        offsets = np.frombuffer(offsets, np.int64, len(rows) + 1) // width
        return Ragged(np.frombuffer(data, self.values.dtype, int(offsets[-1])), offsets)

    def to_arrow(self) -> pa.LargeListArray:
        """The same rows as an Arrow `large_list`; shares the buffers."""
        return pa.LargeListArray.from_arrays(self.offsets, self.values)


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """int64 [n + 1]: 0 and the running total of `lengths` [n]."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
