"""Best-fit decreasing: equal to the classic algorithm, bin by bin and document by document."""

import time
from bisect import bisect_left, insort

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astrai_data.pack import plan_bfd
from astrai_data.pack.radix import stable_argsort


def classic_bfd(lengths: list[int], capacity: int) -> list[list[int]]:
    """The slow twin: one document at a time, every bin looked at."""
    bins: list[list[int]] = []
    rooms: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        size = min(lengths[index], capacity)
        fitting = [(room, number) for number, room in enumerate(rooms) if room >= size]
        if fitting:
            _, number = min(fitting)
        else:
            number = len(bins)
            bins.append([])
            rooms.append(capacity)
        bins[number].append(index)
        rooms[number] -= size
    return bins


def bins_of(lengths, capacity: int) -> list[list[int]]:
    return [row.tolist() for row in plan_bfd(np.array(lengths, np.int64), capacity)]


@pytest.mark.parametrize(
    ("lengths", "capacity", "bins"),
    [
        ((3, 5, 2, 7, 4), 8, [[3], [1, 0], [4, 2]]),
        ((5, 5, 5), 10, [[0, 1], [2]]),
        ((6, 4, 6, 4), 10, [[0, 1], [2, 3]]),
        ((8, 7, 6, 5, 4, 3, 2, 1), 10, [[0, 6], [1, 5], [2, 4], [3, 7]]),
        ((4, 3, 3, 2, 2, 2), 7, [[0, 1], [2, 3, 4], [5]]),
        ((25, 3), 10, [[0], [1]]),
        ((10, 0), 10, [[0, 1]]),
        ((0, 5, 0), 5, [[1, 0, 2]]),
        ((), 5, []),
        ((0, 0), 5, [[0, 1]]),
        ((12, 25, 10), 10, [[1], [0], [2]]),  # over-long ones by original length
        ((3, 0), 10, [[0, 1]]),
        ((1, 1, 1), 1, [[0], [1], [2]]),
    ],
)
def test_cases(lengths, capacity, bins):
    """Acceptance 26, then the corners."""
    assert bins_of(lengths, capacity) == bins
    assert classic_bfd(list(lengths), capacity) == bins


@settings(max_examples=600, deadline=None)
@given(
    st.integers(1, 40).flatmap(
        lambda capacity: st.tuples(
            st.lists(st.integers(0, capacity + capacity // 2 + 1), max_size=80), st.just(capacity)
        )
    )
)
def test_equals_classic(case):
    lengths, capacity = case
    assert bins_of(lengths, capacity) == classic_bfd(lengths, capacity)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 12), st.lists(st.tuples(st.integers(0, 14), st.integers(1, 60)), max_size=8))
def test_equals_classic_on_many_equal_lengths(capacity, stretches):
    """Few lengths, many documents of each: rooms with many bins, taken in part."""
    lengths = [length for length, count in stretches for _ in range(count)]
    assert bins_of(lengths, capacity) == classic_bfd(lengths, capacity)


def log_normal(num_documents: int, capacity: int, seed: int) -> np.ndarray:
    drawn = np.exp(np.random.default_rng(seed).normal(6.2, 1.1, num_documents))
    return np.minimum(drawn.astype(np.int64) + 1, capacity)


def by_sorted_pairs(lengths: np.ndarray, capacity: int) -> list[list[int]]:
    """A second twin for large inputs, with a sorted list of (room, bin); `test_twins_agree` checks it."""
    bins: list[list[int]] = []
    pairs: list[tuple[int, int]] = []
    for index in np.argsort(-lengths, kind="stable").tolist():
        size = min(int(lengths[index]), capacity)
        at = bisect_left(pairs, (size, -1))
        room, number = pairs.pop(at) if at < len(pairs) else (capacity, len(bins))
        if number == len(bins):
            bins.append([])
        bins[number].append(index)
        insort(pairs, (room - size, number))
    return bins


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 25), max_size=60))
def test_twins_agree(lengths):
    assert by_sorted_pairs(np.array(lengths, np.int64), 20) == classic_bfd(lengths, 20)


@pytest.mark.parametrize("capacity", [512, 2048, 8192, 131072])
def test_equals_twin_on_log_normal_lengths(capacity):
    lengths = log_normal(20_000, capacity, seed=capacity)
    assert bins_of(lengths, capacity) == by_sorted_pairs(lengths, capacity)


@pytest.mark.parametrize(
    "lengths",
    [
        np.random.default_rng(0).integers(0, 8193, 20_000),
        np.random.default_rng(1).integers(1, 64, 20_000),
        np.full(20_000, 3000),
        np.concatenate([np.full(15_000, 6000), np.arange(2000, 0, -1), np.arange(1, 2000)]),
        np.random.default_rng(2).choice([5000, 3000, 1500, 1499, 700, 30, 1, 0, 9000], 20_000),
    ],
    ids=["uniform", "short", "equal", "one-of-each-after-many", "nine-lengths"],
)
def test_equals_twin_on_hard_lengths(lengths):
    assert bins_of(lengths, 8192) == by_sorted_pairs(lengths, 8192)


def test_many_bins_of_one_room_are_not_searched_again_and_again():
    """200,000 bins of one room, then 2,000 lengths that take a few each: slow if a take costs the whole room."""
    lengths = np.concatenate([np.full(200_000, 6000), np.repeat(np.arange(2000, 0, -1), 3)])
    begin = time.perf_counter()
    assert len(plan_bfd(lengths, 8192)) == 200_000
    assert time.perf_counter() - begin < 2


def test_capacity_below_one_is_refused():
    with pytest.raises(ValueError, match="capacity is 0"):
        plan_bfd(np.array([1]), 0)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(st.integers(0, 9), st.integers(0, 2**40)), max_size=60),
    st.sampled_from([np.int64, np.uint64]),
)
def test_radix_order_is_stable(keys, dtype):
    keys = np.array(keys, dtype)
    assert stable_argsort(keys).tolist() == np.argsort(keys, kind="stable").tolist()
