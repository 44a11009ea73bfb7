"""A `.json` file of which some elements alone are refused: these are rejects, the others are read as if alone."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astrai_data.errors import InputError
from astrai_data.inspect.fields import first_records
from astrai_data.records import FieldSpec, InputFile, RangeReader

FIELDS = [FieldSpec("text", "text"), FieldSpec("meta", "json")]
REFUSED = {
    "too large": ('{"text": "a", "n": 1e400}', "number is infinity when parsed as double"),
    "too small": ('{"text": "a", "n": -1e999}', "number is infinity when parsed as double"),
    "an integer": ('{"n": 1' + "0" * 5000 + "}", "number is infinity when parsed as double"),
    "NaN": ('{"n": NaN}', "unexpected character"),
    "half a pair": ('{"text": "\\ud800"}', "surrogate"),
    "a bare tab": ('{"text": "a\tb"}', "control character"),
    "no object": ("-1e999", "number is infinity when parsed as double"),
}
GOOD = [{"text": "one", "meta": 2**70}, {"text": "two", "meta": {"a": [1.5, -1, None]}}, {"text": "drei", "meta": "é"}]


def read(path, data: str, **options):
    path.write_bytes(data.encode())
    file = InputFile(str(path), path.name, path.stat().st_size, "", "json")
    limits = {"max_record_bytes": 1 << 20} | options
    chunks = list(RangeReader(file, 0, file.size, FIELDS, **limits))
    rows = [row for chunk in chunks for row in chunk.columns.to_pylist()]
    return rows, [reject for chunk in chunks for reject in chunk.rejects], file


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
@pytest.mark.parametrize("indent", [None, 2])
def test_one_refused_element_is_one_reject(tmp_path, name, block_bytes, indent):
    raw, words = REFUSED[name]
    first, *others = (json.dumps(record, indent=indent) for record in GOOD)
    rows, [reject], file = read(
        tmp_path / "a.json", f" [{first}\r\n,\t{raw} , {', '.join(others)}\n]\n", block_bytes=block_bytes
    )
    alone, none, _ = read(tmp_path / "b.json", json.dumps(GOOD))
    assert none == []
    assert rows == [row | {"position": ordinal} for row, ordinal in zip(alone, [0, 2, 3], strict=True)]
    assert rows[0]["json:meta"] == str(2**70).encode()
    assert (reject.position, reject.length, reject.reason, reject.raw) == (1, len(raw), "invalid_json", raw.encode())
    assert words in reject.message
    assert first_records(file) == [json.loads(json.dumps(record), parse_int=_as_orjson) for record in GOOD]


def _as_orjson(digits: str) -> int | float:
    return int(digits) if int(digits) < 2**64 else float(digits)


def test_a_file_of_one_refused_object_is_one_reject(tmp_path):
    rows, [reject], _ = read(tmp_path / "a.json", '\ufeff{"text": "a", "n": 1e400} \n')
    assert rows == []
    assert (reject.position, reject.raw) == (0, b'{"text": "a", "n": 1e400}')


def test_elements_beside_a_refused_one_may_be_too_large(tmp_path):
    data = json.dumps([{"text": "x" * 500}, {"text": "y"}])[:-1] + ', {"n": 1e400}]'
    rows, rejects, _ = read(tmp_path / "a.json", data, max_record_bytes=100)
    assert [row["text:text"] for row in rows] == ["y"]
    assert [(reject.position, reject.reason) for reject in rejects] == [(0, "record_too_large"), (2, "invalid_json")]


@pytest.mark.parametrize(
    "data",
    [
        '[{"n": 1e400}',
        '[{"n": 1e400},]',
        '[{"n": 1e400} {"n": 1}]',
        '[{"n": 1e400}] 5',
        '{"n": 1e400}{"n": 1}',
        '{"n": 1e400]',
        "[",
        "[,]",
        '[{"n": 1e400}, ' + "[" * 100_000 + "]" * 100_000 + "]",
    ],
)
def test_what_is_no_json_beside_that_is_damaged(tmp_path, data):
    with pytest.raises(InputError, match="an input file is damaged"):
        read(tmp_path / "a.json", data)
    rows, [reject], _ = read(tmp_path / "a.json", data, allow_damaged=True)
    assert (rows, reject.position, reject.length) == ([], 0, len(data))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
RECORDS = st.lists(st.fixed_dictionaries({"text": st.text() | st.none() | st.just(5), "meta": JSON}) | JSON, max_size=6)


@given(RECORDS, st.sampled_from([None, 0, 3]), st.booleans())
def test_a_refused_last_element_changes_nothing_for_the_others(tmp_path_factory, records, indent, ascii_only):
    """The slow way by Python's library and the fast one say the same of every other element."""
    folder = tmp_path_factory.mktemp("elements")
    told = [json.dumps(record, indent=indent, ensure_ascii=ascii_only) for record in records]
    rows, rejects, _ = read(folder / "fast.json", f"[{', '.join(told)}]")
    slow_rows, slow_rejects, _ = read(folder / "slow.json", f"[{', '.join([*told, '1e400'])}]")
    assert slow_rows == rows
    assert slow_rejects[:-1] == rejects
    assert slow_rejects[-1].position == len(records)


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ('[{"text": "a", "n": 1e400}, {"text": "é" "x"}]', 42),
        ('[{"n": NaN},, {"text": "b"}]', 12),
        ('[{"n": 1e400}', 13),
        ('[{"n": 1e400}] []', 15),
    ],
)
def test_a_damaged_file_is_told_where_it_is_damaged(tmp_path, data, place):
    """Not where an element stands that would be one reject."""
    with pytest.raises(InputError, match=f"byte {place} of the file"):
        read(tmp_path / "a.json", data)
