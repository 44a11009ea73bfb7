"""Planned files to tasks: large files cut into ranges, small files grouped.

Where a group closes depends on the next file's own bytes (content-defined chunking, as in rsync and backup
tools), so an inserted file changes its own group, rarely a neighbour: 1.03 groups on average with files around
1 MiB, 1.16 around 0.3 MiB (`tests/data/test_cuts.py`).
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import xxhash

from astrai_data.records.hashing import fingerprint
from astrai_data.records.inputs import InputFile
from astrai_data.records.listing import is_local
from astrai_data.records.opening import Source, open_input

MIB = 1 << 20
RANGE_BYTES = 96 * MIB
MIN_TAIL_BYTES = 32 * MIB
SMALL_FILE_BYTES = 32 * MIB
MIN_GROUP_BYTES = 16 * MIB
MAX_GROUP_BYTES = 64 * MIB
MIN_ROW_GROUPS_BYTES = 64 * MIB
_REMOTE_THREADS = 32


@dataclasses.dataclass(frozen=True)
class InputRange:
    """Bytes [`begin`, `end`) of the planned file number `file`.

    `fingerprint` is that of `hashing.fingerprint`.
    """

    file: int
    begin: int
    end: int
    fingerprint: bytes


def cut_inputs(files: Sequence[InputFile]) -> list[tuple[InputRange, ...]]:
    """The tasks of a run in plan order, each a tuple of ranges.

    Together they cover every byte of every file once.

    The ranges of one task have one format, compression, domain and field renaming. Raises `InputError`.
    """
    return group_ranges(files, _ranges_of_all(files))


def group_ranges(
    files: Sequence[InputFile], ranges_of_files: Iterable[list[InputRange]]
) -> list[tuple[InputRange, ...]]:
    """The tasks that `ranges_of_files`, one list a file, make: a range of a large file alone, small files together."""
    tasks: list[tuple[InputRange, ...]] = []
    group: list[InputRange] = []
    kind, size = None, 0  # of the group under way
    for file, ranges in zip(files, ranges_of_files, strict=True):
        small = file.size < SMALL_FILE_BYTES
        if group and not (small and _kind(file) == kind and _stays_open(size, ranges[0].fingerprint, file.size)):
            tasks.append(tuple(group))
            group, size = [], 0
        if small:
            group += ranges
            kind, size = _kind(file), size + file.size
        else:
            tasks += [(cut,) for cut in ranges]
    return [*tasks, tuple(group)] if group else tasks


def _stays_open(group_size: int, fingerprint: bytes, size: int) -> bool:
    """Whether a group of `group_size` bytes takes in the next file."""
    return group_size <= MIN_GROUP_BYTES or (group_size < MAX_GROUP_BYTES and not _is_border(fingerprint, size))


def _is_border(fingerprint: bytes, size: int) -> bool:
    """True for one small file in every 32 MiB on average, larger ones more often."""
    return xxhash.xxh3_64_intdigest(fingerprint) * SMALL_FILE_BYTES < size << 64


def _kind(file: InputFile) -> tuple:
    return file.format, file.compression, file.domain, sorted(file.fields.items())


def _ranges_of_all(files: Sequence[InputFile]) -> Iterator[list[InputRange]]:
    if all(is_local(file.url) for file in files):
        return map(_ranges_of, range(len(files)), files)
    with ThreadPoolExecutor(_REMOTE_THREADS) as pool:  # latency, not work
        return iter(list(pool.map(_ranges_of, range(len(files)), files)))


def _ranges_of(index: int, file: InputFile) -> list[InputRange]:
    with open_input(file) as source:
        borders = [0, *_inner_borders(source, file), file.size]
        return [InputRange(index, b, e, fingerprint(source, file, b, e)) for b, e in pairwise(borders)]


def _inner_borders(source: Source, file: InputFile) -> Iterable[int]:
    if file.size < SMALL_FILE_BYTES or file.compression or file.format not in ("jsonl", "parquet"):
        return []
    if file.format == "jsonl":
        return range(RANGE_BYTES, file.size - MIN_TAIL_BYTES + 1, RANGE_BYTES)
    return _row_group_borders(source)


def _row_group_borders(source: Source) -> list[int]:
    """Starts of row groups, at least 64 MiB apart.

    None where the file is damaged, which the reader will say.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from astrai_data.records.parquet_file import row_group_starts

    try:
        with pq.ParquetFile(source.as_file()) as parquet:
            starts = row_group_starts(parquet.metadata)
    except pa.ArrowException:
        return []
    borders, last = [], 0
    for start in starts[1:]:
        if start - last >= MIN_ROW_GROUPS_BYTES:
            borders.append(start)
            last = start
    return borders
