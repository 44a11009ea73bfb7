"""Files against their checksums; of a damaged one, which MiB of which buffer."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from astrai_data.store.checksums import BLOCK_BYTES, damaged_blocks, file_record
from astrai_data.store.columns import BufferRecord
from astrai_data.store.files import map_file, unreadable
from astrai_data.store.finding import Finding
from astrai_data.store.identity import sha256_hex
from astrai_data.store.shards import Shards


def check_sha256(root: Path, path: str, expected: str) -> Iterator[Finding]:
    """Hold one file against its SHA-256 (hex)."""
    try:
        found = sha256_hex(map_file(root / path))
    except OSError as error:
        yield Finding(path, f"cannot be read: {unreadable(root / path, error).got}")
        return
    if found != expected:
        yield Finding(path, f"its SHA-256 is {found}, wanted {expected}")


def check_files(root: Path, tasks: pa.Table, shards: pa.Table | None) -> Iterator[Finding]:
    """Hold every file of every task against its size and checksum.

    Args:
        root: the store.
        tasks: its `tasks` table.
        shards: its `shards` table, to name damaged blocks; None if that is damaged itself.
    """
    buffers = _buffers_by_path(shards) if shards is not None else {}
    for files in tasks["files"].to_pylist():
        for file in files:
            yield from _check_file(root, file, buffers.get(file["path"], []))


def _check_file(root: Path, file: dict, buffers: list[tuple[int, BufferRecord]]) -> Iterator[Finding]:
    path = file["path"]
    try:
        found = file_record(root, path)
    except OSError as error:
        yield Finding(path, f"cannot be read: {unreadable(root / path, error).got}")
        return
    blocks = list(_check_blocks(root, buffers))
    yield from blocks
    if found.size != file["size"]:
        yield Finding(path, f"it has {found.size:,} bytes, wanted {file['size']:,}")
    elif found.xxh3_128 != file["xxh3_128"] and not blocks:
        beside = ", and the damage is outside its buffers" if buffers else ""
        yield Finding(path, f"its xxh3_128 is {found.xxh3_128}, wanted {file['xxh3_128']}{beside}")


def _check_blocks(root: Path, buffers: list[tuple[int, BufferRecord]]) -> Iterator[Finding]:
    for shard, buffer in buffers:
        data = memoryview(map_file(root / buffer.path))[buffer.offset : buffer.offset + buffer.length]
        for block in damaged_blocks(data, buffer.block_xxh3):
            begin = buffer.offset + block * BLOCK_BYTES
            end = min(begin + BLOCK_BYTES, buffer.offset + buffer.length)
            where = f"bytes {begin:,} to {end:,} (shard {shard}, {buffer.column} {buffer.role})"
            yield Finding(buffer.path, f"{where} are damaged: wrong xxh3_64")


def _buffers_by_path(shards: pa.Table) -> dict[str, list[tuple[int, BufferRecord]]]:
    by_path = defaultdict(list)
    for number, shard in enumerate(Shards(shards, None)):
        for buffer in shard.buffers:
            by_path[buffer.path].append((number, buffer))
    return by_path
