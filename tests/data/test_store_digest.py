import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astrai_data.errors import StoreError
from astrai_data.store import canonical_json, config_hash, plan_hash
from astrai_data.store.digest import table_digest
from astrai_data.store.tables import SHARDS_SCHEMA, read_table, write_table

KINDS = {
    "int": pa.int32(),
    "unsigned": pa.uint64(),
    "flag": pa.bool_(),
    "text": pa.string(),
    "raw": pa.binary(),
    "fixed": pa.binary(4),
    "list": pa.list_(pa.int64()),
    "nested": pa.list_(pa.struct([("a", pa.string()), ("b", pa.list_(pa.uint64()))])),
    "struct": pa.struct([("x", pa.int8()), ("y", pa.string())]),
}
VALUES = {
    "int": st.integers(-(2**31), 2**31 - 1),
    "unsigned": st.integers(0, 2**64 - 1),
    "flag": st.booleans(),
    "text": st.text(max_size=4),
    "raw": st.binary(max_size=4),
    "fixed": st.binary(min_size=4, max_size=4),
    "list": st.lists(st.integers(-9, 9) | st.none(), max_size=3),
    "nested": st.lists(
        st.fixed_dictionaries({"a": st.text(max_size=2) | st.none(), "b": st.lists(st.integers(0, 9), max_size=2)}),
        max_size=2,
    ),
    "struct": st.fixed_dictionaries({"x": st.integers(-9, 9) | st.none(), "y": st.text(max_size=2) | st.none()}),
}
ROW = st.fixed_dictionaries({name: values | st.none() for name, values in VALUES.items()})
SCHEMA = pa.schema(list(KINDS.items()))


@settings(max_examples=40, deadline=None)
@given(st.lists(ROW, max_size=8), st.integers(0, 8), st.data())
def test_the_digest_sees_content_and_nothing_else(tmp_path_factory, rows, cut, data):
    table = pa.Table.from_pylist(rows, SCHEMA)
    digest = table_digest(table)
    chunked = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    shifted = pa.concat_tables([table, table]).slice(len(rows))
    path = tmp_path_factory.mktemp("digest") / "t.parquet"
    pq.write_table(table, path, compression="none", use_dictionary=False, row_group_size=2)
    wide = table.set_column(3, "text", table["text"].cast(pa.large_string()))
    for same in (chunked, shifted, pq.read_table(path), wide, table.take(pa.array(np.arange(len(rows))))):
        assert table_digest(same) == digest
    if rows:
        index = data.draw(st.integers(0, len(rows) - 1))
        changed = [dict(row) for row in rows]
        changed[index] = data.draw(ROW)
        assert (table_digest(pa.Table.from_pylist(changed, SCHEMA)) == digest) == (changed == rows)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": pa.array([1, 2])}, {"b": pa.array([1, 2])}),
        ({"a": pa.array([1, 2])}, {"a": pa.array([2, 1])}),
        ({"a": pa.array([1], pa.int32())}, {"a": pa.array([1], pa.int64())}),
        ({"a": pa.array(["ab", "c"])}, {"a": pa.array(["a", "bc"])}),
        ({"a": pa.array([[1], [2, 3]])}, {"a": pa.array([[1, 2], [3]])}),
        ({"a": pa.array([None, 0])}, {"a": pa.array([0, None])}),
        ({"a": pa.array([0, 0])}, {"a": pa.array([0, None])}),
        ({"a": pa.array([""], pa.string())}, {"a": pa.array([None], pa.string())}),
        ({"a": pa.array([[]], pa.list_(pa.int8()))}, {"a": pa.array([None], pa.list_(pa.int8()))}),
        ({"a": pa.array([], pa.int8())}, {"a": pa.array([None], pa.int8())}),
    ],
)
def test_different_tables_have_different_digests(one, other):
    assert table_digest(pa.table(one)) != table_digest(pa.table(other))


def test_what_stands_under_a_null_does_not_count():
    hidden = pa.Array.from_buffers(pa.int32(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([7, 9], np.int32))])
    assert table_digest(pa.table({"a": hidden})) == table_digest(pa.table({"a": pa.array([7, None], pa.int32())}))


def test_a_damaged_page_is_an_error_not_a_number(tmp_path):
    path = tmp_path / "t.parquet"
    write_table(path, pa.table({"a": np.random.default_rng(0).integers(0, 1 << 60, 1000)}))
    assert read_table(path).num_rows == 1000
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreError, match="cannot be read"):
        read_table(path)


def test_tables_come_back_with_their_schema(tmp_path):
    write_table(tmp_path / "t", SHARDS_SCHEMA.empty_table())
    assert read_table(tmp_path / "t").num_rows == 0
    with pytest.raises(StoreError, match="cannot be read"):
        read_table(tmp_path / "missing")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None]}, '{"a":[true,null],"b":1}'),
        ({"x": 0.25, "y": (1.0, 1e-7)}, '{"x":"0.25","y":["1.0","1e-07"]}'),
        ({"ü": "今\n"}, '{"ü":"今\\n"}'),
        (2**64 - 1, "18446744073709551615"),
    ],
)
def test_canonical_json(value, text):
    assert canonical_json(value) == text.encode()


def test_hashes_depend_on_what_they_should():
    base = config_hash({"a": 1}, "i", "t")
    assert base == config_hash({"a": 1}, "i", "t")
    assert (
        len({base, config_hash({"a": 2}, "i", "t"), config_hash({"a": 1}, "j", "t"), config_hash({"a": 1}, "i", "u")})
        == 4
    )
    assert len({plan_hash(base, ["k", "l"]), plan_hash(base, ["l", "k"]), plan_hash("x", ["k", "l"])}) == 3
