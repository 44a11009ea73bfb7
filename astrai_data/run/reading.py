"""Reading all ranges of a task as one stream of record batches of one MiB to three.

Small files make small chunks; they are joined here, so that the builder works on columns whatever the file sizes. A
large file's chunks, of about 2 MiB, pass as they are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from astrai_data.records import FieldSpec, InputFile, InputRange, RangeReader, Reject

LEAST_BATCH_BYTES = 1 << 20


@dataclass(frozen=True)
class TaskBatch:
    """Records of one default domain.

    columns: `input` int32 (ordinal of the range in the task), `position` int64, and the wanted fields.
    rejects: (ordinal of the range, reject).
    """

    columns: pa.RecordBatch
    rejects: list[tuple[int, Reject]]
    domain: str | None


class TaskReader:
    """Iterates over the records of a task's ranges, in order.

    Attributes:
        ranges: what `task.json` tells of each range: size, begin, end, records (see `count_records`), xxh3_128 (None
            until it was read to its end).
    """

    def __init__(
        self,
        ranges: Sequence[tuple[InputFile, InputRange]],
        fields: Sequence[FieldSpec],
        *,
        max_record_bytes: int,
        allow_damaged: bool,
    ) -> None:
        self._spans, self._fields = ranges, fields
        self._limits = {"max_record_bytes": max_record_bytes, "allow_damaged": allow_damaged}
        self.ranges: list[dict] = [
            {"size": file.size, "begin": span.begin, "end": span.end, "records": 0, "xxh3_128": None}
            for file, span in ranges
        ]

    def __iter__(self) -> Iterator[TaskBatch]:
        held: list[TaskBatch] = []
        num_bytes = 0
        for batch in self._chunks():
            if held and (num_bytes >= LEAST_BATCH_BYTES or held[0].domain != batch.domain):
                yield _joined(held)
                held, num_bytes = [], 0
            held.append(batch)
            num_bytes += batch.columns.nbytes + sum(len(reject.raw) for _, reject in batch.rejects)
        if held:
            yield _joined(held)

    def _chunks(self) -> Iterator[TaskBatch]:
        for ordinal, (file, span) in enumerate(self._spans):
            reader = RangeReader(file, span.begin, span.end, self._fields, **self._limits)
            for chunk in reader:
                numbers = pa.array(np.full(chunk.columns.num_rows, ordinal, np.int32))
                columns = chunk.columns.add_column(0, "input", numbers)
                yield TaskBatch(columns, [(ordinal, reject) for reject in chunk.rejects], file.domain)
            self.ranges[ordinal]["xxh3_128"] = reader.content_hash


def count_records(ranges: list[dict], batch: TaskBatch) -> None:
    """Add the records of a batch that is used to the `records` of their ranges."""
    rejected = np.array([ordinal for ordinal, _ in batch.rejects], np.int64)
    counts = np.bincount(batch.columns.column("input").to_numpy(), minlength=len(ranges))
    for ordinal, count in enumerate((counts + np.bincount(rejected, minlength=len(ranges))).tolist()):
        ranges[ordinal]["records"] += count


def split_batch(batch: TaskBatch, num_records: int) -> tuple[TaskBatch, TaskBatch]:
    """The first `num_records` records and the rest (at least one record); rejects go with what they lie before."""
    columns = batch.columns
    border = (columns.column("input")[num_records].as_py(), columns.column("position")[num_records].as_py())
    before = [entry for entry in batch.rejects if (entry[0], entry[1].position) < border]
    after = [entry for entry in batch.rejects if (entry[0], entry[1].position) >= border]
    return (
        TaskBatch(columns.slice(0, num_records), before, batch.domain),
        TaskBatch(columns.slice(num_records), after, batch.domain),
    )


def _joined(batches: list[TaskBatch]) -> TaskBatch:
    if len(batches) == 1:
        return batches[0]
    columns = pa.concat_batches([batch.columns for batch in batches])
    return TaskBatch(columns, [entry for batch in batches for entry in batch.rejects], batches[0].domain)
