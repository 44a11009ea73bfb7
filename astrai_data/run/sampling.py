"""A sample of the input: of its text, to check the accelerated tokenizer against the true one, and of its records."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

import orjson
import pyarrow as pa

from astrai_data.build import wanted_fields
from astrai_data.errors import InputError
from astrai_data.records import RangeReader
from astrai_data.run.plan import RunPlan

MOST_RANGES = 16
PIECE_CHARS = 4096


def sample_texts(plan: RunPlan, num_chars: int) -> list[str]:
    """Strings from ranges spread evenly over the whole input, about `num_chars` characters together.

    Fields are read as the pipeline reads them; of a conversation, the strings in it. Files that cannot be read are
    passed over: the run will say what is wrong with them.
    """
    readers = _readers(plan)
    texts: list[str] = []
    for reader in readers:
        texts += _some(reader, num_chars // len(readers))
    return texts


def sample_records(plan: RunPlan) -> Iterator[pa.RecordBatch]:
    """The first records, a block of 2 MiB, of each of these ranges."""
    for reader in _readers(plan):
        with suppress(InputError, OSError):
            yield from (chunk.columns for chunk in islice(reader, 1))


def _readers(plan: RunPlan) -> list[RangeReader]:
    """Of ranges spread evenly over the whole input, and the fields that become tokens."""
    spans = [entry for task in plan.tasks for entry in task.ranges]
    chosen = [spans[i * len(spans) // MOST_RANGES] for i in range(MOST_RANGES)] if len(spans) > MOST_RANGES else spans
    fields = [field for field in wanted_fields(plan.config) if field.kind in ("text", "json")]
    limits = {"max_record_bytes": plan.config.data.max_record_bytes, "allow_damaged": True}
    return [RangeReader(file, span.begin, span.end, fields, **limits) for file, span in chosen]


def _some(reader: RangeReader, num_chars: int) -> list[str]:
    texts, left = [], num_chars
    try:
        for text in _strings(reader):
            texts.append(text[: min(PIECE_CHARS, left)])
            left -= len(texts[-1])
            if left <= 0:
                break
    except (InputError, OSError):
        pass
    return texts


def _strings(reader: RangeReader) -> Iterator[str]:
    for chunk in reader:
        for name in chunk.columns.schema.names[1:]:
            for value in chunk.columns.column(name):
                found = value.as_py()
                if isinstance(found, bytes):
                    yield from _leaves(orjson.loads(found))
                elif found:
                    yield found


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
