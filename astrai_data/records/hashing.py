"""What identifies the bytes of a range: its fingerprint (both ends) before reading, its content hash after.

Fingerprints decide task keys, so planning reads at most 2 MiB a range. In Parquet only the footer names and types the
columns; ranges that do not reach it take it in as well.
"""

import xxhash

from astrai_data.records.inputs import InputFile
from astrai_data.records.opening import Source, open_input, read_blocks

EDGE_BYTES = 1 << 20


def fingerprint(source: Source, file: InputFile, begin: int, end: int) -> bytes:
    """xxh3_128 (16 bytes, big-endian) of the first and last MiB of the range; of all of it up to 2 MiB."""
    digest = xxhash.xxh3_128()
    if end - begin <= 2 * EDGE_BYTES:
        digest.update(source.read_at(begin, end - begin))
    else:
        digest.update(source.read_at(begin, EDGE_BYTES))
        digest.update(source.read_at(end - EDGE_BYTES, EDGE_BYTES))
    digest.update(_footer(source, file, end))
    return digest.digest()


def content_hash(file: InputFile, begin: int, end: int) -> str:
    """xxh3_128, in hex, of all bytes of the range as they lie on disk: what `RangeReader.content_hash` gives.

    Raises `InputError` if the file vanished or changed its size.
    """
    with open_input(file) as source:
        return hash_range(source, file, begin, end)


def hash_range(source: Source, file: InputFile, begin: int, end: int) -> str:
    """`content_hash` of an open file."""
    content = xxhash.xxh3_128()
    offset = begin
    for block in read_blocks(source, file, begin, end, content):
        offset += len(block)
        if offset >= end:
            break
    content.update(_footer(source, file, end))
    return content.hexdigest()


def _footer(source: Source, file: InputFile, end: int) -> bytes:
    """The footer of a Parquet file behind the range: Thrift metadata, its int32 length, the magic."""
    if file.format != "parquet" or end == file.size:
        return b""
    length = int.from_bytes(source.read_at(file.size - 8, 4), "little") + 8
    return source.read_at(max(file.size - length, 0), length)
