"""Any bytes, any cuts, any block size: the union over the ranges is every record exactly once."""

import gzip
import tracemalloc
from itertools import pairwise

import orjson
import pytest
import xxhash
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from astrai_data.records import FieldSpec, InputFile, RangeReader, Reject
from astrai_data.records.json_lines import explain

MAX_RECORD_BYTES = 24
FIELDS = [FieldSpec("text", "text")]

LINES = [
    b"",
    b"  \t",
    b"\r",
    b'{"text":"a"}',
    b'{"text":"b"}\r',
    b' {"text":null} ',
    b'{"text":5}',
    b'{"no":"text"}',
    b'{"text":"\xc3\xa9"}',
    b'{"text":"\xff"}',
    b'{"text":"\\ud800"}',
    b'{"text":NaN}',
    b"[1]",
    b"null",
    b"\x00",
    b'{"a":1}{"a":2}',
    b'{"text":"' + b"x" * 30 + b'"}',
    b'{"text":"' + b"x" * 13 + b'"}',
]


def naive(data: bytes) -> tuple[list, list[Reject]]:
    """What a reader with the whole file in memory finds: (position, text) rows, and rejects."""
    rows, rejects, position = [], [], 0
    for line in data.split(b"\n"):
        begin, length = position, len(line)
        position += length + 1
        if length > MAX_RECORD_BYTES:
            rejects.append((begin, length, "record_too_large", line))
            continue
        if begin == 0 and line.startswith(b"\xef\xbb\xbf"):
            begin, line = 3, line[3:]
        if not line.strip():
            continue
        try:
            record = orjson.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            rejects.append((begin, len(line), explain(line, begin).reason, line))
        elif isinstance(record.get("text"), str | None):
            rows.append((begin, record.get("text")))
        else:
            rejects.append((begin, len(line), "wrong_type", line))
    return rows, rejects


def read(file: InputFile, cuts: list[int], block_bytes: int) -> tuple[list, list]:
    rows, rejects = [], []
    for begin, end in pairwise(cuts):
        reader = RangeReader(file, begin, end, FIELDS, max_record_bytes=MAX_RECORD_BYTES, block_bytes=block_bytes)
        for chunk in reader:
            rows += zip(*chunk.columns.to_pydict().values(), strict=True)
            rejects += [(r.position, r.length, r.reason, r.raw) for r in chunk.rejects]
            assert chunk.num_read == len(chunk.columns) + len(chunk.rejects)
    return rows, rejects


@st.composite
def files(draw) -> bytes:
    lines = draw(st.lists(st.sampled_from(LINES) | st.binary(max_size=30), max_size=12))
    bom = draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    return bom + b"\n".join(lines) + draw(st.sampled_from([b"", b"\n"]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("framing")


@settings(max_examples=400, deadline=None)
@given(data=files(), cuts=st.lists(st.integers(0, 250), max_size=5), block_bytes=st.integers(1, 40))
def test_union_over_ranges_is_every_record_once(folder, data, cuts, block_bytes):
    path = folder / "input.jsonl"
    path.write_bytes(data)
    file = InputFile(str(path), "input.jsonl", len(data), "", "jsonl")
    cuts = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    assert read(file, cuts, block_bytes) == naive(data)


@settings(max_examples=150, deadline=None)
@given(data=files(), compression=st.sampled_from(["gzip", "zstd"]), block_bytes=st.integers(1, 40), split=st.integers())
def test_compressed_equals_plain(folder, data, compression, block_bytes, split):
    middle = split % (len(data) + 1)
    compress = gzip.compress if compression == "gzip" else zstandard.ZstdCompressor().compress
    raw = compress(data[:middle]) + compress(data[middle:])  # two members, or frames, one file
    path = folder / "input.jsonl.gz"
    path.write_bytes(raw)
    file = InputFile(str(path), "input.jsonl.gz", len(raw), "", "jsonl", compression)
    assert read(file, [0, len(raw)], block_bytes) == naive(data)


@settings(max_examples=100, deadline=None)
@given(data=files(), begin=st.integers(0, 100), size=st.integers(0, 100), block_bytes=st.integers(1, 40))
def test_content_hash_is_of_the_raw_range(folder, data, begin, size, block_bytes):
    path = folder / "input.jsonl"
    path.write_bytes(data)
    file = InputFile(str(path), "input.jsonl", len(data), "", "jsonl")
    begin, end = min(begin, len(data)), min(begin + size, len(data))
    reader = RangeReader(file, begin, end, FIELDS, max_record_bytes=MAX_RECORD_BYTES, block_bytes=block_bytes)
    list(reader)
    assert reader.content_hash == xxhash.xxh3_128_hexdigest(data[begin:end])


def test_hash_is_not_known_before_the_end(folder):
    path = folder / "input.jsonl"
    path.write_bytes(b'{"text":"a"}\n')
    reader = RangeReader(InputFile(str(path), "x", 13, "", "jsonl"), 0, 13, FIELDS, max_record_bytes=99)
    with pytest.raises(RuntimeError):
        _ = reader.content_hash


@pytest.mark.parametrize("format_name", ["jsonl", "text"])
def test_memory_stays_flat_over_a_huge_record(tmp_path, format_name):
    """64 MiB in one line: rejected by range, its first 64 KiB kept."""
    size = 64 << 20
    path = tmp_path / "huge.jsonl.gz"
    with gzip.open(path, "wb", 1) as out:
        for _ in range(64):
            out.write(b"x" * (1 << 20))
        out.write(b'\n{"text":"after"}')
    file = InputFile(str(path), path.name, path.stat().st_size, "", format_name, "gzip")
    tracemalloc.start()
    chunks = list(RangeReader(file, 0, file.size, FIELDS, max_record_bytes=2 << 20))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20
    (reject,) = [reject for chunk in chunks for reject in chunk.rejects]
    assert (reject.reason, reject.position, len(reject.raw), reject.raw_truncated) == (
        "record_too_large",
        0,
        1 << 16,
        True,
    )
    if format_name == "jsonl":
        assert reject.length == size
        assert [row for chunk in chunks for row in chunk.columns.to_pylist()] == [
            {"position": size + 1, "text:text": "after"}
        ]


def test_many_long_strings_without_spaces_stay_flat(tmp_path):
    """Defect 39: memory grew with the number of long strings."""
    path = tmp_path / "long.jsonl"
    line = orjson.dumps({"text": "z" * 150_000}) + b"\n"
    with path.open("wb") as out:
        for _ in range(400):
            out.write(line)
    file = InputFile(str(path), path.name, path.stat().st_size, "", "jsonl")
    tracemalloc.start()
    total = sum(len(chunk.columns) for chunk in RangeReader(file, 0, file.size, FIELDS, max_record_bytes=1 << 20))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total == 400
    assert peak < 10 << 20
