"""Parquet: row groups to typed columns. A row group belongs to the range in which its first byte lies.

The position of a record is its ordinal in the file. A damaged row group is an error, or with `allow_damaged` one
reject at the first record that could not be read; the next row group is read again.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from astrai_data.ragged import offsets_of
from astrai_data.records.arrow_columns import batch_chunk
from astrai_data.records.chunk import RecordChunk, Reject, WantedField, empty_chunk
from astrai_data.records.opening import BLOCK_BYTES, Source

_MAX_BATCH_ROWS = 1 << 16


class DamagedParquetError(Exception):
    """A Parquet file of which a part cannot be read."""


def row_group_starts(metadata: pq.FileMetaData) -> list[int]:
    """The first byte of each row group: of its first dictionary or data page."""
    return [_first_byte(metadata.row_group(group)) for group in range(metadata.num_row_groups)]


def _first_byte(row_group: pq.RowGroupMetaData) -> int:
    columns = [row_group.column(index) for index in range(row_group.num_columns)]
    # A missing dictionary offset reads as None, or as 0 from some writers.
    return min((c.dictionary_page_offset or c.data_page_offset for c in columns), default=0)


def read_row_groups(
    source: Source,
    begin: int,
    end: int,
    wanted: Sequence[WantedField],
    *,
    max_record_bytes: int,
    allow_damaged: bool,
    chunk_bytes: int,
) -> Iterator[RecordChunk]:
    """The records of the row groups that begin in [`begin`, `end`), in chunks of about `chunk_bytes` of values.

    Args:
        source: the open file.
        begin: first byte of the range.
        end: byte behind the range.
        wanted: fields in column order; a missing column is null.
        max_record_bytes: rows with a larger text or JSON value are rejected.
        allow_damaged: reject what cannot be read instead of raising.
        chunk_bytes: size to aim at.

    Raises `DamagedParquetError`.
    """
    try:
        # By default the whole column of a row group is held, and a row group may be the whole file.
        options = {"buffer_size": BLOCK_BYTES, "pre_buffer": False, "page_checksum_verification": True}
        with pq.ParquetFile(source.as_file(), **options) as parquet:
            starts = row_group_starts(parquet.metadata)
            groups = [group for group, start in enumerate(starts) if begin <= start < end]
            first_rows = _first_rows(parquet.metadata)
            for group in groups:
                batches = _batches(parquet, group, wanted, chunk_bytes)
                yield from _chunks(batches, first_rows[group], wanted, max_record_bytes, allow_damaged)
    except (pa.ArrowException, OSError) as error:
        yield _damaged_chunk(error, 0, wanted, allow_damaged)


def _chunks(
    batches: Iterator[pa.RecordBatch],
    position: int,
    wanted: Sequence[WantedField],
    max_record_bytes: int,
    allow_damaged: bool,
) -> Iterator[RecordChunk]:
    try:
        for batch in batches:
            yield batch_chunk(batch, position, wanted, max_record_bytes)
            position += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        yield _damaged_chunk(error, position, wanted, allow_damaged)


def _batches(
    parquet: pq.ParquetFile, group: int, wanted: Sequence[WantedField], chunk_bytes: int
) -> Iterator[pa.RecordBatch]:
    present = set(parquet.schema_arrow.names)
    columns = sorted({field.own_name for field in wanted} & present)
    if twice := [name for name in columns if parquet.schema_arrow.names.count(name) > 1]:
        raise pa.ArrowInvalid(f"more than one column is named {twice[0]!r}")
    row_group = parquet.metadata.row_group(group)
    chunks = [row_group.column(index) for index in range(row_group.num_columns)]
    size = sum(c.total_uncompressed_size for c in chunks if c.path_in_schema.split(".")[0] in columns)
    rows = row_group.num_rows * chunk_bytes // max(size, 1)
    return parquet.iter_batches(
        batch_size=min(max(rows, 1), _MAX_BATCH_ROWS), row_groups=[group], columns=columns, use_threads=False
    )


def _first_rows(metadata: pq.FileMetaData) -> list[int]:
    counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    return offsets_of(np.array(counts, np.int64)).tolist()


def _damaged_chunk(error: Exception, position: int, wanted: Sequence[WantedField], allow_damaged: bool) -> RecordChunk:
    if not allow_damaged:
        raise DamagedParquetError(str(error)) from error
    return empty_chunk(wanted, [Reject(position, 0, "damaged_file", str(error), b"")])
