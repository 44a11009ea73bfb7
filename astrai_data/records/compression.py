"""Compressed blocks to plain blocks: gzip members and zstd frames, one after the other, read whole.

Damage is found, never passed over: a stream that ends early or fails its checksum is an error after every byte that
could be read. (gzip's checksum stands at a member's end: of a broken member, bytes behind the defect may be wrong.)
What one step can expand to is bounded by feeding 2 KiB at a time: 2 MiB in gzip, 64 MiB in zstd, at 3 % of the speed.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator

import zstandard

PIECE_BYTES = 1 << 11
_MAX_WINDOW_BYTES = 1 << 31  # `zstd --long=31`, as published dumps use it


class DamagedStreamError(Exception):
    """A compressed stream that is cut short or broken; the message says which."""


def decompress(blocks: Iterable[bytes], compression: str, block_bytes: int) -> Iterator[bytes]:
    """Plain blocks of at least `block_bytes` (the last may be shorter) from the raw `blocks` of one file.

    Args:
        blocks: the file's bytes.
        compression: "gzip" or "zstd".
        block_bytes: size to gather before a block is handed on.

    Raises `DamagedStreamError` after every readable byte was handed on.
    """
    gathered: list[bytes] = []
    size = 0
    damage: Exception | None = None
    try:
        for piece in _cut(_pieces(blocks, _OPENERS[compression]), block_bytes):
            gathered.append(piece)
            size += len(piece)
            if size >= block_bytes:
                yield b"".join(gathered)
                gathered, size = [], 0
    except (zlib.error, zstandard.ZstdError, DamagedStreamError) as error:
        damage = error
    if size:
        yield b"".join(gathered)
    if damage:
        raise DamagedStreamError(str(damage)) from damage


def _cut(pieces: Iterable[bytes], most: int) -> Iterator[bytes]:
    """`pieces` with none above `most` bytes: what is parsed at once takes several times its size."""
    for piece in pieces:
        for begin in range(0, len(piece), most):
            yield piece[begin : begin + most]


def _pieces(blocks: Iterable[bytes], opener: Callable) -> Iterator[bytes]:
    stream = None
    for block in blocks:
        for begin in range(0, len(block), PIECE_BYTES):
            data = block[begin : begin + PIECE_BYTES]
            while data:
                stream = stream or opener()
                yield stream.decompress(data)
                if not stream.eof:
                    break
                # Another member or frame may follow, after zero padding (tapes, block-aligned copies).
                data, stream = stream.unused_data.lstrip(b"\0"), None
    if stream is not None:
        raise DamagedStreamError("the compressed data ends early")


def _open_gzip():
    return zlib.decompressobj(wbits=31)


def _open_zstd():
    return zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).decompressobj()


_OPENERS = {"gzip": _open_gzip, "zstd": _open_zstd}
