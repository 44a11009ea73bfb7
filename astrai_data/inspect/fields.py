"""Which fields the records of an input have: said where the one that was asked for is not among them."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import orjson
import xxhash

from astrai_data.records import InputFile
from astrai_data.records.compression import DamagedStreamError, decompress
from astrai_data.records.json_whole import DamagedJsonError, parse_json
from astrai_data.records.opening import BLOCK_BYTES, Source, open_input, read_blocks

MAX_NAMES = 12
SAMPLE_ROWS = 100


def first_records(file: InputFile) -> list[dict]:
    """Records of the first MiB of `file`; of Parquet, its first rows."""
    with open_input(file) as source:
        if file.format == "text":
            return [{"text": ""}]
        records = _parquet_rows(source) if file.format == "parquet" else _json_records(source, file)
        return [record for record in records if isinstance(record, dict)]


def told_fields(records: list[dict]) -> str:
    """`content, stars`, the first names if there are many; `no fields`."""
    names = list(dict.fromkeys(name for record in records for name in record))
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more or "no fields"


def text_field(records: list[dict]) -> str | None:
    """The field that holds most text; None if no field holds any."""
    sizes = Counter()
    for record in records:
        sizes.update({name: len(value) for name, value in record.items() if isinstance(value, str)})
    return sizes.most_common(1)[0][0] if sizes else None


def _parquet_rows(source: Source) -> list[dict]:
    from pyarrow import parquet

    with parquet.ParquetFile(source.as_file()) as file:
        batch = next(file.iter_batches(SAMPLE_ROWS), None)
        return batch.to_pylist() if batch else [dict.fromkeys(file.schema_arrow.names)]


def _json_records(source: Source, file: InputFile) -> Iterator[object]:
    blocks = read_blocks(source, file, 0, file.size, xxhash.xxh3_128())
    plain = decompress(blocks, file.compression, BLOCK_BYTES) if file.compression else blocks
    if file.format == "json":
        with suppress(DamagedJsonError, DamagedStreamError):
            yield from parse_json(b"".join(plain))
    else:
        yield from map(_parsed, _first_block(plain).splitlines())


def _first_block(blocks: Iterator[bytes]) -> bytes:
    try:
        return next(blocks, b"")
    except DamagedStreamError:
        return b""


def _parsed(data: bytes) -> object:
    """The JSON value; None where it is none, as the line that the end of a block cuts."""
    try:
        return orjson.loads(data)
    except ValueError:
        return None
