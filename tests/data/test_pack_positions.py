"""Position ids from segment lengths."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from astrai_data.pack import continuous, doc_reset, plan


@pytest.mark.parametrize(
    ("lengths", "reset", "running"),
    [
        ((3, 1, 0, 2), [0, 1, 2, 0, 0, 1], [0, 1, 2, 3, 4, 5]),  # acceptance 31
        ((), [], []),
        ((0, 0), [], []),
    ],
)
def test_cases(lengths, reset, running):
    lengths = np.array(lengths, np.int64)
    assert doc_reset(lengths).tolist() == reset
    assert continuous(lengths).tolist() == running
    assert doc_reset(lengths).dtype == continuous(lengths).dtype == np.int32


@given(st.lists(st.integers(0, 20)))
def test_doc_reset_equals_its_slow_twin(lengths):
    assert doc_reset(np.array(lengths, np.int32)).tolist() == [i for length in lengths for i in range(length)]


def test_split_documents_start_every_row_at_zero():
    """cases/data.md 22: a document longer than the window."""
    made = plan("concat", np.array([31, 4, 9]), 13)
    for begin, end in pairwise(made.row_offsets):
        positions = doc_reset(made.length[begin:end])
        steps = np.diff(positions)
        assert positions[0] == 0
        assert ((steps == 1) | (positions[1:] == 0)).all()
        assert (positions == 0).sum() == end - begin
