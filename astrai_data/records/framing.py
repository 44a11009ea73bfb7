"""Raw blocks to lines with their exact byte positions, whatever the blocks, the cuts or the lines.

A line belongs to the range in which its first byte lies, so any cutting of a file yields each line exactly once. A
line over the limit is never held: only its head and its length are. Blocks are split where they lie (`bytes.split`);
only the line that crosses a block border is copied twice.
"""

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np

from astrai_data.ragged import offsets_of
from astrai_data.records.chunk import RAW_BYTES, Reject

BOM = b"\xef\xbb\xbf"


@dataclasses.dataclass(frozen=True)
class Frames:
    """Lines without their line feed, the position of each (int64 [n]), and what was too large to be one."""

    lines: list[bytes]
    positions: np.ndarray
    rejects: list[Reject]


class PendingRecord:
    """One record that arrives in pieces; over `max_bytes` only its head is kept."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        self.size = 0

    def add(self, piece: bytes) -> None:
        """Append `piece`."""
        if self.size <= self._max_bytes:
            self._pieces.append(piece)
        self.size += len(piece)
        if self.size > self._max_bytes and len(self._pieces) > 1:
            self._pieces = [b"".join(self._pieces)[:RAW_BYTES]]

    def take(self) -> bytes:
        """The record (its head, if over the limit); the next one begins."""
        record = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces, self.size = [], 0
        return record


def frame_lines(blocks: Iterable[bytes], begin: int, end: int, max_record_bytes: int) -> Iterator[Frames]:
    """The lines of the range [`begin`, `end`), about a block at a time.

    Args:
        blocks: the bytes of the file from max(`begin` - 1, 0) on; reading stops behind the last line of the range.
        begin: first byte of the range.
        end: byte behind the range.
        max_record_bytes: larger lines are rejected `record_too_large`.
    """
    start = max(begin - 1, 0)  # of the line under way; the byte before the range tells whether a line begins at it
    pending = PendingRecord(max_record_bytes)
    for block in blocks:
        lines = block.split(b"\n")
        pending.add(lines[0])
        if len(lines) == 1:
            continue
        lengths = np.fromiter(map(len, lines), np.int64, len(lines))
        lengths[0] = pending.size
        lines[0] = pending.take()
        pending.add(lines.pop())
        starts = start + offsets_of(lengths[:-1] + 1)
        start = int(starts[-1])
        yield _frames(lines, starts[:-1], lengths[:-1], begin, end, max_record_bytes)
        if start >= end:
            return
    if pending.size and begin <= start < end:
        lengths = np.array([pending.size])
        yield _frames([pending.take()], np.array([start]), lengths, begin, end, max_record_bytes)


def _frames(
    lines: list[bytes], starts: np.ndarray, lengths: np.ndarray, begin: int, end: int, max_record_bytes: int
) -> Frames:
    first, last = np.searchsorted(starts, [begin, end]).tolist()
    if first or last < len(lines):
        lines, starts, lengths = lines[first:last], starts[first:last], lengths[first:last]
    if lines and starts[0] == 0 and lines[0].startswith(BOM):
        lines[0], starts[0] = lines[0][len(BOM) :], len(BOM)
    if not lines or lengths.max() <= max_record_bytes:
        return Frames(lines, starts, [])
    return _without_large(lines, starts, lengths, max_record_bytes)


def _without_large(lines: list[bytes], starts: np.ndarray, lengths: np.ndarray, max_record_bytes: int) -> Frames:
    large = lengths > max_record_bytes
    rejects = [too_large(int(starts[i]), int(lengths[i]), lines[i], max_record_bytes) for i in np.flatnonzero(large)]
    kept = np.flatnonzero(~large)
    return Frames([lines[i] for i in kept], starts[kept], rejects)


def too_large(position: int, length: int, head: bytes, max_record_bytes: int) -> Reject:
    """The reject for a record of `length` bytes, of which `head` was kept."""
    message = f"{length:,} bytes, wanted at most {max_record_bytes:,} (data.max_record_bytes)"
    return Reject(position, length, "record_too_large", message, head[:RAW_BYTES])
