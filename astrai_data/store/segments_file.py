"""The segments of one part as an Arrow file (store-format.md, "Segments").

`column` and `member` tell the columns of a record and the members of a group apart; in packed stores they are
0.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa

from astrai_data.errors import StoreError
from astrai_data.pack.segments import Segments
from astrai_data.ragged import Ragged
from astrai_data.store.checksums import block_checksums
from astrai_data.store.columns import FILE, BufferRecord, write_ipc
from astrai_data.store.files import map_file, replacing, unreadable

SEGMENTS = "segments"
_PLAIN = {
    "row": pa.int32(),
    "length": pa.int32(),
    "document": pa.int32(),
    "token_start": pa.int64(),
    "flags": pa.uint8(),
}
_RUNS = {"mask_lengths": pa.int32(), "mask_rules": pa.uint16()}
_SURPLUS = {"column": pa.uint8(), "member": pa.int32()}


def _field(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


SEGMENTS_SCHEMA = pa.schema(
    [_field(name, kind) for name, kind in _PLAIN.items()]
    + [_field(name, pa.list_(_field("item", kind))) for name, kind in _RUNS.items()]
    + [_field(name, kind) for name, kind in _SURPLUS.items()]
)


def write_segments(root: Path, stem: str, segments: Segments) -> BufferRecord:
    """Write `<stem>.segments.arrow` below `root`; the record covers the whole file."""
    path = f"{stem}.segments.arrow"
    with replacing(root / path) as temporary:
        write_ipc(temporary, _to_batch(segments))
    mapped = map_file(root / path)
    return BufferRecord(SEGMENTS, FILE, path, 0, mapped.size, block_checksums(mapped))


def read_segments(root: Path, path: str) -> Segments:
    """Map a part's segments; only the offsets of the mask runs are copied (to int64).

    Raises:
        StoreError: the file is missing, or is no segments file.
    """
    try:
        batch = pa.ipc.open_file(map_file(root / path)).get_batch(0)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(root / path, error) from error
    if not batch.schema.equals(SEGMENTS_SCHEMA):
        raise _damaged(root / path, f"columns {batch.schema.names}")
    plain = {name: batch.column(name).to_numpy() for name in _PLAIN}
    return Segments(**plain, **{name: _to_ragged(batch.column(name)) for name in _RUNS})


def _damaged(path: Path, got: object) -> StoreError:
    wanted = f"an Arrow file with the columns {', '.join(SEGMENTS_SCHEMA.names)}"
    return unreadable(path, got, what="a segments file cannot be read", wanted=wanted)


def _to_batch(segments: Segments) -> pa.RecordBatch:
    plain = [pa.array(getattr(segments, name), kind) for name, kind in _PLAIN.items()]
    runs = [_to_list(getattr(segments, name), SEGMENTS_SCHEMA.field(name).type) for name in _RUNS]
    zeros = [pa.array(np.zeros(len(segments), kind.to_pandas_dtype())) for kind in _SURPLUS.values()]
    return pa.record_batch(plain + runs + zeros, schema=SEGMENTS_SCHEMA)


def _to_list(rows: Ragged, kind: pa.DataType) -> pa.ListArray:
    offsets = (rows.offsets - rows.offsets[0]).astype(np.int32)
    values = np.ascontiguousarray(rows.flat, kind.value_type.to_pandas_dtype())
    return pa.ListArray.from_arrays(offsets, values, type=kind)


def _to_ragged(array: pa.ListArray) -> Ragged:
    return Ragged(array.values.to_numpy(), array.offsets.to_numpy().astype(np.int64))
