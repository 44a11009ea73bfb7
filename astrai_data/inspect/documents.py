"""The documents of a whole store by id, read task by task and column by column, where a query looks.

`TokenStore.documents` gives the same as one table; this holds a few columns of a few tasks at a time, so that a store
of a hundred million documents can be asked for ten.
"""

from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa

from astrai_data.inspect.columns import by_owner
from astrai_data.store import TokenStore
from astrai_data.store.tables import read_table, read_table_schema

NUM_KEPT_COLUMNS = 32


class StoreDocuments:
    """Columns of the documents tables of all tasks of `store`, in the order of document ids."""

    def __init__(self, store: TokenStore) -> None:
        self._store = store
        self._tasks = store.table("tasks")
        self._read = lru_cache(NUM_KEPT_COLUMNS)(self._read_column)

    @cached_property
    def begins(self) -> np.ndarray:
        """int64 [num_tasks + 1]: the id of each task's first document; a task without parts has none."""
        shards = self._store.table("shards")
        begins = np.full(self._tasks.num_rows + 1, self._store.manifest.totals["num_documents"], np.int64)
        begins[shards["task"].to_numpy()] = shards["document_begin"].to_numpy()
        return np.minimum.accumulate(begins[::-1])[::-1]

    @cached_property
    def meta_fields(self) -> list[str]:
        """Names of the record fields that were kept."""
        if self._tasks.num_rows == 0:
            return []
        schema = read_table_schema(self._path(0))
        return [field.name for field in schema.field("meta").type] if "meta" in schema.names else []

    @cached_property
    def _inputs(self) -> pa.Table:
        return self._store.table("inputs").combine_chunks()

    def column(self, name: str, ids: np.ndarray) -> pa.Array:
        """A stored column of the documents `ids` (int64 [n])."""
        return by_owner(self.begins, ids, lambda task, local: _take(self._read(task, name), local))

    def inputs(self, name: str, ids: np.ndarray) -> pa.Array:
        """A column of the `inputs` table (name, format, ...) for the input of each of the documents `ids`."""
        column = self._inputs[name].combine_chunks()

        def of_task(task: int, local: np.ndarray) -> pa.Array:
            inputs = self._tasks["inputs"][task].values
            return column.take(inputs.take(_take(self._read(task, "input"), local)))

        return by_owner(self.begins, ids, of_task)

    def _read_column(self, task: int, name: str) -> pa.Array:
        return read_table(self._path(task), [name])[name].combine_chunks()

    def _path(self, task: int):
        return self._store.root / "data" / self._tasks["key"][task].as_py() / "documents.parquet"


def _take(column: pa.Array, places: np.ndarray) -> pa.Array:
    first, count = int(places[0]), len(places)
    if (places == np.arange(first, first + count)).all():
        return column.slice(first, count)
    return column.take(pa.array(places))
