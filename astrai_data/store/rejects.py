"""Rejected records, one JSON line each, compressed: what could not be used, where it stood, and why."""

import base64
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import orjson

from astrai_data.store.files import replacing, unreadable

MAX_RAW_BYTES = 64 << 10


def rejects_path(key: str) -> str:
    """Where a task's rejects lie, relative to the store."""
    return f"rejects/{key}.jsonl.zst"


def write_rejects(root: Path, key: str, rejects: Iterable[dict]) -> int:
    """Write a task's rejects and return how many there are; without any, no file is made.

    Args:
        root: the store.
        key: the task key.
        rejects: {`input`, `position`, `length`, `reason`, `message`, `raw` or `raw_base64`, `raw_truncated`}.
            `raw` may be bytes: then what is no UTF-8 becomes `raw_base64`, and what is over 64 KiB is cut.
    """
    import zstandard

    rejects = iter(rejects)
    first = next(rejects, None)
    if first is None:
        return 0
    compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
    count = 0
    with (
        replacing(root / rejects_path(key)) as temporary,
        open(temporary, "wb") as file,
        compressor.stream_writer(file, closefd=False) as stream,
    ):
        for reject in chain([first], rejects):
            stream.write(_line(reject))
            count += 1
    return count


def read_rejects(root: Path, key: str, size: int | None = None) -> Iterator[dict]:
    """The rejects of one task, in order.

    Args:
        root: the store.
        key: the task key.
        size: bytes that the file must have, where that is known: a compressed file cut short just ends early.

    Raises:
        StoreError: the file is missing or damaged.
    """
    import io

    import zstandard

    path = root / rejects_path(key)
    try:
        if size not in (None, path.stat().st_size):
            raise ValueError(f"{path.stat().st_size:,} bytes, wanted {size:,}")
        with open(path, "rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
            for line in io.BufferedReader(stream):
                yield orjson.loads(line)
    except (OSError, zstandard.ZstdError, ValueError) as error:
        raise unreadable(path, error, what="the rejects of a task cannot be read") from error


def _line(reject: dict) -> bytes:
    raw = reject.get("raw")
    if isinstance(raw, bytes):
        reject = {name: value for name, value in reject.items() if name != "raw"} | _json_raw(raw)
    return orjson.dumps(reject, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


def _json_raw(raw: bytes) -> dict:
    kept = raw[:MAX_RAW_BYTES]
    truncated = {"raw_truncated": True} if len(raw) > len(kept) else {}
    try:
        return {"raw": kept.decode()} | truncated
    except UnicodeDecodeError:
        return {"raw_base64": base64.b64encode(kept).decode()} | truncated
