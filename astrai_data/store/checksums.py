"""xxh3 checksums: one for every MiB of a buffer, one for a whole file.

Blocks let a reader check what it fetched of a large file, and let `--verify` say which MiB is damaged; the
checksum of the file covers what no buffer does (headers, padding). They protect against accidents, not
against malice.
"""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import xxhash

BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class FileRecord:
    """A file of the store: its path relative to the store, size in bytes, and xxh3_128 in hex."""

    path: str
    size: int
    xxh3_128: str


def block_checksums(data: pa.Buffer | bytes | memoryview) -> list[int]:
    """xxh3_64 of each MiB of `data`, the last one shorter: [ceil(size / 2^20)]."""
    view = memoryview(data)
    return [xxhash.xxh3_64_intdigest(view[at : at + BLOCK_BYTES]) for at in range(0, len(view), BLOCK_BYTES)]


def damaged_blocks(data: pa.Buffer | bytes | memoryview, expected: list[int]) -> list[int]:
    """Indices of the MiB blocks of `data` whose checksum is not the expected one."""
    found = block_checksums(data)
    surplus = range(min(len(found), len(expected)), max(len(found), len(expected)))
    return [i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b] + list(surplus)


def file_record(root: Path, path: str) -> FileRecord:
    """Read the file at `path` below `root`, block by block, and take its size and checksum."""
    digest, size = xxhash.xxh3_128(), 0
    with open(root / path, "rb", buffering=0) as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
            size += len(block)
    return FileRecord(path, size, digest.hexdigest())
