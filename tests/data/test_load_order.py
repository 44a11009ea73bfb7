"""The keyed permutation and the two-level order: a bijection, even, local, pinned."""

import itertools
from collections import Counter

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from astrai_data.load import Order
from astrai_data.load.order import Sequential, Shuffled
from astrai_data.load.permutation import Permutation


def whole(order: Order, num_rows: int) -> list[int]:
    return order(np.arange(num_rows)).tolist()


@given(size=st.integers(1, 3000), key=st.integers(0, 2**64 - 1))
@settings(max_examples=60, deadline=None)
def test_a_permutation_and_its_inverse(size, key):
    permutation, indices = Permutation(size, key), np.arange(size)
    images = permutation(indices)
    assert sorted(images.tolist()) == indices.tolist()
    assert permutation.inverse(images).tolist() == indices.tolist()


@pytest.mark.parametrize("size", [2**40, 2**62])
def test_huge_sizes_need_no_table(size):
    permutation, indices = Permutation(size, 7), np.array([0, 1, size // 2, size - 1])
    images = permutation(indices)
    assert ((images >= 0) & (images < size)).all()
    assert permutation.inverse(images).tolist() == indices.tolist()


@given(size=st.integers(1, 2**40), key=st.integers(0, 2**64 - 1), index=st.integers(0, 2**40 - 1))
@settings(max_examples=60, deadline=None)
def test_the_network_number_by_number(size, key, index):
    """The twin, in Python's integers: the rule that version 1 stands for."""
    bits = max(6, (size - 1).bit_length())
    low, image = bits // 2, index % size
    while True:
        left, right = image >> low, image & ((1 << low) - 1)
        for number in range(8):
            round_key = xxhash.xxh3_64_intdigest(str(number).encode(), key)
            if number % 2:
                right ^= mixed(left + round_key) & ((1 << low) - 1)
            else:
                left ^= mixed(right + round_key) & ((1 << bits - low) - 1)
        image = left << low | right
        if image < size:
            break
    assert Permutation(size, key)(np.array([index % size])).tolist() == [image]


def mixed(value: int) -> int:
    value = value * 0xBF58476D1CE4E5B9 % 2**64
    return (value ^ value >> 32) * 0x94D049BB133111EB % 2**64 >> 32


@pytest.mark.parametrize("size", [3, 4])
def test_all_orders_of_few_items_are_equally_frequent(size):
    """Chi-square against the uniform distribution over size! orders; 5 sigma."""
    keys = 600
    seen = Counter(tuple(Permutation(size, key)(np.arange(size)).tolist()) for key in range(keys))
    orders = list(itertools.permutations(range(size)))
    expected = keys / len(orders)
    chi_square = sum((seen[order] - expected) ** 2 / expected for order in orders)
    degrees = len(orders) - 1
    assert chi_square < degrees + 5 * np.sqrt(2 * degrees)


def test_neighbours_do_not_stay_neighbours():
    order = Order(100_000, seed=0, epoch=0)
    gaps = np.diff(order(np.arange(100_000)))
    assert abs(gaps).mean() == pytest.approx(100_000 / 3, rel=0.02)  # what independent draws would have
    assert np.count_nonzero(gaps == 1) < 10  # 1 expected


@given(
    num_rows=st.integers(1, 400),
    block_rows=st.integers(1, 50),
    window_blocks=st.none() | st.integers(1, 20),
    seed=st.integers(-(2**70), 2**70),
    epoch=st.integers(0, 5),
)
@settings(max_examples=100, deadline=None)
def test_every_row_once_and_any_position_alone(num_rows, block_rows, window_blocks, seed, epoch):
    order = Order(num_rows, seed, epoch, block_rows, window_blocks)
    rows = whole(order, num_rows)
    assert sorted(rows) == list(range(num_rows))
    some = np.arange(num_rows)[::-7]
    assert order(some).tolist() == [rows[position] for position in some]


@pytest.mark.parametrize("num_rows", [1000, 1003, 997, 30, 3])
def test_a_window_holds_whole_blocks(num_rows):
    """Reading goes block by block: a window of 3 blocks of 10 rows touches 3 blocks, the short one where it falls."""
    rows = whole(Order(num_rows, 5, 0, block_rows=10, window_blocks=3), num_rows)
    windows, begin = [], 0
    while begin < num_rows:
        blocks = list(dict.fromkeys(row // 10 for row in rows[begin : begin + 30]))[:3]
        size = sum(min(10, num_rows - block * 10) for block in blocks)
        assert {row // 10 for row in rows[begin : begin + size]} == set(blocks)
        assert num_rows <= 30 or rows[begin : begin + size] != sorted(rows[begin : begin + size])
        windows.append(blocks)
        begin += size
    assert sorted(itertools.chain(*windows)) == list(range(-(-num_rows // 10)))


def test_the_short_block_comes_anywhere():
    places = {whole(Order(35, seed, 0, 10, 1), 35).index(34) // 10 for seed in range(40)}
    assert places == set(range(4))


# cases/data.md, 25: the order differs by epoch and can be had again.


def test_seed_and_epoch_decide():
    orders = {(s, e): tuple(whole(Order(50, s, e, 8, w), 50)) for s in range(3) for e in range(3) for w in [None]}
    assert len(set(orders.values())) == 9
    assert tuple(whole(Order(50, 2, 1, 8, None), 50)) == orders[2, 1]


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({}, [0, 8, 3, 2, 5, 7, 4, 1, 10, 6, 9]),
        ({"block_rows": 2, "window_blocks": 2}, [6, 7, 9, 8, 10, 1, 0, 4, 3, 5, 2]),
    ],
)
def test_version_1_never_changes(options, rows):
    """A saved state trusts the rule's version. If this fails, raise it."""
    assert Shuffled.version == 1
    assert whole(Order(11, 42, 3, **options), 11) == rows


def test_rules_say_their_name_and_version():
    assert Shuffled(3, 16, 4).state_dict() == {
        "name": "feistel-blocks",
        "version": 1,
        "block_rows": 16,
        "window_blocks": 4,
    }
    assert Sequential(3).state_dict() == {"name": "sequential", "version": 1}
    assert whole(Sequential(3).order(5, 1), 5) == [0, 1, 2, 3, 4]
