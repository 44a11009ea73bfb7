import json

import numpy as np
import pytest

from astrai_data.errors import StoreError
from astrai_data.store.reference import load_bin, load_bin_offsets, save_bin

# Acceptance 42, and what the helpers refuse.

CASE_42 = {
    "a": [np.array([1, 2, 3], np.int32), np.array([4], np.int32)],
    "m": [np.array([1, 0, 1], bool), np.array([1], bool)],
}


def test_saved_bytes(tmp_path):
    save_bin(tmp_path / "s", CASE_42, record_keys=["a"])
    assert (tmp_path / "s/a.bin").read_bytes().hex() == "01000000020000000300000004000000"
    assert (tmp_path / "s/m.bin").read_bytes().hex() == "01000101"
    assert json.loads((tmp_path / "s/meta.json").read_text()) == {
        "a": {"shape": [4], "dtype": "int32", "offsets": [0, 3, 4]},
        "m": {"shape": [4], "dtype": "bool"},
    }
    loaded = load_bin(tmp_path / "s")
    assert {key: [array.tolist() for array in arrays] for key, arrays in loaded.items()} == {
        "a": [[1, 2, 3, 4]],
        "m": [[True, False, True, True]],
    }
    assert {key: offsets.tolist() for key, offsets in load_bin_offsets(tmp_path / "s").items()} == {"a": [0, 3, 4]}


@pytest.mark.parametrize(
    "array",
    [
        np.array([2**62, -(2**63), 2**63 - 1]),
        np.array([[1.5, -2.0], [0.25, 4.0]], np.float16),
        np.zeros((0, 3), np.int32),
        np.zeros(0, bool),
        np.array([1, 258], ">i4"),
    ],
)
def test_round_trips_are_exact(tmp_path, array):
    save_bin(tmp_path, {"x": [array]})
    (loaded,) = load_bin(tmp_path)["x"]
    assert loaded.shape == array.shape
    assert loaded.dtype == array.dtype.newbyteorder("<")
    assert np.array_equal(loaded, array)
    assert load_bin_offsets(tmp_path) == {}


def test_a_loaded_array_can_be_changed_without_changing_the_file(tmp_path):
    save_bin(tmp_path, {"x": [np.array([1, 2])]})
    load_bin(tmp_path)["x"][0][0] = 9
    assert load_bin(tmp_path)["x"][0].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("dtypes", "joined"),
    [(["int32", "float32"], "float32"), (["int64", "float16"], "float16"), (["bool", "int8"], "int8"),
     (["float32", "float64"], "float64"), (["int8", "uint8"], "int16")],
)  # fmt: skip
def test_joined_dtypes(tmp_path, dtypes, joined):
    save_bin(tmp_path, {"x": [np.ones(1, name) for name in dtypes]})
    assert load_bin(tmp_path)["x"][0].dtype == joined


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ([[np.array([1])], [np.array([2])]], ValueError),
        ([], ValueError),
        ([np.ones((1, 2)), np.ones((1, 3))], ValueError),
        ([np.array([1], np.uint16)], TypeError),
        ([np.array(["a"])], TypeError),
    ],
)
def test_what_cannot_be_saved(tmp_path, values, error):
    with pytest.raises(error):
        save_bin(tmp_path, {"x": values})
    assert list(tmp_path.iterdir()) == []


UNKNOWN_DTYPE = '{"x": {"shape": [1], "dtype": "int3"}}'


@pytest.mark.parametrize("meta", [None, "{", "[]", '{"x": 1}', '{"x": {"shape": 3, "dtype": "int32"}}', UNKNOWN_DTYPE])
def test_what_is_no_shard(tmp_path, meta):
    if meta is not None:
        (tmp_path / "meta.json").write_text(meta)
    with pytest.raises(StoreError, match="no shard directory"):
        load_bin(tmp_path)


@pytest.mark.parametrize("size", [None, 7])
def test_a_shard_with_a_wrong_file(tmp_path, size):
    save_bin(tmp_path, {"x": [np.ones(2, np.int32)]})
    (tmp_path / "x.bin").unlink()
    if size is not None:
        (tmp_path / "x.bin").write_bytes(bytes(size))
    with pytest.raises(StoreError, match="wrong size"):
        load_bin(tmp_path)
