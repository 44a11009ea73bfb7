"""JSON Lines: framed lines to records. Every line is a row, a reject, or blank.

`orjson` parses strictly: NaN, lone surrogates, invalid UTF-8 and nesting over 1,024 are errors; of duplicate keys the
last wins; an integer beyond 64 bits becomes a float, and is read once more where it is wanted (`large_integers.py`).
"""

from collections.abc import Iterable, Sequence

import numpy as np
import orjson

from astrai_data.records.chunk import RAW_BYTES, RecordChunk, Reject, WantedField
from astrai_data.records.columns import build_chunk, json_name
from astrai_data.records.framing import Frames

# What orjson says of many brackets in a short record, which only a record that does not close them can be.
_CLEARER = {"failed to allocate memory": "brackets are opened here that nothing closes"}


def parse_lines(frames: Frames, wanted: Sequence[WantedField]) -> RecordChunk:
    """The records of `frames` as columns."""
    lines, positions = frames.lines, frames.positions
    records = _parse(lines)
    if set(map(type, records)) <= {dict}:
        return build_chunk(records, positions, lines.__getitem__, wanted, frames.rejects)
    rejects = [
        explain(line, position)
        for line, position, record in zip(lines, positions.tolist(), records, strict=True)
        if type(record) is not dict and not _is_blank(line)
    ]
    kept = [index for index, record in enumerate(records) if type(record) is dict]
    return build_chunk(
        [records[i] for i in kept],
        positions[np.array(kept, np.int64)],
        lambda index: lines[kept[index]],
        wanted,
        [*frames.rejects, *rejects],
    )


def _parse(lines: Iterable[bytes]) -> list:
    """What each line holds; None where that is not JSON."""
    loads = orjson.loads
    records = []
    append = records.append
    for line in lines:
        try:
            append(loads(line))
        except ValueError:
            append(None)
    return records


def _is_blank(line: bytes) -> bool:
    return not line.strip()


def explain(line: bytes, position: int) -> Reject:
    """Why `line`, at byte `position`, is no record."""
    reason, message = _reason(line)
    return Reject(position, len(line), reason, message, line[:RAW_BYTES])


def _reason(line: bytes) -> tuple[str, str]:
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        return "invalid_utf8", describe_utf8(line, error)
    try:
        return "not_an_object", f"got {json_name(orjson.loads(line))}, wanted an object"
    except orjson.JSONDecodeError as error:
        found = _CLEARER.get(error.msg, error.msg)
        return "invalid_json", f"byte {len(text[: error.pos].encode())} of the record: {found}"


def describe_utf8(raw: bytes, error: UnicodeDecodeError) -> str:
    """Which byte of the record `raw` is not UTF-8."""
    return f"byte {error.start} of the record is {raw[error.start]:#04x}: {error.reason}"
