"""Whole-file formats, compression, damage, and files that change under the reader."""

import datetime
import decimal
import gzip
import os
from itertools import pairwise

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
import zstandard

from astrai_data.errors import InputError
from astrai_data.records import FieldSpec, InputFile, RangeReader, content_hash

TEXT = [FieldSpec("text", "text")]


def plan(path, format_name, compression=None, **fields) -> InputFile:
    return InputFile(str(path), path.name, path.stat().st_size, "", format_name, compression, None, fields)


def read(file: InputFile, fields=TEXT, begin=0, end=None, max_record_bytes=1 << 20, **options):
    end = file.size if end is None else end
    reader = RangeReader(file, begin, end, fields, max_record_bytes=max_record_bytes, **options)
    chunks = list(reader)
    assert reader.content_hash == content_hash(file, begin, end)
    rows = [tuple(row.values()) for chunk in chunks for row in chunk.columns.to_pylist()]
    return rows, [reject for chunk in chunks for reject in chunk.rejects]


def write(path, data: bytes):
    path.write_bytes(data)
    return path


# --- json

JSON_FILES = {
    "array with a bad element": (
        b'[{"text":"abc"}, 5, {"text":"def"}]',
        [(0, "abc"), (2, "def")],
        [(1, "not_an_object", b"5")],
    ),
    "object": (b'{"text":"one"}', [(0, "one")], []),
    "number": (b"7", [], [(0, "not_an_object", b"7")]),
    "null": (b"null", [], [(0, "not_an_object", b"null")]),
    "empty array": (b"[]", [], []),
    "empty file": (b"", [], []),
    "blank file": (b" \n", [], []),
    "BOM": (b'\xef\xbb\xbf[{"text":"a"}]', [(0, "a")], []),
    "wrong type": (b'[{"text":1},{"text":"b"}]', [(1, "b")], [(0, "wrong_type", b'{"text":1}')]),
    "pretty": (b'[\n  {\n    "text": "a"\n  }\n]\n', [(0, "a")], []),
}


@pytest.mark.parametrize("name", JSON_FILES)
@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
def test_json_file(tmp_path, name, chunk_bytes):
    data, rows, rejects = JSON_FILES[name]
    file = plan(write(tmp_path / "a.json", data), "json")
    found_rows, found = read(file, block_bytes=chunk_bytes)
    assert found_rows == rows
    assert [(r.position, r.reason, r.raw) for r in found] == rejects


def test_json_elements_over_the_limit(tmp_path):
    records = [{"text": "a" * size} for size in (5, 500, 6)]
    file = plan(write(tmp_path / "a.json", orjson.dumps(records)), "json")
    rows, (reject,) = read(file, max_record_bytes=100)
    assert [position for position, _ in rows] == [0, 2]
    assert (reject.position, reject.reason, reject.length) == (1, "record_too_large", 511)


@pytest.mark.parametrize(
    ("data", "words"),
    [(b'[{"text":"a"},', "byte 14"), (b'[{"text":"\xff"}]', "byte 10 of the record is 0xff"), (b"{}{}", "byte 2")],
)
def test_json_that_does_not_parse_is_a_damaged_file(tmp_path, data, words):
    file = plan(write(tmp_path / "a.json", data), "json")
    with pytest.raises(InputError, match="allow-damaged") as caught:
        read(file)
    assert words in str(caught.value)
    assert str(tmp_path / "a.json") in str(caught.value)
    rows, (reject,) = read(file, allow_damaged=True)
    assert rows == []
    assert reject.raw == data


# --- text

TEXT_FILES = {
    "plain": (b"one\r\ntwo", [(0, "one\r\ntwo")], None),
    "empty": (b"", [(0, "")], None),
    "NUL": (b"a\0b", [(0, "a\0b")], None),
    "BOM": (b"\xef\xbb\xbfx", [(0, "x")], None),
    "invalid": (b"ab\xff", [], ("invalid_utf8", "byte 2 of the record is 0xff")),
    "cut character": ("é".encode()[:1], [], ("invalid_utf8", "unexpected end")),
    "too large": (b"x" * 101, [], ("record_too_large", "101 bytes")),
}


@pytest.mark.parametrize("name", TEXT_FILES)
@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_text_file_is_one_record(tmp_path, name, block_bytes):
    data, rows, refusal = TEXT_FILES[name]
    file = plan(write(tmp_path / "a.txt", data), "text")
    found, rejects = read(file, max_record_bytes=100, block_bytes=block_bytes)
    assert found == rows
    assert [(r.position, r.length, r.reason, r.raw) for r in rejects] == (
        [(0, len(data), refusal[0], data)] if refusal else []
    )
    assert all(refusal[1] in reject.message for reject in rejects)


def test_text_file_can_feed_another_field(tmp_path):
    file = plan(write(tmp_path / "a.txt", b"body"), "text", content="text")
    assert read(file, [FieldSpec("content", "text"), FieldSpec("url", "meta")])[0] == [(0, "body", None)]


# --- compression

LINES = b"".join(orjson.dumps({"text": f"document {i} {'x' * (i % 50)}"}) + b"\n" for i in range(5_000))


def compress(data: bytes, compression: str) -> bytes:
    return (
        gzip.compress(data) if compression == "gzip" else zstandard.ZstdCompressor(write_checksum=True).compress(data)
    )


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_compressed_members_are_read_whole(tmp_path, compression):
    half = len(LINES) // 2
    raw = compress(LINES[:half], compression) + compress(b"", compression) + compress(LINES[half:], compression)
    file = plan(write(tmp_path / "a", raw), "jsonl", compression)
    rows, rejects = read(file)
    assert rejects == []
    assert rows == read(plan(write(tmp_path / "b", LINES), "jsonl"))[0]
    assert content_hash(file, 0, file.size) == xxhash.xxh3_128_hexdigest(raw)


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
@pytest.mark.parametrize("format_name", ["json", "text"])
def test_compressed_whole_files(tmp_path, compression, format_name):
    raw = compress(b'{"text":"a"}', compression)
    expected = {"json": [(0, "a")], "text": [(0, '{"text":"a"}')]}[format_name]
    assert read(plan(write(tmp_path / "a", raw), format_name, compression))[0] == expected


def test_zstd_skippable_frames_long_windows_and_gzip_padding(tmp_path):
    skippable = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"notes"
    long = zstandard.ZstdCompressionParameters(window_log=28, enable_ldm=True)
    raw = skippable + zstandard.ZstdCompressor(compression_params=long).compress(b'{"text":"a"}\n') + skippable
    assert read(plan(write(tmp_path / "a", raw), "jsonl", "zstd")) == ([(0, "a")], [])
    raw = gzip.compress(b'{"text":"a"}\n') + b"\0" * 700
    assert read(plan(write(tmp_path / "b", raw), "jsonl", "gzip")) == ([(0, "a")], [])


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
@pytest.mark.parametrize("format_name", ["jsonl", "json"])
def test_empty_compressed_files(tmp_path, compression, format_name):
    for raw in (b"", compress(b"", compression)):
        assert read(plan(write(tmp_path / "a", raw), format_name, compression)) == ([], [])


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "garbage behind"])
def test_damaged_stream(tmp_path, compression, damage):
    raw = compress(LINES[:100_000], compression) + compress(LINES[100_000:], compression)
    if damage == "truncated":
        raw = raw[:-20]
    elif damage == "flipped":
        middle = len(raw) * 3 // 4
        raw = raw[:middle] + bytes(byte ^ 0x55 for byte in raw[middle : middle + 40]) + raw[middle + 40 :]
    else:
        raw += b"garbage"
    file = plan(write(tmp_path / "a", raw), "jsonl", compression)
    with pytest.raises(InputError, match="allow-damaged") as caught:
        read(file)
    assert str(tmp_path / "a") in str(caught.value)
    rows, rejects = read(file, allow_damaged=True)
    whole, _ = read(plan(write(tmp_path / "b", LINES), "jsonl"))
    assert rows[:2_000] == whole[:2_000]  # gzip finds a defect only at the end of its member
    assert rejects[-1].reason == "damaged_file"
    assert damage == "flipped" or len(rejects) <= 2  # the line that was cut, and the file


def test_truncated_text_keeps_its_head(tmp_path):
    raw = gzip.compress(os.urandom(50_000).hex().encode())[:-5_000]
    rows, (reject,) = read(plan(write(tmp_path / "a", raw), "text", "gzip"), allow_damaged=True)
    assert len(rows[0][1]) > 50_000
    assert reject.position == len(rows[0][1])


# --- changed files


@pytest.mark.parametrize("format_name", ["jsonl", "json", "text", "parquet"])
@pytest.mark.parametrize("change", ["gone", "longer", "shorter"])
def test_file_that_changed_after_planning(tmp_path, format_name, change):
    path = write(tmp_path / "a", b'{"text":"a"}\n')
    file = plan(path, format_name)
    if change == "gone":
        path.unlink()
    else:
        path.write_bytes(b'{"text":"a"}\n{}' if change == "longer" else b"{}")
    with pytest.raises(InputError) as caught:
        read(file)
    assert str(path) in str(caught.value)


# --- parquet


def write_parquet(path, table: pa.Table, **options) -> InputFile:
    pq.write_table(table, path, **options)
    return plan(path, "parquet")


def test_parquet_row_groups_belong_to_the_range_of_their_first_byte(tmp_path):
    table = pa.table({"text": [f"row {i}" for i in range(1_000)], "other": range(1_000)})
    file = write_parquet(tmp_path / "a.parquet", table, row_group_size=77)
    cuts = [0, 1, 4, 5, file.size // 3, file.size // 2, file.size - 1, file.size]
    rows = []
    for begin, end in pairwise(cuts):
        rows += read(file, begin=begin, end=end)[0]
    assert rows == [(i, f"row {i}") for i in range(1_000)]


def test_parquet_values_by_kind(tmp_path):
    when = datetime.datetime(2024, 7, 26)
    table = pa.table(
        {
            "text": pa.array(["a", None, "c"]).dictionary_encode(),
            "chat": [[{"role": "user"}], None, []],
            "when": [when, None, when],
            "price": [decimal.Decimal("1.50"), None, None],
            "src": [1, 2, 3],
        }
    )
    file = write_parquet(tmp_path / "a.parquet", table)
    fields = [
        FieldSpec("text", "text"),
        FieldSpec("chat", "json"),
        FieldSpec("when", "meta"),
        FieldSpec("price", "meta"),
        FieldSpec("src", "domain"),
        FieldSpec("absent", "text"),
    ]
    rows, rejects = read(file, fields)
    assert rejects == []
    assert rows == [
        (0, "a", b'[{"role":"user"}]', '"2024-07-26T00:00:00"', '"1.50"', None, None),
        (1, None, None, None, None, None, None),
        (2, "c", b"[]", '"2024-07-26T00:00:00"', None, None, None),
    ]


def test_parquet_without_any_wanted_column_keeps_its_rows(tmp_path):
    file = write_parquet(tmp_path / "a.parquet", pa.table({"x": [1, 2]}))
    assert read(file)[0] == [(0, None), (1, None)]


def test_parquet_misfits_are_rejected_alone(tmp_path):
    raw = pa.array([b"ok", b"caf\xe9", b"x" * 200], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    file = write_parquet(tmp_path / "a.parquet", pa.table({"text": text}))
    rows, rejects = read(file, max_record_bytes=100)
    assert rows == [(0, "ok")]
    assert [(r.position, r.reason) for r in rejects] == [(1, "invalid_utf8"), (2, "record_too_large")]


def test_parquet_column_of_another_type(tmp_path):
    file = write_parquet(tmp_path / "a.parquet", pa.table({"text": [5, None], "chat": [b"\xff", None]}))
    rows, (reject,) = read(file)
    assert rows == [(1, None)]
    assert (reject.position, reject.reason) == (0, "wrong_type")
    assert "got int64, wanted a string" in reject.message
    _, (reject,) = read(file, [FieldSpec("chat", "json")])
    assert reject.reason == "wrong_type"


def test_a_flipped_letter_in_parquet_with_checksums(tmp_path):
    table = pa.table({"text": ["the letters of this page"] * 50})
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    file = write_parquet(tmp_path / "a.parquet", table, **options)
    before, middle, after = (tmp_path / "a.parquet").read_bytes().rpartition(b"letters of this page" + bytes([24, 0]))
    (tmp_path / "a.parquet").write_bytes(before + middle.replace(b"letters", b"lexters") + after)
    with pytest.raises(InputError, match="CRC"):
        read(file)
    rows, (reject,) = read(file, allow_damaged=True)
    assert (rows, reject.reason) == ([], "damaged_file")


def test_damaged_parquet(tmp_path):
    text = [os.urandom(200).hex() for _ in range(400)]
    path = tmp_path / "a.parquet"
    file = write_parquet(path, pa.table({"text": text}), row_group_size=100, compression="gzip", use_dictionary=False)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 - len(data) // 8
    data[middle : middle + 100] = bytes(100)
    path.write_bytes(data)
    with pytest.raises(InputError, match="allow-damaged"):
        read(file)
    rows, (reject,) = read(file, allow_damaged=True)
    assert rows == [(i, text[i]) for i in range(400) if not 100 <= i < 200]
    assert (reject.reason, reject.position) == ("damaged_file", 100)
    write(path, b"not parquet at all")
    with pytest.raises(InputError, match="allow-damaged"):
        read(plan(path, "parquet"))
    _, (reject,) = read(plan(path, "parquet"), allow_damaged=True)
    assert reject.reason == "damaged_file"
