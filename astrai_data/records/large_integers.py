"""Integers beyond 64 bits: `orjson` reads them as floats, so what it has read is searched for large floats.

Where there is one, the record is read once more by Python's own library, which keeps every digit. Only fields that are
kept or rendered are searched; beside the tokenizer's work that does not show.
"""

import json
from collections.abc import Callable

import orjson


def may_be_rounded(value: object) -> bool:
    """Whether a JSON value holds a float that may have been an integer beyond 64 bits."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        kind = type(value)
        if kind is dict:
            waiting += value.values()
        elif kind is list:
            waiting += value
        elif kind is float and not -(2.0**63) < value < 2.0**64:
            return True
    return False


def loads(raw: bytes) -> object:
    """The JSON value of `raw`, with exact integers. It must be valid JSON."""
    value = orjson.loads(raw)
    return _loads_exactly(raw, int) if may_be_rounded(value) else value


def loads_to_write(raw: bytes) -> object:
    """The same for `orjson.dumps`, which takes no integer beyond 64 bits: it stands as its digits."""
    return _loads_exactly(raw, _integer)


def _loads_exactly(raw: bytes, parse_int: Callable[[str], object]) -> object:
    try:
        return json.loads(raw, parse_int=parse_int)
    except RecursionError:  # orjson reads deeper nesting than Python
        return orjson.loads(raw)


def _integer(digits: str) -> int | orjson.Fragment:
    value = int(digits)
    return value if -(2**63) <= value < 2**64 else orjson.Fragment(digits)
