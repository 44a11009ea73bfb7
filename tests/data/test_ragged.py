"""Ragged columns against lists of lists."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from astrai_data.ragged import Ragged, offsets_of

ROWS = st.lists(st.lists(st.integers(0, 200), max_size=6), max_size=12)
DTYPES = st.sampled_from([np.uint8, np.uint16, np.int32, np.int64, np.float32])


def lists(column: Ragged) -> list[list]:
    return [row.tolist() for row in column]


@given(ROWS, DTYPES)
def test_rows_come_back(rows, dtype):
    column = Ragged.from_rows(rows, dtype)
    assert lists(column) == rows
    assert len(column) == len(rows)
    assert [column[i].tolist() for i in range(len(rows))] == rows
    assert column.lengths.tolist() == [len(row) for row in rows]
    assert column.flat.tolist() == [item for row in rows for item in row]
    assert column.values.dtype == dtype


@given(ROWS, DTYPES, st.data())
def test_take(rows, dtype, data):
    """In any order, repeated or left out, of a column that does not begin at offset 0."""
    whole = Ragged.from_rows([[7, 7], *rows], dtype)
    column = Ragged(whole.values, whole.offsets[1:])
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=20)) if rows else []
    taken = column.take(np.array(chosen, np.int64))
    assert lists(taken) == [rows[i] for i in chosen]
    assert taken.values.dtype == dtype
    assert taken.offsets.dtype == np.int64


@pytest.mark.parametrize("rows", [[[], []], [[], [1]]])
def test_take_of_empty_rows(rows):
    assert lists(Ragged.from_rows(rows, np.int32).take(np.array([0, 0]))) == [[], []]


def test_take_beyond_the_rows_is_refused():
    with pytest.raises(IndexError):
        Ragged.from_rows([[1], [2]], np.int32).take(np.array([2]))


@given(st.lists(ROWS, max_size=4), DTYPES)
def test_concat(parts, dtype):
    """Parts that are slices keep only their own rows."""
    columns = [Ragged.from_rows([[9], *rows], dtype) for rows in parts]
    joined = Ragged.concat([Ragged(column.values, column.offsets[1:]) for column in columns], dtype)
    assert lists(joined) == [row for rows in parts for row in rows]
    assert joined.values.dtype == dtype


@given(ROWS)
def test_arrow_shares_the_buffers(rows):
    column = Ragged.from_rows(rows, np.int32)
    array = column.to_arrow()
    assert array.type == pa.large_list(pa.int32())
    assert array.to_pylist() == rows
    assert not len(column.values) or array.values.buffers()[1].address == column.values.ctypes.data


@given(st.lists(st.integers(0, 9)))
def test_offsets_of(lengths):
    offsets = offsets_of(np.array(lengths, np.int32))
    assert offsets.tolist() == [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    assert offsets.dtype == np.int64
