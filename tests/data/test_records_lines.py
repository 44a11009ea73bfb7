"""One line each: what becomes of it, and what the reject says."""

import orjson
import pytest

from astrai_data.records import FieldSpec, InputFile, RangeReader

ALL_KINDS = [FieldSpec("text", "text"), FieldSpec("chat", "json"), FieldSpec("url", "meta"), FieldSpec("src", "domain")]


def read(tmp_path, data: bytes, fields=ALL_KINDS, renaming=None):
    path = tmp_path / "in.jsonl"
    path.write_bytes(data)
    file = InputFile(str(path), path.name, len(data), "", "jsonl", None, None, renaming or {})
    chunks = list(RangeReader(file, 0, len(data), fields, max_record_bytes=1 << 20))
    return [row for c in chunks for row in c.columns.to_pylist()], [r for c in chunks for r in c.rejects]


BAD_LINES = {
    "not JSON": (b"hello", "invalid_json", "byte 0"),
    "broken after a wide character": ('{"é":1}x'.encode(), "invalid_json", "byte 8"),
    "NaN": (b'{"text":NaN}', "invalid_json", "byte 8"),
    "infinity": (b'{"text":1e999}', "invalid_json", "infinity"),
    "lone surrogate": (b'{"text":"\\ud800"}', "invalid_json", "surrogate"),
    "raw NUL in a string": (b'{"text":"\x00"}', "invalid_json", "control character"),
    "NUL line": (b"\x00\x00", "invalid_json", "byte 0"),
    "two objects": (b'{"a":1}{"a":2}', "invalid_json", "byte 7"),
    "too deep": (b'{"a":' * 1100 + b"1" + b"}" * 1100, "invalid_json", "depth"),
    "BOM inside": (b'\xef\xbb\xbf{"text":"x"}', "invalid_json", "BOM"),
    "latin-1": (b'{"text":"caf\xe9"}', "invalid_utf8", "byte 12 of the record is 0xe9"),
    "encoded surrogate": (b'{"\xed\xa0\x80":1}', "invalid_utf8", "byte 2"),
    "string": (b'"context"', "not_an_object", "got a string, wanted an object"),
    "array": (b'["text","x"]', "not_an_object", "got an array, wanted an object"),
    "number": (b"42", "not_an_object", "got a number, wanted an object"),
    "true": (b"true", "not_an_object", "got a boolean, wanted an object"),
    "null": (b"null", "not_an_object", "got null, wanted an object"),
    "number as text": (b'{"text":5}', "wrong_type", "field 'text': got a number, wanted a string"),
    "list as text": (b'{"text":["a"]}', "wrong_type", "field 'text': got an array, wanted a string"),
    "boolean as text": (b'{"text":false}', "wrong_type", "field 'text': got a boolean, wanted a string"),
    "deep JSON field": (b'{"chat":' + b"[" * 300 + b"]" * 300 + b"}", "invalid_json", "field 'chat'"),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_bad_line_is_rejected_alone(tmp_path, name):
    line, reason, words = BAD_LINES[name]
    good = b'{"text":"fine"}\n'
    rows, (reject,) = read(tmp_path, good + line + b"\n" + good)
    assert [(row["position"], row["text:text"]) for row in rows] == [(0, "fine"), (len(good + line) + 1, "fine")]
    assert (reject.position, reject.length, reject.reason) == (len(good), len(line), reason)
    assert words in reject.message
    assert reject.raw == line
    assert not reject.raw_truncated


VALUES = {
    "strings": ({"text": "t", "chat": "c", "url": "u", "src": "s"}, ("t", b'"c"', "u", "s")),
    "absent": ({}, (None, None, None, None)),
    "null": (dict.fromkeys(("text", "chat", "url", "src")), (None, None, None, None)),
    "other JSON": (
        {"chat": [{"a": 1.5, "é": None}], "url": {"b": [1]}, "src": 3},
        (None, '[{"a":1.5,"é":null}]'.encode(), '{"b":[1]}', None),
    ),
    "empty and blank": ({"text": "", "chat": {}, "url": "", "src": ""}, ("", b"{}", "", "")),
    "NUL and wide": ({"text": "a\0b\U0001f600"}, ("a\0b\U0001f600", None, None, None)),
    "false is a value": ({"chat": False, "url": 0}, (None, b"false", "0", None)),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_by_kind(tmp_path, name):
    record, values = VALUES[name]
    (row,), rejects = read(tmp_path, orjson.dumps(record))
    assert rejects == []
    assert tuple(row.values()) == (0, *values)


def test_schema_does_not_depend_on_the_data(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"nothing here\n")
    (chunk,) = RangeReader(InputFile(str(path), "x", 13, "", "jsonl"), 0, 13, ALL_KINDS, max_record_bytes=99)
    assert [f"{field.name} {field.type}" for field in chunk.columns.schema] == [
        "position int64",
        "text:text large_string",
        "json:chat large_binary",
        "meta:url large_string",
        "domain:src large_string",
    ]


def test_renaming(tmp_path):
    (row,), (reject,) = read(
        tmp_path, b'{"content":"c","text":1}\n{"content":2}', [FieldSpec("text", "text")], {"text": "content"}
    )
    assert row["text:text"] == "c"
    assert "'content'" in reject.message


def test_last_of_duplicate_keys_wins(tmp_path):
    (row,), _ = read(tmp_path, b'{"text":1,"text":"last"}')
    assert row["text:text"] == "last"


def test_same_result_with_and_without_bom(tmp_path):
    """Defect 35: positions count the mark, nothing else changes."""
    data = b'{"text":"a","m":{"x":1}}\n{"text":"b","m":{"y":2}}\n'
    plain, _ = read(tmp_path, data)
    marked, rejects = read(tmp_path, b"\xef\xbb\xbf" + data)
    assert rejects == []
    assert [row | {"position": row["position"] - 3} for row in marked] == plain


def test_order_of_rejects_is_of_position(tmp_path):
    data = b'{"text":1}\nx\n{"text":2}\n[]\n{"text":"ok"}\n'
    rows, rejects = read(tmp_path, data)
    assert [reject.position for reject in rejects] == [0, 11, 13, 24]
    assert [row["position"] for row in rows] == [27]


def test_kept_raw_is_bounded(tmp_path):
    line = b"x" * 100_000
    _, (reject,) = read(tmp_path, line)
    assert (len(reject.raw), reject.length, reject.raw_truncated) == (1 << 16, 100_000, True)
