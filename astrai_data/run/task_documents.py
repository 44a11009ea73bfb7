"""The documents of one task: gathered batch by batch, counted when their segments are known."""

import numpy as np
import pyarrow as pa

from astrai_data.build import DocumentBatch
from astrai_data.pack import Segments
from astrai_data.store import DOCUMENTS_SCHEMA


class TaskDocuments:
    """Columns of `documents.parquet`, in the order in which the documents were read."""

    def __init__(self, keep_fields: tuple[str, ...]) -> None:
        meta = [pa.field("meta", pa.struct([(name, pa.large_string()) for name in keep_fields]))]
        self._schema = pa.schema([*DOCUMENTS_SCHEMA, *(meta if keep_fields else [])])
        self._batches: list[dict[str, pa.Array]] = []
        self._length = 0
        self._counts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def __len__(self) -> int:
        return self._length

    def append(self, documents: DocumentBatch) -> None:
        """Take the next documents."""
        domains, splits = pa.array(documents.domains, pa.string()), pa.array(["train", "validation"])
        columns = {
            "input": pa.array(documents.input),
            "position": pa.array(documents.position),
            "text_hash": pa.array(documents.text_hash, pa.binary(16)),
            "text_bytes": pa.array(documents.text_bytes),
            "domain": domains.take(pa.array(documents.domain)),
            "split": splits.take(pa.array(documents.validation.astype(np.int8))),
        }
        self._batches.append(columns if documents.meta is None else columns | {"meta": documents.meta})
        self._length += len(documents)

    def count(self, segments: Segments, trained: np.ndarray) -> None:
        """Note what stands in a part of each document: tokens and trained labels (`trained`: flag of each rule)."""
        self._counts.append((segments.document, segments.length, segments.num_trained(trained)))

    def to_table(self) -> pa.Table:
        """The table `DOCUMENTS_SCHEMA`, with the struct `meta` where fields are kept."""
        counted = {"num_tokens": [pa.array(self._sums(1))], "num_trained": [pa.array(self._sums(2))]}
        columns = [
            pa.chunked_array(counted.get(field.name) or [batch[field.name] for batch in self._batches], field.type)
            for field in self._schema
        ]
        return pa.table(columns, schema=self._schema)

    def _sums(self, column: int) -> np.ndarray:
        """int64 [n]: that column of the noted counts, summed by document."""
        sums = np.zeros(len(self), np.int64)
        for count in self._counts:
            np.add.at(sums, count[0], count[column])
        return sums
