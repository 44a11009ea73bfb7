"""Whole files broken anywhere: an error that names the file, or what is readable of it, and never a crash."""

import gzip
import io
import json
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from astrai_data.errors import InputError
from astrai_data.records import FieldSpec, InputFile, RangeReader

from .mutating import mutate

MESSAGES = [{"role": "user", "content": "Über 😀"}, {"role": "assistant", "content": "ok", "weight": 1}]
RECORDS = [{"text": f"document {i} {'x' * (i % 50)}", "messages": MESSAGES} for i in range(200)]
JSONL = b"".join(json.dumps(record).encode() + b"\n" for record in RECORDS)


def parquet_bytes(**options) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(RECORDS), sink, row_group_size=50, **options)
    return sink.getvalue()


# Name -> (compression, bytes, how many of the last are left alone). Arrow ends the process on some broken footers of
# Parquet files, before anybody could catch it.
FILES = {
    "a.jsonl.gz": ("gzip", gzip.compress(JSONL), 0),
    "a.jsonl.zst": ("zstd", zstandard.ZstdCompressor(write_checksum=True).compress(JSONL), 0),
    "a.json": (None, json.dumps(RECORDS).encode(), 0),
    "a.txt": (None, "Über allen Gipfeln".encode() * 50, 0),
    "a.parquet": (None, parquet_bytes(), 8),
    "plain.parquet": (None, parquet_bytes(compression="none", use_dictionary=False), 8),
}


@pytest.mark.parametrize("name", FILES)
def test_mutated_files(tmp_path, name):
    """A broken file is an error that names it; with `allow_damaged`, what is readable of it and rejects."""
    compression, data, fixed = FILES[name]
    if fixed:
        fixed += int.from_bytes(data[-8:-4], "little")
    random_, outcomes = random.Random(len(data)), Counter()
    fields = [FieldSpec("text", "text"), FieldSpec("messages", "json"), FieldSpec("id", "meta")]
    format_name = {".txt": "text", ".gz": "jsonl", ".zst": "jsonl"}.get(Path(name).suffix, Path(name).suffix[1:])
    for _ in range(150):
        (tmp_path / name).write_bytes(mutate_body(data, fixed, random_))
        size = (tmp_path / name).stat().st_size
        file = InputFile(str(tmp_path / name), name, size, "", format_name, compression)
        for allow_damaged in (False, True):
            reader = RangeReader(file, 0, size, fields, max_record_bytes=1 << 20, allow_damaged=allow_damaged)
            try:
                rejects = [reject for chunk in reader for reject in chunk.rejects]
            except InputError as error:
                outcomes["error", allow_damaged, str(tmp_path / name) in str(error)] += 1
            else:
                assert all(reject.message for reject in rejects)
                outcomes["read", allow_damaged] += 1
    assert outcomes.keys() <= {("error", False, True), ("read", False), ("read", True)}
    assert outcomes["read", True] == 150
    assert outcomes["error", False, True] > 0 or name == "a.txt"


def mutate_body(data: bytes, fixed: int, random_: random.Random) -> bytes:
    if not fixed:
        return mutate(data, random_)
    at = random_.randrange(len(data) - fixed)
    noise = random_.randbytes(random_.randint(1, 30))[: len(data) - fixed - at]
    return data[:at] + noise + data[at + len(noise) :]
