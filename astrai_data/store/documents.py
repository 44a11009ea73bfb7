"""Documents and rejects of the whole store, from the files of its tasks.

A task knows its inputs by ordinal, so that its bytes do not depend on the plan; here the ordinals become rows
of the store's `inputs` table.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from astrai_data.store.rejects import read_rejects, rejects_path
from astrai_data.store.tables import read_table


def read_documents(root: Path, tasks: pa.Table) -> pa.Table:
    """All documents in the order of their ids, `input` being a row of the `inputs` table.

    Args:
        root: the store.
        tasks: its `tasks` table, or some of its rows.
    """
    pairs = zip(tasks["key"].to_pylist(), tasks["inputs"], strict=True)
    return pa.concat_tables([_task_documents(root, key, inputs) for key, inputs in pairs])


def _task_documents(root: Path, key: str, inputs: pa.ListScalar) -> pa.Table:
    documents = read_table(root / "data" / key / "documents.parquet")
    global_input = pc.take(inputs.values, documents["input"])
    return documents.set_column(0, documents.schema.field("input"), global_input)


def iterate_rejects(root: Path, tasks: pa.Table, names: list[str]) -> Iterator[dict]:
    """All rejected records, each with the name of its input as `source`.

    Args:
        root: the store.
        tasks: its `tasks` table.
        names: of the inputs.
    """
    for task in tasks.to_pylist():
        sizes = {file["path"]: file["size"] for file in task["files"]}
        if rejects_path(task["key"]) in sizes:
            for reject in read_rejects(root, task["key"], sizes[rejects_path(task["key"])]):
                yield {"source": names[task["inputs"][reject["input"]]]} | reject
