"""Best-fit decreasing over a histogram of lengths.

The classic algorithm takes the documents longest first and puts each into the bin with the least room that is
still enough, the earliest-created among equals. Here all documents of one length are placed at once: a bin that
takes one of them is the tightest for the next one too, as long as that fits, so each bin in turn takes
`room // size` documents, and the bins of one room are served in order of creation. Plans equal the classic ones,
bin by bin and document by document.

The cost is about 2 us for each pair of (length, room met) and little for each document: 1.3 million documents/s
where 5,000 log-normal ones have nearly as many lengths, 5.9 million for 200,000, 11 million for 2 million (capacity
8192, `benchmarks/packing.py`). A sorted list of (room, bin) makes 1.1 to 1.4 million whatever their number.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator

import numpy as np

from astrai_data.pack.radix import stable_argsort
from astrai_data.ragged import Ragged

_FEW = 4  # up to a quarter of a room's bins go through its heap one by one; above that, sorting is cheaper


def plan_bfd(lengths: np.ndarray, capacity: int) -> Ragged:
    """Pack documents into bins of `capacity` tokens by best-fit decreasing.

    A document longer than `capacity` counts as `capacity` and so fills a bin; documents of length 0 go into
    the tightest bin, which is the first full one if there is any.

    Args:
        lengths: int [n], tokens a document, none negative.
        capacity: tokens a bin, at least 1.

    Returns:
        Ragged int64: one row a bin in order of creation, holding document numbers in order of placement.

    Raises:
        ValueError: `capacity` is below 1.
    """
    if capacity < 1:
        raise ValueError(f"capacity is {capacity}, wanted at least 1")
    lengths = np.asarray(lengths, np.int64)
    longest_first = stable_argsort(lengths.max(initial=0) - lengths)
    bins = _Bins(capacity)
    for size, count in _stretches(np.minimum(lengths[longest_first], capacity)):
        bins.place(size, count)
    bin_of = bins.bin_of_placement()
    in_bin_order = stable_argsort(bin_of)
    return Ragged.from_lengths(longest_first[in_bin_order], np.bincount(bin_of, minlength=bins.count))


def _stretches(sizes: np.ndarray) -> Iterator[tuple[int, int]]:
    """(value, count) of each stretch of equal `sizes`."""
    begins = np.flatnonzero(np.diff(sizes, prepend=-1))
    counts = np.diff(begins, append=len(sizes))
    return zip(sizes[begins].tolist(), counts.tolist(), strict=True)


class _Bins:
    """Open bins by the room they have left, and the log of placements."""

    def __init__(self, capacity: int) -> None:
        self.count = 0
        self._capacity = capacity
        self._rooms: list[int] = []  # rising: the rooms above 0 that some bin has
        self._with_room: dict[int, list[int]] = {}  # room -> heap of bins
        self._first_full: int | None = None
        # The log: with takes (2, 3) (1, 1) the first two of the chosen bins took 3 documents each, the next one 1.
        self._chosen: list[int] = []
        self._takes: list[tuple[int, int]] = []

    def place(self, size: int, count: int) -> None:
        """Put `count` documents of `size` tokens where best-fit would put them one by one."""
        if size == 0:
            self._log([self._tightest()], count)
            return
        moved: list[tuple[int, list[int]]] = []
        first = at = bisect_left(self._rooms, size)
        while count and at < len(self._rooms):
            room = self._rooms[at]
            wanted = -(-count // (room // size))
            if wanted < len(self._with_room[room]):
                chosen = _take_first(self._with_room[room], wanted)
            else:
                chosen = sorted(self._with_room.pop(room))
                at += 1
            count -= self._fill(chosen, room, size, count, moved)
        del self._rooms[first:at]
        if count:
            chosen = self._open(-(-count // (self._capacity // size)))
            self._fill(chosen, self._capacity, size, count, moved)
        for room, chosen in moved:
            self._shelve(room, chosen)

    def bin_of_placement(self) -> np.ndarray:
        """int64 [documents]: the bin of each document, in order of placement."""
        num_bins, per_bin = np.array(self._takes, np.int64).reshape(-1, 2).T
        return np.repeat(np.array(self._chosen, np.int64), np.repeat(per_bin, num_bins))

    def _tightest(self) -> int:
        if self._first_full is not None:
            return self._first_full
        if self._rooms:
            return self._with_room[self._rooms[0]][0]
        return self._open(1)[0]

    def _open(self, num_bins: int) -> list[int]:
        self.count += num_bins
        return list(range(self.count - num_bins, self.count))

    def _fill(self, chosen: list[int], room: int, size: int, count: int, moved: list) -> int:
        """Fill `chosen` bins in turn with up to `count` documents; the last bin may get fewer than fit."""
        per_bin = room // size
        placed = min(count, len(chosen) * per_bin)
        short = len(chosen) * per_bin - placed
        last = chosen.pop() if short else None
        if chosen:
            self._log(chosen, per_bin)
            moved.append((room - per_bin * size, chosen))
        if last is not None:
            self._log([last], per_bin - short)
            moved.append((room - (per_bin - short) * size, [last]))
        return placed

    def _log(self, chosen: list[int], per_bin: int) -> None:
        self._chosen += chosen
        self._takes.append((len(chosen), per_bin))

    def _shelve(self, room: int, chosen: list[int]) -> None:
        """Add bins, in rising order, to those with `room` left."""
        if room == 0:
            self._first_full = chosen[0] if self._first_full is None else min(self._first_full, chosen[0])
        elif room not in self._with_room:
            self._with_room[room] = chosen
            insort(self._rooms, room)
        else:
            _add(self._with_room[room], chosen)


# A rising list is a heap, so a room's bins may change between the two: pushing and popping few costs a logarithm
# each, many are cheaper by sorting. Either way a bin costs O(log bins) each time it moves, whatever the lengths.


def _add(heap: list[int], bins: list[int]) -> None:
    if len(bins) * _FEW < len(heap):
        for number in bins:
            heapq.heappush(heap, number)
    else:
        heap += bins
        heap.sort()


def _take_first(heap: list[int], count: int) -> list[int]:
    if count * _FEW < len(heap):
        return [heapq.heappop(heap) for _ in range(count)]
    heap.sort()
    taken = heap[:count]
    del heap[:count]
    return taken
