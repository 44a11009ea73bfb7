"""Parsed records to typed Arrow columns; a record that does not fit is rejected alone, not its block.

Arrow's own conversion is the type check: `pa.array(values, large_string)` refuses anything but strings and
nulls, so a clean block costs no Python test a value. Only a refused block is looked at value by value.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from astrai_data.records.chunk import RAW_BYTES, RecordChunk, Reject, WantedField, make_chunk
from astrai_data.records.large_integers import loads_to_write, may_be_rounded

_JSON_NAMES = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
}


def json_name(value: object) -> str:
    """What JSON calls `value`: "a number", "null", ..."""
    return _JSON_NAMES.get(type(value), "null")


def build_chunk(
    records: list[dict],
    positions: np.ndarray,
    raw_of: Callable[[int], bytes],
    wanted: Sequence[WantedField],
    rejects: Sequence[Reject] = (),
    exact_of: Callable[[int], object] | None = None,
) -> RecordChunk:
    """Columns of `wanted` fields from `records`.

    Args:
        records: one object a record.
        positions: int64 [n].
        raw_of: bytes of a record by its index, asked only for rejects and large numbers.
        wanted: fields in column order.
        rejects: of the same block, so far.
        exact_of: a record by its index with exact integers, asked only for large numbers; None: from its bytes.
    """
    records = _exact(records, exact_of or (lambda index: loads_to_write(raw_of(index))), wanted)
    try:
        arrays = _arrays(records, wanted)
        late: list[Reject] = []
    except (pa.ArrowException, TypeError):
        kept, late = _sort_out(records, positions, raw_of, wanted)
        positions = positions[kept]
        arrays = _arrays([records[i] for i in kept], wanted)
    return make_chunk(positions, arrays, wanted, [*rejects, *late])


def _exact(records: list[dict], exact_of: Callable[[int], object], wanted: Sequence[WantedField]) -> list[dict]:
    """The records with exact integers in the fields that become JSON."""
    names = [field.own_name for field in wanted if field.spec.kind in ("json", "meta")]
    doubtful = {i for name in names for i, record in enumerate(records) if may_be_rounded(record.get(name))}
    return [exact_of(i) if i in doubtful else record for i, record in enumerate(records)] if doubtful else records


def _arrays(records: list[dict], wanted: Sequence[WantedField]) -> list[pa.Array]:
    return [
        pa.array(_CONVERTERS[field.spec.kind]([r.get(field.own_name) for r in records]), field.spec.type)
        for field in wanted
    ]


def _as_json(values: list) -> list[bytes | None]:
    dumps = orjson.dumps
    return [None if value is None else dumps(value) for value in values]


def _as_meta(values: list) -> list[str | None]:
    return [value if value is None or type(value) is str else orjson.dumps(value).decode() for value in values]


def _as_domain(values: list) -> list[str | None]:
    return [value if type(value) is str else None for value in values]


_CONVERTERS: dict[str, Callable[[list], list]] = {
    "text": lambda values: values,
    "json": _as_json,
    "meta": _as_meta,
    "domain": _as_domain,
}


def _sort_out(
    records: list[dict],
    positions: np.ndarray,
    raw_of: Callable[[int], bytes],
    wanted: Sequence[WantedField],
) -> tuple[list[int], list[Reject]]:
    """Indices of the records that fit, and rejects for the others."""
    kept, rejects = [], []
    for index, record in enumerate(records):
        found = next(filter(None, (_misfit(record.get(field.own_name), field) for field in wanted)), None)
        if found is None:
            kept.append(index)
            continue
        reason, message = found
        raw = raw_of(index)
        rejects.append(Reject(int(positions[index]), len(raw), reason, message, raw[:RAW_BYTES]))
    return kept, rejects


def _misfit(value: Any, field: WantedField) -> tuple[str, str] | None:
    """(reason, message) if `value` cannot be in the column of `field`."""
    if value is None or type(value) is str or field.spec.kind == "domain":
        return None
    if field.spec.kind == "text":
        return "wrong_type", f"field {field.own_name!r}: got {json_name(value)}, wanted a string"
    try:
        orjson.dumps(value)
    except TypeError as error:
        return "invalid_json", f"field {field.own_name!r}: {error}"
    return None
