"""From the records of tasks to the tables and sums of the store.

Nothing here reads tokens: rows are counted from the offsets of each part, everything else from what the tasks
noted.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa

from astrai_data.ledger import Ledger
from astrai_data.store.checksums import file_record
from astrai_data.store.columns import OFFSETS, map_buffer
from astrai_data.store.files import unreadable
from astrai_data.store.tables import INPUTS_SCHEMA, ROWS_SCHEMA, SHARDS_SCHEMA, TASKS_SCHEMA
from astrai_data.store.task import SPLITS, TaskRecord

COUNTS = ("num_rows", "num_segments", "num_documents", "num_tokens", "num_trained", "num_shards")


def store_tables(
    root: Path, tasks: list[TaskRecord], task_inputs: list[list[int]], inputs: pa.Table
) -> dict[str, pa.Table]:
    """The store's tables by name.

    Args:
        root: the store.
        tasks: in plan order.
        task_inputs: for each task, the row of `inputs` that each of its ranges is of.
        inputs: table with `INPUTS_SCHEMA`.
    """
    return {
        "inputs": inputs.select(INPUTS_SCHEMA.names).cast(INPUTS_SCHEMA),
        "ledger": _ledger(root, tasks).to_table(),
        "rows": _rows_table(root, tasks),
        "shards": pa.Table.from_pylist(list(_shards(tasks)), SHARDS_SCHEMA),
        "tasks": pa.Table.from_pylist(list(_tasks(root, tasks, task_inputs)), TASKS_SCHEMA),
    }


def _ledger(root: Path, tasks: list[TaskRecord]) -> Ledger:
    ledger = Ledger()
    for task in tasks:
        ledger.merge(read_ledger(root, task.key))
    return ledger


def read_ledger(root: Path, key: str) -> Ledger:
    """The ledger of one task.

    Raises:
        StoreError: the file is missing or damaged.
    """
    path = root / "data" / key / "ledger.json"
    try:
        return Ledger.from_rows(orjson.loads(path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise unreadable(path, error, what="the ledger of a task cannot be read") from error


def _rows_table(root: Path, tasks: list[TaskRecord]) -> pa.Table:
    lengths = [
        np.diff(map_buffer(root, buffer, np.dtype(np.int64))).astype(np.int32)
        for task in tasks
        for part in task.parts
        for buffer in part.buffers
        if buffer.role == OFFSETS
    ]
    return pa.table([pa.chunked_array(lengths, pa.int32())], schema=ROWS_SCHEMA)


@dataclass
class _Begins:
    """Where the next shard begins in the whole store."""

    row_begin: int = 0
    token_begin: int = 0
    document_begin: int = 0


def _shards(tasks: list[TaskRecord]) -> Iterator[dict]:
    begins = _Begins()
    for number, task in enumerate(tasks):
        for part in task.parts:
            fields = dataclasses.asdict(part) | dataclasses.asdict(begins)
            yield {name: fields[name] for name in SHARDS_SCHEMA.names if name != "task"} | {"task": number}
            begins.row_begin += part.num_rows
            begins.token_begin += part.num_tokens
        begins.document_begin += task.num_documents


def _tasks(root: Path, tasks: list[TaskRecord], task_inputs: list[list[int]]) -> Iterator[dict]:
    for task, inputs in zip(tasks, task_inputs, strict=True):
        own = file_record(root, f"data/{task.key}/task.json")
        files = [dataclasses.asdict(file) for file in (*task.files, own)]
        yield {"key": task.key, "inputs": inputs, "files": files}


def store_sums(tasks: list[TaskRecord]) -> dict:
    """The manifest's `totals`, `domains` and `splits`: `COUNTS` of all, of each domain, of each split."""
    counts: dict[tuple[str, str | None], Counter] = {}
    for task in tasks:
        for part in task.parts:
            of_part = {name: getattr(part, name) for name in ("num_rows", "num_segments", "num_tokens")}
            counts.setdefault((part.split, part.domain), Counter()).update(of_part, num_shards=1)
        for entry in task.sums:
            of_documents = {name: entry[name] for name in ("num_documents", "num_trained")}
            counts.setdefault((entry["split"], entry["domain"]), Counter()).update(of_documents)
    domains = sorted({domain for _, domain in counts}, key=lambda domain: (domain is not None, domain or ""))
    splits = [split for split in SPLITS if split == "train" or any(split == key[0] for key in counts)]
    return {
        "totals": _total(list(counts.values())),
        "domains": tuple({"domain": d} | _total([c for key, c in counts.items() if key[1] == d]) for d in domains),
        "splits": tuple({"split": s} | _total([c for key, c in counts.items() if key[0] == s]) for s in splits),
    }


def _total(counters: list[Counter]) -> dict[str, int]:
    return {name: sum(counter[name] for counter in counters) for name in COUNTS}
