"""Plans of every strategy: every token once, no row too long, documents in the promised order."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astrai_data.errors import PipelineConfigError, RunError
from astrai_data.pack import STRATEGIES, Plan, plan

LENGTHS = st.lists(st.integers(0, 45), max_size=40)


def rows_of(made: Plan) -> list[list[tuple[int, int, int]]]:
    """(document, begin, length) of each piece, row by row."""
    pieces = list(zip(made.document.tolist(), made.begin.tolist(), made.length.tolist(), strict=True))
    bounds = made.row_offsets.tolist()
    return [pieces[begin:end] for begin, end in pairwise(bounds)]


@pytest.mark.parametrize(
    ("strategy", "lengths", "capacity", "rows"),
    [
        ("simple", (3, 0, 12), None, [[(0, 0, 3)], [(1, 0, 0)], [(2, 0, 12)]]),
        ("simple", (3, 10), 10, [[(0, 0, 3)], [(1, 0, 10)]]),
        ("bfd", (3, 5, 2, 7, 4), 8, [[(3, 0, 7)], [(1, 0, 5), (0, 0, 3)], [(4, 0, 4), (2, 0, 2)]]),
        ("bfd", (0, 5, 0), 5, [[(1, 0, 5), (0, 0, 0), (2, 0, 0)]]),
        ("bfd_split", (25, 3, 8), 10, [[(0, 0, 10)], [(0, 10, 10)], [(2, 0, 8)], [(0, 20, 5), (1, 0, 3)]]),
        ("bfd_split", (0, 4, 0), 10, [[(1, 0, 4)]]),
        ("concat", (4, 0, 5, 3), 6, [[(0, 0, 4), (2, 0, 2)], [(2, 2, 3), (3, 0, 3)]]),
        ("concat", (14,), 6, [[(0, 0, 6)], [(0, 6, 6)], [(0, 12, 2)]]),
        ("concat", (0, 0), 6, []),
        *[(strategy, (), 6, []) for strategy in STRATEGIES],
    ],
)
def test_rows(strategy, lengths, capacity, rows):
    assert rows_of(plan(strategy, np.array(lengths, np.int64), capacity)) == rows


def test_simple_with_split_makes_a_row_of_each_piece():
    made = plan("simple", np.array([25, 3]), 10, split=True)
    assert rows_of(made) == [[(0, 0, 10)], [(0, 10, 10)], [(0, 20, 5)], [(1, 0, 3)]]


def test_bfd_with_split_is_bfd_split():
    lengths = np.array([25, 3, 8, 0, 14])
    assert rows_of(plan("bfd", lengths, 10, split=True)) == rows_of(plan("bfd_split", lengths, 10))


def test_one_document_of_a_million_tokens_loses_none():
    """cases/data.md 13."""
    made = plan("bfd_split", np.array([1_000_000]), 2048)
    assert made.length.sum() == 1_000_000
    assert made.num_rows == 489


@pytest.mark.parametrize("strategy", ["bfd_split", "concat"])
def test_documents_over_twice_the_window(strategy):
    """cases/data.md 15: sizes 14, 27, 40 at window 13."""
    totals = [sum(length for _, _, length in row) for row in rows_of(plan(strategy, np.array([14, 27, 40]), 13))]
    assert totals == [13, 13, 13, 13, 13, 13, 3]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(STRATEGIES), LENGTHS, st.integers(1, 20))
def test_every_token_once_and_no_row_too_long(strategy, lengths, capacity):
    made = plan(strategy, np.array(lengths, np.int64), capacity, split=True)
    rows = rows_of(made)
    assert all(sum(length for _, _, length in row) <= capacity for row in rows)
    tokens = sorted((d, begin + i) for row in rows for d, begin, length in row for i in range(length))
    assert tokens == [(d, i) for d, length in enumerate(lengths) for i in range(length)]
    assert made.document.dtype == made.begin.dtype == made.length.dtype == made.row_offsets.dtype == np.int64


@settings(max_examples=100, deadline=None)
@given(LENGTHS, st.integers(1, 20))
def test_concat_keeps_order_and_fills_every_row_but_the_last(lengths, capacity):
    made = plan("concat", np.array(lengths, np.int64), capacity)
    rows = rows_of(made)
    tokens = [(d, begin + i) for row in rows for d, begin, length in row for i in range(length)]
    assert tokens == [(d, i) for d, length in enumerate(lengths) for i in range(length)]
    assert all(sum(length for _, _, length in row) == capacity for row in rows[:-1])
    assert (made.length > 0).all()


@settings(max_examples=100, deadline=None)
@given(LENGTHS, st.randoms(use_true_random=False))
def test_take_rows(lengths, random):
    made = plan("bfd_split", np.array(lengths, np.int64), 10)
    order = random.sample(range(made.num_rows), made.num_rows)
    taken = made.take_rows(np.array(order, np.int64))
    assert rows_of(taken) == [rows_of(made)[i] for i in order]
    assert taken.row_offsets.dtype == np.int64


@pytest.mark.parametrize(
    ("strategy", "capacity", "found", "tried"),
    [
        ("bfd_spilt", 10, "bfd_spilt", "did you mean 'bfd_split'?"),
        ("bfd", 0, "0", "at least 1 token"),
        ("concat", None, "no limit", "max_packed_len"),
    ],
)
def test_unusable_settings_are_refused(strategy, capacity, found, tried):
    with pytest.raises(PipelineConfigError) as caught:
        plan(strategy, np.array([3]), capacity)
    assert found in str(caught.value)
    assert tried in str(caught.value)


@pytest.mark.parametrize("strategy", ["simple", "bfd"])
def test_documents_that_may_not_be_cut_must_fit(strategy):
    with pytest.raises(RunError, match="longer than a row") as caught:
        plan(strategy, np.array([3, 11]), 10)
    assert caught.value.where == "document 1 of the pack window"
