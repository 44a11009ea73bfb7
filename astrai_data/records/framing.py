"""Raw blocks to lines with their exact byte positions, whatever the blocks, the cuts or the lines.

A line belongs to the range in which its first byte lies, so any cutting of a file yields each line exactly once. A
line over the limit is never held: only its head and its length are.

Lines are sliced out of their block one at a time, as they are parsed. Splitting the block at once costs a third of
the speed: its copies make the allocator return pages to the system and touch them anew, 30 faults a MiB.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from astrai_data.records.chunk import RAW_BYTES, Reject

BOM = b"\xef\xbb\xbf"


class Lines(Sequence):
    """Lines that lie in one block, without their line feeds; `head` is the part of the first that came before it."""

    def __init__(self, head: bytes, block: bytes, begins: np.ndarray, ends: np.ndarray) -> None:
        self._head, self._block = head, block
        self._begins, self._ends = begins.tolist(), ends.tolist()

    def __len__(self) -> int:
        return len(self._begins)

    def __getitem__(self, index: int) -> bytes:
        line = self._block[self._begins[index] : self._ends[index]]
        return line if index else self._head + line

    def __iter__(self) -> Iterator[bytes]:
        block, head = self._block, self._head
        for begin, end in zip(self._begins, self._ends, strict=True):
            yield head + block[begin:end]
            head = b""


@dataclasses.dataclass(frozen=True)
class Frames:
    """Lines, the position of each (int64 [n]), and what was too large to be one."""

    lines: Sequence[bytes]
    positions: np.ndarray
    rejects: list[Reject]


class PendingRecord:
    """One record that arrives in pieces; over `max_bytes` only its head is kept, 64 KiB for the reject."""

    def __init__(self, max_bytes: int) -> None:
        self._limit = max(max_bytes, RAW_BYTES)
        self._pieces: list[bytes] = []
        self.size = 0

    def add(self, piece: bytes) -> None:
        """Append `piece`."""
        if self.size > self._limit:
            self.size += len(piece)
            return
        self._pieces.append(piece)
        self.size += len(piece)
        if self.size > self._limit:
            self._pieces = [_head(self._pieces)]

    def take(self) -> bytes:
        """The record (its head, if over the limit); the next one begins."""
        record = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces, self.size = [], 0
        return record


def _head(pieces: list[bytes]) -> bytes:
    """The first 64 KiB of `pieces`, without joining them all."""
    head = bytearray()
    for piece in pieces:
        head += piece[: RAW_BYTES - len(head)]
    return bytes(head)


def frame_lines(blocks: Iterable[bytes], begin: int, end: int, max_record_bytes: int) -> Iterator[Frames]:
    """The lines of the range [`begin`, `end`), about a block at a time.

    Args:
        blocks: the bytes of the file from max(`begin` - 1, 0) on; reading stops behind the last line of the range.
        begin: first byte of the range.
        end: byte behind the range.
        max_record_bytes: larger lines are rejected `record_too_large`.
    """
    offset = start = max(begin - 1, 0)  # the byte before the range tells whether a line begins at the range
    pending = PendingRecord(max_record_bytes)
    for block in blocks:
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
        if len(ends):
            starts = np.concatenate([[start], offset + ends + 1])
            start = int(starts[-1])
            first, last = np.searchsorted(starts[:-1], [begin, end]).tolist()
            lines = _lines(pending.take(), block, offset, starts[first:last], ends[first:last])
            yield _checked(lines, starts[first:last], ends[first:last] + offset - starts[first:last], max_record_bytes)
            if start >= end:
                return
        pending.add(block[start - offset :] if len(ends) else block)
        offset += len(block)
    if pending.size and begin <= start < end:
        yield _checked([pending.take()], np.array([start]), np.array([offset - start]), max_record_bytes)


def _lines(head: bytes, block: bytes, offset: int, starts: np.ndarray, ends: np.ndarray) -> Lines:
    """The lines from the file positions `starts` to the block positions `ends`; `head` lies before the block."""
    begun_before = len(starts) and starts[0] < offset
    return Lines(head if begun_before else b"", block, np.maximum(starts - offset, 0), ends)


def _checked(lines: Sequence[bytes], starts: np.ndarray, lengths: np.ndarray, max_record_bytes: int) -> Frames:
    """Without lines that are too large, and without a byte order mark."""
    rejects: list[Reject] = []
    if len(lines) and lengths.max() > max_record_bytes:
        large = lengths > max_record_bytes
        rejects = [
            too_large(int(starts[i]), int(lengths[i]), lines[i], max_record_bytes)
            for i in np.flatnonzero(large).tolist()
        ]
        kept = np.flatnonzero(~large)
        lines, starts = [lines[i] for i in kept.tolist()], starts[kept]
    if len(lines) and starts[0] == 0 and lines[0].startswith(BOM):
        lines = [line if start else line.removeprefix(BOM) for line, start in zip(lines, starts.tolist(), strict=True)]
        starts = np.concatenate([[len(BOM)], starts[1:]])
    return Frames(lines, starts, rejects)


def too_large(position: int, length: int, head: bytes, max_record_bytes: int) -> Reject:
    """The reject for a record of `length` bytes, of which `head` was kept."""
    message = f"{length:,} bytes, wanted at most {max_record_bytes:,} (data.max_record_bytes)"
    return Reject(position, length, "record_too_large", message, head[:RAW_BYTES])
