"""Files to tasks: ranges of large files, groups of small ones, fingerprints."""

import os
import random
from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from astrai_data.errors import InputError
from astrai_data.records import InputFile, InputRange, cut_inputs
from astrai_data.records import cuts as cuts_module
from astrai_data.records.cuts import group_ranges

MIB = 1 << 20


def sparse(path, size, **changes) -> InputFile:
    with path.open("wb") as out:
        out.truncate(size)
    fields = {"format": "jsonl"} | changes
    return InputFile(str(path), path.name, size, "", **fields)


@pytest.mark.parametrize(
    ("size", "borders"),
    [
        (0, [0, 0]),
        (1, [0, 1]),
        (96 * MIB, [0, 96 * MIB]),
        (96 * MIB + 1, [0, 96 * MIB + 1]),
        (128 * MIB - 1, [0, 128 * MIB - 1]),
        (128 * MIB, [0, 96 * MIB, 128 * MIB]),
        (200 * MIB, [0, 96 * MIB, 200 * MIB]),
        (300 * MIB, [0, 96 * MIB, 192 * MIB, 300 * MIB]),
        (320 * MIB, [0, 96 * MIB, 192 * MIB, 288 * MIB, 320 * MIB]),
    ],
)
def test_plain_jsonl_is_cut_at_multiples_of_96_mib(tmp_path, size, borders):
    tasks = cut_inputs([sparse(tmp_path / "a.jsonl", size)])
    assert [(cut.begin, cut.end) for (cut,) in tasks] == list(pairwise(borders))


@pytest.mark.parametrize(
    "changes", [{"compression": "gzip"}, {"compression": "zstd"}, {"format": "json"}, {"format": "text"}]
)
def test_other_files_stay_whole(tmp_path, changes):
    ((cut,),) = cut_inputs([sparse(tmp_path / "a", 300 * MIB, **changes)])
    assert (cut.begin, cut.end) == (0, 300 * MIB)


def test_parquet_is_cut_between_row_groups(tmp_path):
    noise = os.urandom(20 * MIB)
    rows = pa.table({"text": pa.array([noise[i : i + MIB] for i in range(0, len(noise), MIB)], pa.binary())})
    path = tmp_path / "a.parquet"
    with pq.ParquetWriter(path, rows.schema, compression="none", use_dictionary=False) as writer:
        for _ in range(8):
            writer.write_table(rows)
    size = path.stat().st_size
    tasks = cut_inputs([InputFile(str(path), path.name, size, "", "parquet")])
    borders = [cut.begin for (cut,) in tasks] + [size]
    assert [round((end - begin) / MIB) for begin, end in pairwise(borders)] == [80, 80]
    assert [cut.end for (cut,) in tasks] == borders[1:]


def test_a_damaged_parquet_file_is_planned_whole(tmp_path):
    ((cut,),) = cut_inputs([sparse(tmp_path / "a.parquet", 40 * MIB, format="parquet")])
    assert (cut.begin, cut.end) == (0, 40 * MIB)


def test_fingerprints_cover_both_ends(tmp_path):
    data = os.urandom(5 * MIB)
    path = tmp_path / "a.txt"

    def fingerprint(content: bytes) -> bytes:
        path.write_bytes(content)
        ((cut,),) = cut_inputs([InputFile(str(path), path.name, len(content), "", "text")])
        return cut.fingerprint

    assert fingerprint(data) == xxhash.xxh3_128_digest(data[:MIB] + data[-MIB:])
    assert fingerprint(data[: 3 * MIB // 2]) == xxhash.xxh3_128_digest(data[: 3 * MIB // 2])
    assert fingerprint(b"") == xxhash.xxh3_128_digest(b"")


def test_parquet_fingerprint_and_hash_cover_the_footer(tmp_path, monkeypatch):
    """The same pages under swapped column names are other data."""
    monkeypatch.setattr(cuts_module, "MIN_ROW_GROUPS_BYTES", 1)
    monkeypatch.setattr(cuts_module, "SMALL_FILE_BYTES", 1)
    found = []
    for names in (["text", "html"], ["html", "text"]):
        table = pa.table([["a" * 100] * 50, ["b" * 100] * 50], names=names)
        path = tmp_path / "a.parquet"
        pq.write_table(table, path, row_group_size=10, compression="none")
        tasks = cut_inputs([InputFile(str(path), path.name, path.stat().st_size, "", "parquet")])
        assert len(tasks) == 5
        found.append([cut.fingerprint for (cut,) in tasks])
    assert not set(found[0]) & set(found[1])


def test_groups_have_one_kind_and_large_files_end_them(tmp_path):
    files = [
        sparse(tmp_path / "0", 1),
        sparse(tmp_path / "1", 2),
        sparse(tmp_path / "2", 3, domain="d"),
        sparse(tmp_path / "3", 4, domain="d"),
        sparse(tmp_path / "4", 32 * MIB, domain="d"),
        sparse(tmp_path / "5", 5, domain="d"),
        sparse(tmp_path / "6", 6, domain="d", fields={"text": "x"}),
        sparse(tmp_path / "7", 7, format="text"),
        sparse(tmp_path / "8", 8, format="text", compression="gzip"),
        sparse(tmp_path / "9", 0, format="text", compression="gzip"),
    ]
    tasks = [[cut.file for cut in task] for task in cut_inputs(files)]
    assert tasks == [[0, 1], [2, 3], [4], [5], [6], [7], [8, 9]]


def test_a_file_that_vanished_is_named(tmp_path):
    file = sparse(tmp_path / "gone.jsonl", 5)
    (tmp_path / "gone.jsonl").unlink()
    with pytest.raises(InputError, match=r"gone\.jsonl"):
        cut_inputs([file])


# --- the closing rule of groups, on many files that exist only by size and fingerprint


def planned(sizes: list[int], seed: int) -> tuple[list[InputFile], list[list[InputRange]]]:
    random_ = random.Random(seed)
    files = [InputFile(f"/{i}", str(i), size, "", "jsonl") for i, size in enumerate(sizes)]
    return files, [[InputRange(i, 0, size, random_.randbytes(16))] for i, size in enumerate(sizes)]


def naive_groups(sizes: list[int], fingerprints: list[bytes]) -> list[list[int]]:
    """The rule of store-format "Cuts", word by word."""
    groups: list[list[int]] = []
    total = 0
    for index, (size, fingerprint) in enumerate(zip(sizes, fingerprints, strict=True)):
        drawn = xxhash.xxh3_64_intdigest(fingerprint) < 2**64 * size / (32 * MIB)
        if not groups or total >= 64 * MIB or (total > 16 * MIB and drawn):
            groups.append([])
            total = 0
        groups[-1].append(index)
        total += size
    return groups


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(0, 32 * MIB - 1), max_size=60), seed=st.integers(0, 99))
def test_groups_close_by_the_rule(sizes, seed):
    files, ranges = planned(sizes, seed)
    tasks = group_ranges(files, ranges)
    expected = naive_groups(sizes, [cut.fingerprint for (cut,) in ranges])
    assert [[cut.file for cut in task] for task in tasks] == expected


def identities(tasks) -> Counter:
    return Counter(tuple((cut.end, cut.fingerprint) for cut in task) for task in tasks)


@pytest.mark.parametrize("mean_mib", [0.3, 1, 8])
def test_an_inserted_file_disturbs_few_groups(mean_mib):
    """Borders behind an inserted file fall where they fell before, but for a rare one that it moves."""
    random_ = random.Random(0)
    disturbed = []
    for trial in range(40):
        sizes = [
            min(int(random_.expovariate(1 / (mean_mib * MIB))), 32 * MIB - 1) for _ in range(int(1_500 / mean_mib))
        ]
        files, ranges = planned(sizes, trial)
        before = identities(group_ranges(files, ranges))
        at = random_.randrange(len(files))
        new = InputFile("/new", "new", 123_456, "", "jsonl")
        new_range = [InputRange(0, 0, new.size, random_.randbytes(16))]
        after = identities(group_ranges([*files[:at], new, *files[at:]], [*ranges[:at], new_range, *ranges[at:]]))
        disturbed.append((before - after).total())
    assert sum(disturbed) / len(disturbed) < 1.5
    assert max(disturbed) <= 5
    assert sum(count == 1 for count in disturbed) > len(disturbed) * 0.75
