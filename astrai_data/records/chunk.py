"""What the readers hand on: wanted fields, typed columns, rejected records."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

RAW_BYTES = 1 << 16  # of a rejected record that are kept

FieldKind = Literal["text", "json", "meta", "domain"]


@dataclasses.dataclass(frozen=True)
class FieldSpec:
    """A field that the pipeline wants of every record; absent and null are null in its column.

    Attributes:
        name: our name of the field.
        kind: "text" (a string, else the record is rejected `wrong_type`), "json" (any value, as JSON bytes),
            "meta" (a string as it is, any other value as JSON text) or "domain" (a string, else null).
    """

    name: str
    kind: FieldKind

    @property
    def column(self) -> str:
        """Name of the column that holds it."""
        return f"{self.kind}:{self.name}"

    @property
    def type(self) -> pa.DataType:
        """Arrow type of the column."""
        return pa.large_binary() if self.kind == "json" else pa.large_string()


@dataclasses.dataclass(frozen=True)
class Reject:
    """A record that cannot be used.

    Attributes:
        position: as in the `position` column of kept records.
        length: bytes of the whole record, without its line feed.
        reason: `invalid_json`, `invalid_utf8`, `not_an_object`, `wrong_type`, `record_too_large` or
            `damaged_file`.
        message: what was found, and where in the record.
        raw: its first 64 KiB at most.
    """

    position: int
    length: int
    reason: str
    message: str
    raw: bytes

    @property
    def raw_truncated(self) -> bool:
        """Whether `raw` is only the head of the record."""
        return len(self.raw) < self.length


@dataclasses.dataclass(frozen=True)
class RecordChunk:
    """About a block of input (2 MiB): int64 column `position` and one column a field.

    Every record is a row or a reject.
    """

    columns: pa.RecordBatch
    rejects: list[Reject]

    @property
    def num_read(self) -> int:
        """Records read: rows and rejects."""
        return self.columns.num_rows + len(self.rejects)


@dataclasses.dataclass(frozen=True)
class WantedField:
    """A `FieldSpec` and the name that this input gives the field."""

    spec: FieldSpec
    own_name: str


def make_chunk(
    positions: np.ndarray,
    arrays: Sequence[pa.Array],
    wanted: Sequence[WantedField],
    rejects: Sequence[Reject],
) -> RecordChunk:
    """A chunk of `positions` (int64 [n]), one array a wanted field, and `rejects` in order of position."""
    names = ["position", *(field.spec.column for field in wanted)]
    columns = pa.RecordBatch.from_arrays([pa.array(positions, pa.int64()), *arrays], names)
    return RecordChunk(columns, sorted(rejects, key=lambda reject: reject.position))


def empty_chunk(wanted: Sequence[WantedField], rejects: Sequence[Reject]) -> RecordChunk:
    """A chunk of rejects only."""
    arrays = [pa.array([], field.spec.type) for field in wanted]
    return make_chunk(np.empty(0, np.int64), arrays, wanted, rejects)
