"""The rejected records of one task, as `rejects/<task key>.jsonl.zst` will hold them.

A task may reject everything it reads, at up to 64 KiB each, so they are parked in a nameless file above a MiB.
"""

import base64
import tempfile
from collections.abc import Iterator
from pathlib import Path

import orjson
import pyarrow as pa

from astrai_data.records import RAW_BYTES, Reject
from astrai_data.tokenizer import ChatRefusal

MEMORY_BYTES = 1 << 20
MESSAGE_CHARS = 500


class TaskRejects:
    """Rejects in the order in which they came; iterating gives the store's form of each.

    Args:
        folder: where they are parked.
    """

    def __init__(self, folder: Path) -> None:
        self._lines = tempfile.SpooledTemporaryFile(MEMORY_BYTES, dir=folder)  # noqa: SIM115  # closed below

    def append(self, ordinal: int, reject: Reject) -> None:
        """Take a reject of the task's range number `ordinal`."""
        entry = {"input": ordinal} | _entry(reject)
        self._lines.write(orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE))

    def __iter__(self) -> Iterator[dict]:
        self._lines.seek(0)
        return map(orjson.loads, self._lines)

    def close(self) -> None:
        """Let go of the file."""
        self._lines.close()


def refused_record(columns: pa.RecordBatch, row: int, refusal: ChatRefusal) -> tuple[int, Reject]:
    """A refused record: (ordinal of its range, reject); of its text it holds the fields that were read."""
    values = {
        name.split(":", 1)[1]: value for name, (value,) in columns.slice(row, 1).to_pydict().items() if ":" in name
    }
    raw = orjson.dumps({k: orjson.Fragment(v) if isinstance(v, bytes) else v for k, v in values.items()})
    ordinal, position = (columns.column(name)[row].as_py() for name in ("input", "position"))
    return ordinal, Reject(position, len(raw), refusal.reason, _legible(refusal.message), raw[:RAW_BYTES])


def _legible(message: str) -> str:
    """A refusal may quote the record, in a template's error for one: at most 500 characters, all of them visible."""
    cut = message if len(message) <= MESSAGE_CHARS else f"{message[:MESSAGE_CHARS]}..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def _entry(reject: Reject) -> dict:
    entry = {
        "position": reject.position,
        "length": reject.length,
        "reason": reject.reason,
        "message": reject.message,
        "raw_truncated": reject.raw_truncated,
    }
    try:
        return entry | {"raw": _whole_characters(reject).decode()}
    except UnicodeDecodeError:
        return entry | {"raw_base64": base64.b64encode(reject.raw).decode()}


def _whole_characters(reject: Reject) -> bytes:
    """The kept head without the character that the cut went through."""
    head = reject.raw
    if not reject.raw_truncated:
        return head
    last = next((at for at in range(len(head) - 1, max(len(head) - 4, -1), -1) if head[at] & 0xC0 != 0x80), 0)
    return head if head[last:].decode(errors="ignore") else head[:last]
