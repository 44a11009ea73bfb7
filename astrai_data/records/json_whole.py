"""A `.json` file: an object is one record, an array its elements; the position is the ordinal.

The file is parsed whole and so held whole, unlike JSON Lines, several times its size. A file that is not JSON is
damaged as a file, not one bad record: what would have been a million records must not pass as one reject. But where
only what stands inside an element is refused, as 1e400, NaN and half a surrogate pair are, that element alone is one.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import orjson

from astrai_data.records.chunk import RAW_BYTES, RecordChunk, Reject, WantedField
from astrai_data.records.columns import build_chunk, json_name
from astrai_data.records.framing import BOM, too_large
from astrai_data.records.json_lines import explain
from astrai_data.records.large_integers import loads_to_write

_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder(parse_float=str, parse_int=str, strict=False)


class DamagedJsonError(Exception):
    """A file that is not JSON; holds the reject that stands for it."""

    def __init__(self, reject: Reject) -> None:
        super().__init__(f"{reject.reason}: {reject.message}")
        self.reject = reject


def read_json(
    data: bytes, wanted: Sequence[WantedField], max_record_bytes: int, chunk_bytes: int
) -> Iterator[RecordChunk]:
    """The records of one JSON file. A bare number, string or null is one reject, `not_an_object`.

    An element that is not JSON by the strict rules of `json_lines.py` is one reject, with the reason that it has there.

    Raises `DamagedJsonError` if `data` is not JSON.
    """
    data = data.removeprefix(BOM)
    if not data.strip():
        return
    records, exact = _parsed(data)
    size = max(1, len(records) * chunk_bytes // len(data))
    # No element is larger than the file, so the usual file needs no look at the size of each.
    limit = max_record_bytes if len(data) > max_record_bytes else None
    for begin in range(0, len(records), size):
        yield _chunk(records[begin : begin + size], begin, wanted, limit, exact)


def parse_json(data: bytes) -> list:
    """The records of one JSON file, a `Reject` for each that cannot be read.

    Raises `DamagedJsonError` if `data` is not JSON.
    """
    return _parsed(data.removeprefix(BOM))[0]


def _parsed(data: bytes) -> tuple[list, Callable[[int], object]]:
    """The records, and what gives one of them with exact integers by its ordinal."""
    try:
        records = _records(orjson.loads(data))
    except ValueError:
        elements = _elements(data)
        return [_loads(raw, ordinal) for ordinal, raw in enumerate(elements)], lambda i: loads_to_write(elements[i])
    exact = cache(lambda: _records(loads_to_write(data)))
    return records, lambda index: exact()[index]


def _records(value: Any) -> list:
    return value if type(value) is list else [value]


def _loads(raw: bytes, ordinal: int) -> object:
    try:
        return orjson.loads(raw)
    except ValueError:
        return explain(raw, ordinal)


def _elements(data: bytes) -> list[bytes]:
    """The elements of a file that `orjson` refuses, cut by Python's own library, which takes more for numbers and text.

    Raises `DamagedJsonError` if that does not read it either.
    """
    try:
        text = data.decode()
        return [element.encode() for element in _cut(text)]
    except json.JSONDecodeError as error:  # what `orjson` met first may be an element's alone
        message = f"byte {len(text[: error.pos].encode()):,} of the file: {error.msg}"
        raise DamagedJsonError(replace(explain(data, 0), message=message)) from None
    except (ValueError, RecursionError):
        raise DamagedJsonError(explain(data, 0)) from None


def _cut(text: str) -> Iterator[str]:
    """The elements of an array, or the one value that `text` is. Raises `JSONDecodeError` where it is neither."""
    at = _after_blank(text, 0)
    is_array = text.startswith("[", at)
    while True:
        begin = _after_blank(text, at + 1) if is_array else at  # behind "[" or ","
        _, end = _DECODER.raw_decode(text, begin)
        yield text[begin:end]
        at = _after_blank(text, end)
        if not (is_array and text.startswith(",", at)):
            break
    if is_array and not text.startswith("]", at):
        raise json.JSONDecodeError("Expecting ',' or ']'", text, at)
    at = _after_blank(text, at + is_array)
    if at < len(text):
        raise json.JSONDecodeError("Extra data", text, at)


def _after_blank(text: str, at: int) -> int:
    return _BLANK.match(text, at).end()


def _chunk(
    records: list,
    first: int,
    wanted: Sequence[WantedField],
    max_record_bytes: int | None,
    exact: Callable[[int], object],
) -> RecordChunk:
    rejects = {
        index: reject
        for index, record in enumerate(records)
        if (reject := _refused(record, first + index, max_record_bytes))
    }
    kept = [index for index in range(len(records)) if index not in rejects]
    return build_chunk(
        [records[i] for i in kept],
        first + np.array(kept, np.int64),
        lambda index: _as_bytes(records[kept[index]]),
        wanted,
        list(rejects.values()),
        lambda index: exact(first + kept[index]),
    )


def _refused(record: Any, position: int, max_record_bytes: int | None) -> Reject | None:
    if type(record) is Reject:
        return record
    if type(record) is not dict:
        raw = _as_bytes(record)
        message = f"got {json_name(record)}, wanted an object"
        return Reject(position, len(raw), "not_an_object", message, raw[:RAW_BYTES])
    if max_record_bytes is None:
        return None
    raw = _as_bytes(record)
    return too_large(position, len(raw), raw, max_record_bytes) if len(raw) > max_record_bytes else None


def _as_bytes(value: Any) -> bytes:
    """`value` as compact JSON; "" where it is nested too deeply to be written."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return b""
