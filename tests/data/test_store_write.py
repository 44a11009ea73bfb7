import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from astrai_data.errors import StoreError
from astrai_data.ledger import Ledger
from astrai_data.pack import gather, plan
from astrai_data.ragged import Ragged
from astrai_data.store import DOCUMENTS_SCHEMA, TaskWriter, finished, read_task
from astrai_data.store.checksums import BLOCK_BYTES, block_checksums, damaged_blocks
from astrai_data.store.columns import read_column, write_columns
from astrai_data.store.rejects import read_rejects, write_rejects
from astrai_data.store.segments_file import SEGMENTS_SCHEMA, read_segments, write_segments
from tests.data.small_stores import DOCUMENTS, REJECTS, write_small_store, write_task

KEY = "0123456789abcdef" * 2


def packed(lists: list[list[int]], dtype=np.uint16, strategy: str = "simple", capacity: int | None = None):
    tokens = Ragged.from_rows(lists, dtype)
    n = len(lists)
    runs = Ragged.from_rows([[len(ids)] for ids in lists], np.int32)
    rules = Ragged.from_rows([[1]] * n, np.uint16)
    zeros = np.zeros(n, np.int64)
    planned = plan(strategy, tokens.lengths, capacity)
    return gather(tokens, runs, rules, zeros, np.arange(n, dtype=np.int32), zeros.astype(np.uint8), planned)


def no_documents() -> pa.Table:
    return DOCUMENTS_SCHEMA.empty_table()


def tree(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("storage_format", ["arrow", "bin"])
@pytest.mark.parametrize("dtype", ["uint16", "int32", "float32"])
def test_buffers_are_where_the_record_says(tmp_path, storage_format, dtype):
    rows = Ragged(np.arange(20).astype(dtype), np.array([2, 2, 7, 16]))  # does not begin at 0
    buffers = write_columns(tmp_path, "data/k/part-000", {"sequence": rows}, storage_format)
    raw = {b.role: (tmp_path / b.path).read_bytes()[b.offset : b.offset + b.length] for b in buffers}
    assert np.frombuffer(raw["offsets"], "<i8").tolist() == [0, 0, 5, 14]
    assert np.frombuffer(raw["values"], np.dtype(dtype)).tolist() == list(range(2, 16))
    assert all(b.block_xxh3 == [xxhash.xxh3_64_intdigest(raw[b.role])] for b in buffers)
    read = read_column(tmp_path, buffers, "sequence", dtype)
    assert [row.tolist() for row in read] == [row.tolist() for row in rows]
    assert not read.values.flags.owndata
    assert not read.values.flags.writeable


def test_arrow_parts_are_plain_arrow_files(tmp_path):
    rows = Ragged.from_rows([[1, 2], [], [3]], np.uint16)
    write_columns(tmp_path, "part-000", {"sequence": rows}, "arrow")
    with pa.OSFile(str(tmp_path / "part-000.arrow")) as file:
        reader = pa.ipc.open_file(file)
        assert reader.num_record_batches == 1
        assert pa.types.is_large_list(reader.schema.field("sequence").type)
        assert reader.read_all().to_pydict() == {"sequence": [[1, 2], [], [3]]}


def test_bin_parts_are_bare_bytes(tmp_path):
    write_columns(tmp_path, "part-000", {"sequence": Ragged.from_rows([[1, 2], [258]], np.uint16)}, "bin")
    assert (tmp_path / "part-000/sequence.bin").read_bytes().hex() == "010002000201"
    assert np.fromfile(tmp_path / "part-000/sequence.offsets.bin", "<i8").tolist() == [0, 2, 3]


@pytest.mark.parametrize("storage_format", ["arrow", "bin"])
@pytest.mark.parametrize("rows", [[], [[]], [[], []]])
def test_columns_without_a_token(tmp_path, storage_format, rows):
    buffers = write_columns(tmp_path, "p", {"sequence": Ragged.from_rows(rows, np.uint16)}, storage_format)
    assert read_column(tmp_path, buffers, "sequence", "uint16").lengths.tolist() == [0] * len(rows)


def test_big_endian_values_are_stored_little_endian(tmp_path):
    rows = Ragged.from_lengths(np.array([1, 258], ">u2"), np.array([2]))
    buffers = write_columns(tmp_path, "p", {"sequence": rows}, "arrow")
    assert read_column(tmp_path, buffers, "sequence", "uint16").values.tolist() == [1, 258]


def test_segments_come_back(tmp_path):
    _, segments = packed([[1, 2, 3], [4], [5, 6]], strategy="bfd", capacity=4)
    record = write_segments(tmp_path, "part-000", segments)
    read = read_segments(tmp_path, record.path)
    for name in ("row", "length", "document", "token_start", "flags"):
        expected = getattr(segments, name)
        assert getattr(read, name).dtype == expected.dtype
        assert getattr(read, name).tolist() == expected.tolist()
    for name in ("mask_lengths", "mask_rules"):
        assert [run.tolist() for run in getattr(read, name)] == [run.tolist() for run in getattr(segments, name)]
        assert getattr(read, name).offsets.dtype == np.int64
    with pa.OSFile(str(tmp_path / record.path)) as file:
        assert pa.ipc.open_file(file).read_all().schema == SEGMENTS_SCHEMA


@pytest.mark.parametrize("content", [b"", b"not arrow at all", None])
def test_a_file_that_holds_no_segments(tmp_path, content):
    if content is not None:
        (tmp_path / "s").write_bytes(content)
    with pytest.raises(StoreError, match="segments file cannot be read"):
        read_segments(tmp_path, "s")


def test_blocks_are_one_mib(tmp_path):
    data = np.random.default_rng(0).integers(0, 256, 2 * BLOCK_BYTES + 5, np.uint8).tobytes()
    sums = block_checksums(data)
    assert sums == [
        xxhash.xxh3_64_intdigest(data[:BLOCK_BYTES]),
        xxhash.xxh3_64_intdigest(data[BLOCK_BYTES : 2 * BLOCK_BYTES]),
        xxhash.xxh3_64_intdigest(data[2 * BLOCK_BYTES :]),
    ]
    assert block_checksums(b"") == []
    damaged = bytearray(data)
    damaged[BLOCK_BYTES + 7] ^= 1
    assert damaged_blocks(bytes(damaged), sums) == [1]
    assert damaged_blocks(data[:BLOCK_BYTES], sums) == [1, 2]


def test_the_record_of_a_task(tmp_path):
    writer = TaskWriter(tmp_path, KEY, storage_format="arrow")
    writer.write_part("train", None, *packed([[1, 2, 3], [4]]))
    writer.write_part("validation", "web", *packed([[5]]))
    assert not finished(tmp_path, KEY)
    written = writer.finish(no_documents(), Ledger(), [{"input": 0, "raw": b"x"}], [{"begin": 0, "end": 9}])
    record = read_task(tmp_path, KEY)
    assert record == written
    assert finished(tmp_path, KEY)
    assert [(p.part, p.split, p.domain, p.num_rows, p.num_tokens, p.num_segments) for p in record.parts] == [
        (0, "train", None, 2, 4, 2),
        (1, "validation", "web", 1, 1, 1),
    ]
    assert record.columns == {"sequence": "uint16"}
    assert (record.num_rejects, record.ranges) == (1, ({"begin": 0, "end": 9},))
    for file in record.files:
        data = (tmp_path / file.path).read_bytes()
        assert (file.size, file.xxh3_128) == (len(data), xxhash.xxh3_128_hexdigest(data))
    assert {file.path for file in record.files} | {f"data/{KEY}/task.json"} == set(tree(tmp_path))


def test_a_task_without_parts_and_rejects(tmp_path):
    TaskWriter(tmp_path, KEY, storage_format="bin").finish(no_documents(), Ledger(), [], [])
    assert read_task(tmp_path, KEY).parts == ()
    assert not (tmp_path / "rejects").exists()


@pytest.mark.parametrize("damage", ["short", "missing", "record", "no record"])
def test_a_task_that_is_not_whole_is_not_finished(tmp_path, damage):
    write_task(tmp_path, KEY, DOCUMENTS[0], REJECTS[0])
    victim = tmp_path / "data" / KEY / ("task.json" if "record" in damage else "documents.parquet")
    if damage in ("missing", "no record"):
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes()[:-1])
    assert not finished(tmp_path, KEY)
    if "record" in damage:
        with pytest.raises(StoreError, match="not finished" if damage == "no record" else "damaged"):
            read_task(tmp_path, KEY)


@pytest.mark.parametrize("key", ["", "../x", "a/b", "a.b", "x" * 65])
def test_keys_that_are_no_folder_names(tmp_path, key):
    with pytest.raises(ValueError, match="task key"):
        TaskWriter(tmp_path, key, storage_format="arrow")


def test_parts_that_contradict_themselves(tmp_path):
    writer = TaskWriter(tmp_path, KEY, storage_format="arrow")
    rows, segments = packed([[1, 2, 3]])
    with pytest.raises(ValueError, match="cover"):
        writer.write_part("train", None, Ragged.from_rows([[1, 2]], np.uint16), segments)
    with pytest.raises(ValueError, match="split"):
        writer.write_part("test", None, rows, segments)
    writer.write_part("train", None, rows, segments)
    with pytest.raises(ValueError, match="int32"):
        writer.write_part("train", None, *packed([[1]], np.int32))


def test_a_failed_write_leaves_no_file(tmp_path):
    def broken():
        yield {"input": 0}
        raise RuntimeError("the reader broke")

    with pytest.raises(RuntimeError):
        write_rejects(tmp_path, KEY, broken())
    assert tree(tmp_path) == {}


def test_rejects_keep_what_was_read(tmp_path):
    raws = [b"plain", b"\xff\xfe", b"x" * 70_000]
    write_rejects(tmp_path, KEY, [{"input": 0, "position": i, "raw": raw} for i, raw in enumerate(raws)])
    first, second, third = read_rejects(tmp_path, KEY)
    assert first == {"input": 0, "position": 0, "raw": "plain"}
    assert second == {"input": 0, "position": 1, "raw_base64": "//4="}
    assert (len(third["raw"]), third["raw_truncated"]) == (65536, True)


@pytest.mark.parametrize("storage_format", ["arrow", "bin"])
def test_equal_arguments_give_equal_bytes_in_any_folder_and_process(tmp_path, storage_format):
    write_small_store(tmp_path / "one" / "s", storage_format=storage_format)
    call = f"write_small_store(Path({str(tmp_path / 'two' / 's')!r}), storage_format={storage_format!r})"
    script = f"from tests.data.small_stores import *; {call}"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[2])
    one, two = tree(tmp_path / "one" / "s"), tree(tmp_path / "two" / "s")
    assert one == two  # even run.json: nothing was given for it


def test_writing_a_task_twice_changes_nothing(tmp_path):
    write_task(tmp_path, KEY, DOCUMENTS[0], REJECTS[0])
    before = tree(tmp_path)
    write_task(tmp_path, KEY, DOCUMENTS[0], REJECTS[0])
    assert tree(tmp_path) == before


def test_task_json_is_canonical(tmp_path):
    TaskWriter(tmp_path, KEY, storage_format="bin").finish(no_documents(), Ledger(), [], [{"ratio": 0.25}])
    data = (tmp_path / "data" / KEY / "task.json").read_bytes()
    value = json.loads(data)
    assert data == json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    assert value["ranges"] == [{"ratio": "0.25"}]
    assert len(hashlib.sha256(data).hexdigest()) == 64
