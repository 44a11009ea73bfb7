"""The rejected records of a store as a stream that every query opens anew; nothing of it is held in memory."""

import base64
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import islice

import pyarrow as pa

from astrai_data.store import TokenStore

BATCH_RECORDS = 64
"""A batch of records of 64 KiB is 4 MiB."""


class Rejects:
    """What DuckDB scans as the view `rejects`; `noted_failure` as in `Session`."""

    schema = pa.schema(
        [
            ("source", pa.string()),
            ("position", pa.int64()),
            ("reason", pa.string()),
            ("message", pa.string()),
            ("length", pa.int64()),
            ("raw", pa.string()),
        ]
    )

    def __init__(self, store: TokenStore, noted_failure: Callable[[], AbstractContextManager]) -> None:
        self._store, self._noted_failure = store, noted_failure

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A new stream over all records (the Arrow PyCapsule protocol)."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        with self._noted_failure():
            rejects = map(_as_row, self._store.rejects())
            while rows := list(islice(rejects, BATCH_RECORDS)):
                yield pa.RecordBatch.from_pylist(rows, self.schema)


def _as_row(reject: dict) -> dict:
    r"""The view's columns of one record; bytes that are no UTF-8 are shown as `\xNN`."""
    raw = reject.get("raw")
    if raw is None:
        raw = base64.b64decode(reject.get("raw_base64", "")).decode("utf-8", "backslashreplace")
    return {name: reject[name] for name in Rejects.schema.names if name != "raw"} | {"raw": raw}
