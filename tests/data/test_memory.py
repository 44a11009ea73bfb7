"""Memory is bounded by the pack window and the task, not by the input: peaks of real runs, each in its own process.

The peak is the highest resident set that the kernel saw of the process (`VmHWM`), which here is coordinator and worker
in one, with one tokenizer thread, as a worker has where there is one for each core. Windows are small in the quick
tests, so that what grows with the input shows early; the slow tests are about default windows and large inputs.
"""

import base64
import json
import os
import random
import shutil
import string
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from astrai_data import Tokenizer, TokenStore
from astrai_data.tokenizer import train_tokenizer

from .fates import fates
from .running import TEXT_CONFIG
from .toys import TRAINING_TEXT, write_bpe_tokenizer

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peaks are read from Linux's /proc")

MB = 10**6
MOST_MB = 600  # a worker with default windows
SMALL_WINDOWS = TEXT_CONFIG | {"output": {"max_tokens_per_shard": 1 << 16}, "run": {"max_reject_ratio": 1.0}}
DEFAULT_WINDOWS = TEXT_CONFIG | {"preprocessing": {"max_packed_len": 2048}}

TELL_PEAK = """
with open("/proc/self/status") as status:
    print(next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024)
"""
RUN = """
import json, sys
from astrai_data import Pipeline, PipelineConfig
Pipeline(PipelineConfig.from_dict(json.loads(sys.argv[1])), [sys.argv[2]], sys.argv[3], sys.argv[4]).run()
"""
READ = """
import os, sys
from astrai_data.records import FieldSpec, InputFile, RangeReader
path, size = sys.argv[1], os.path.getsize(sys.argv[1])
file = InputFile(path, path, size, "", "parquet")
for chunk in RangeReader(file, 0, size, [FieldSpec("text", "text")], max_record_bytes=1 << 26):
    pass
"""


def peak_mb(code: str, *arguments: object) -> float:
    command = [sys.executable, "-c", code + TELL_PEAK, *map(str, arguments)]
    environment = os.environ | {"FASTOKENS_BPE_THREADS": "1", "RAYON_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=3000, env=environment)
    return int(done.stdout) / MB


def run_peak_mb(config: dict, source: Path, tokenizer: Path) -> float:
    return peak_mb(RUN, json.dumps(config), source, source.parent / f"store-{source.name}", tokenizer)


def usual_peak_mb(config: dict, source: Path, tokenizer: Path) -> float:
    """The higher of two: now and then a short run is spared 30 MB that a long one meets."""
    peaks = []
    for _ in range(2):
        peaks.append(run_peak_mb(config, source, tokenizer))
        shutil.rmtree(source.parent / f"store-{source.name}")
    return max(peaks)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return write_bpe_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def short_lines(num_records: int) -> bytes:
    """65 bytes a record with few words, in no order that a compressor could learn."""
    numbers = np.random.default_rng(0).integers(0, 1000, (num_records, 3)).tolist()
    return b"".join(b'{"text": "%03d the quick brown fox %03d jumps over %03d dogs"}\n' % tuple(row) for row in numbers)


@pytest.mark.slow
def test_documents_of_one_compressed_file(tmp_path, tokenizer):
    """One task, whatever its size; what is known of a document waits on disk."""
    peaks = []
    for num_records in (500_000, 1_000_000):
        path = tmp_path / f"{num_records}.jsonl.zst"
        path.write_bytes(zstandard.ZstdCompressor(level=1).compress(short_lines(num_records)))
        peaks.append(run_peak_mb(SMALL_WINDOWS, path, tokenizer))
    assert peaks[1] - peaks[0] < 25


@pytest.mark.slow
def test_a_file_that_expands_a_thousandfold(tmp_path, tokenizer):
    """One step of the decompressor may give 64 MB; they are not parsed at once."""
    peaks = []
    for num_records in (1_000, 100_000):
        path = tmp_path / f"{num_records}.jsonl.zst"
        line = b'{"text":"few words","unread":"' + b"x" * 1000 + b'"}\n'
        path.write_bytes(zstandard.ZstdCompressor(level=1).compress(line * num_records))
        peaks.append(run_peak_mb(SMALL_WINDOWS, path, tokenizer))
    assert peaks[1] - peaks[0] < 110


@pytest.mark.slow
def test_rejects(tmp_path, tokenizer):
    peaks = []
    for num_records in (100_000, 300_000):  # both of several blocks
        path = tmp_path / f"{num_records}.jsonl"
        path.write_bytes(
            b'{"text":"good"}\n' + b'{"text": 7, "more": "so that it is as long as others are"}\n' * num_records
        )
        peaks.append(run_peak_mb(SMALL_WINDOWS, path, tokenizer))
    assert peaks[1] - peaks[0] < 20
    assert sum(1 for _ in TokenStore.open(tmp_path / "store-300000.jsonl").rejects()) == 300_000


def test_a_record_of_100_mb_is_rejected_by_range(tmp_path, tokenizer):
    lines = [b'{"text":"before"}\n', b'{"text":"' + b"many words " * (100 * MB // 11) + b'"}\n', b'{"text":"after"}\n']
    small, large = tmp_path / "small.jsonl", tmp_path / "large.jsonl"
    small.write_bytes(lines[0] + lines[2])
    large.write_bytes(b"".join(lines))
    assert run_peak_mb(SMALL_WINDOWS, large, tokenizer) - run_peak_mb(SMALL_WINDOWS, small, tokenizer) < 90
    found = fates(tmp_path / "store-large.jsonl")
    [reject] = found.rejects
    assert [position for _, position in found.texts] == [0, len(lines[0] + lines[1])]
    assert (reject["position"], reject["length"]) == (len(lines[0]), len(lines[1]) - 1)
    assert (reject["reason"], reject["raw_truncated"], len(reject["raw"])) == ("record_too_large", True, 1 << 16)


def test_one_row_group_as_large_as_its_file(tmp_path):
    peaks = []
    for num_rows in (500, 10_000):
        path = tmp_path / f"{num_rows}.parquet"
        text = [random.Random(i).randbytes(5_000).hex() for i in range(num_rows)]
        pq.write_table(pa.table({"text": text}), path, compression="none", use_dictionary=False, write_batch_size=64)
        peaks.append(peak_mb(READ, path))
    assert peaks[1] - peaks[0] < 60


# --- long strings without a space


def long_string(number: int, num_chars: int) -> str:
    """Letters only, or as base64; no two numbers have any word in common."""
    random_ = random.Random(number)
    if number % 3:
        return base64.b64encode(random_.randbytes(num_chars * 3 // 4)).decode()
    return random_.randbytes(num_chars).translate(LETTERS).decode()


LETTERS = bytes(string.ascii_lowercase.encode()[i % 26] for i in range(256))


def write_long_strings(path: Path, num_strings: int, num_chars: int) -> Path:
    with path.open("w") as file:
        for number in range(num_strings):
            file.write(json.dumps({"text": long_string(number, num_chars)}) + "\n")
    return path


@pytest.mark.parametrize("backend", ["tokenizers", "fastokens"])
@pytest.mark.parametrize("kind", [0, 1], ids=["letters", "base64"])
def test_time_is_linear_in_length(tokenizer, backend, kind):
    opened = Tokenizer.from_pretrained(tokenizer, backend=backend)
    opened.encode_batch(["warm"])
    seconds_per_char = []
    for num_chars in (15_000, 150_000):
        texts = [long_string(3 * number + kind, num_chars) for number in range(300_000 // num_chars)]
        started = time.process_time()
        opened.encode_batch(texts, special_tokens="text")
        seconds_per_char.append((time.process_time() - started) / 300_000)
    assert seconds_per_char[1] < 4 * seconds_per_char[0]


def test_300_strings_of_150_000_characters(tmp_path, tokenizer):
    peaks = []
    for num_strings in (50, 300):
        path = write_long_strings(tmp_path / f"{num_strings}.jsonl", num_strings, 150_000)
        peaks.append(run_peak_mb(SMALL_WINDOWS, path, tokenizer))
    # The accelerated tokenizer remembers words, 150 MB of them here; the slow test begins where it is full.
    assert peaks[1] < min(peaks[0] + 250, MOST_MB)
    texts = fates(tmp_path / "store-300.jsonl").texts.values()
    assert all(text == f"{long_string(i, 150_000)}<|eos|>" for i, text in enumerate(texts))
    assert len(texts) == 300


@pytest.mark.slow
def test_30_000_strings_of_150_000_characters(tmp_path, tokenizer):
    peaks = []
    for num_strings in (3_000, 30_000):
        path = write_long_strings(tmp_path / f"{num_strings}.jsonl", num_strings, 150_000)
        measure = run_peak_mb if peaks else usual_peak_mb
        peaks.append(measure(DEFAULT_WINDOWS, path, tokenizer))
        path.unlink()
    print(f"30,000 strings of 150,000 characters: {peaks[0]:.0f} MB for 3,000, {peaks[1]:.0f} MB for all")
    assert peaks[1] < min(1.05 * peaks[0], MOST_MB)


# --- large inputs


@pytest.mark.slow
def test_5_million_short_records(tmp_path, tokenizer):
    path = tmp_path / "in.jsonl"
    path.write_bytes(short_lines(5_000_000))
    peak = run_peak_mb(DEFAULT_WINDOWS, path, tokenizer)
    print(f"5 million records of 65 bytes: {peak:.0f} MB")
    assert peak < MOST_MB
    store = TokenStore.open(tmp_path / "store-in.jsonl")
    assert store.num_documents == 5_000_000
    assert store.verify() == []


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.zst"])
def test_4_gb_need_what_1_gb_needs(tmp_path, suffix):
    """The text is 20 MB of random words, repeated; vocabulary of 16,384."""
    words = ["".join(random.Random(i).choices(string.ascii_lowercase, k=2 + i % 9)) for i in range(50_000)]
    random_ = np.random.default_rng(0)
    texts = [" ".join(words[i] for i in random_.zipf(1.2, 400) % len(words)) for _ in range(8_000)]
    train_tokenizer([*texts[:1000], *TRAINING_TEXT], 16_384).save_pretrained(tmp_path / "tokenizer")
    block = b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)
    peaks = []
    for num_bytes in (10**9, 4 * 10**9):
        path = tmp_path / f"{num_bytes}.{suffix}"
        with path.open("wb") as raw, zstandard.ZstdCompressor(level=1).stream_writer(raw, closefd=False) as compressed:
            for _ in range(num_bytes // len(block)):
                (compressed if suffix.endswith("zst") else raw).write(block)
        measure = run_peak_mb if peaks else usual_peak_mb
        peaks.append(measure(DEFAULT_WINDOWS, path, tmp_path / "tokenizer"))
        path.unlink()
    print(f"{suffix}: {peaks[0]:.0f} MB for 1 GB, {peaks[1]:.0f} MB for 4 GB")
    assert peaks[1] < min(1.05 * peaks[0], MOST_MB)
