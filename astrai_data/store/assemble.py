"""The commit: from finished tasks to a store.

Tables, tokenizer and pipeline are written under `meta/<plan hash>/`, then the manifest is replaced, then
whatever it does not name is deleted. A kill before the replacement leaves the old store, one after it the new
store and perhaps some litter, which the next commit sweeps. A store of the same plan stands in the very folder
that is written: if it differs, it first steps aside.
"""

from pathlib import Path

import orjson
import pyarrow as pa

from astrai_data.mask_rule import MaskRule
from astrai_data.store.aside import same_store, step_aside
from astrai_data.store.digest import table_digest
from astrai_data.store.files import write_bytes
from astrai_data.store.identity import config_hash as hash_config
from astrai_data.store.identity import pipeline_document, sha256_hex
from astrai_data.store.identity import plan_hash as hash_plan
from astrai_data.store.manifest import Manifest, meta_folder
from astrai_data.store.reach import delete_unreferenced, reachable
from astrai_data.store.rollup import store_sums, store_tables
from astrai_data.store.tables import write_table
from astrai_data.store.task import TaskRecord, read_task


def assemble(
    root: Path,
    *,
    task_keys: list[str],
    task_inputs: list[list[int]],
    inputs: pa.Table,
    columns: dict[str, str],
    config: dict,
    config_hash: str,
    plan_hash: str,
    tokenizer_files: dict[str, bytes],
    ids_sha256: str,
    template_sha256: str,
    mask_rules: list[MaskRule],
    packing: dict,
    has_loss_mask: bool,
    run: dict,
    position_ids_mode: str = "doc_reset",
) -> Manifest:
    """Commit finished tasks as the store at `root`, then sweep away what it does not reference.

    `task_keys` are in plan order; `task_inputs` holds, for each task, the row of `inputs` (`INPUTS_SCHEMA`) that each
    of its ranges is of. `config` is the hashed form of the pipeline configuration. `run` takes whatever may differ
    between equal runs (times, versions, absolute addresses) and goes into run.json. `tokenizer_files` become its
    copy of the tokenizer (`read_tokenizer_files`). The other arguments stand in the manifest as they are.

    Raises:
        StoreError: a task is not finished.
        ValueError: a hash that is not the hash of what was given, or parts of another dtype than `columns`.
    """
    root, meta = Path(root), meta_folder(plan_hash)
    _check_hash("config_hash", config_hash, hash_config(config, ids_sha256, template_sha256))
    _check_hash("plan_hash", plan_hash, hash_plan(config_hash, task_keys))
    tasks = [read_task(root, key) for key in task_keys]
    _check_parts(tasks, columns)
    tables = store_tables(root, tasks, task_inputs, inputs)
    pipeline = pipeline_document(config, ids_sha256, template_sha256)
    manifest = Manifest(
        kind="packed",
        columns=dict(columns),
        storage_format=tasks[0].storage_format,
        packing=dict(packing),
        has_loss_mask=has_loss_mask,
        position_ids_mode=position_ids_mode,
        mask_rules=tuple(mask_rules),
        config_hash=config_hash,
        plan_hash=plan_hash,
        ids_sha256=ids_sha256,
        template_sha256=template_sha256,
        tables={name: _describe(f"{meta}/tables/{name}.parquet", table) for name, table in tables.items()},
        tokenizer={
            "path": f"{meta}/tokenizer",
            "files": {name: sha256_hex(data) for name, data in tokenizer_files.items()},
        },
        pipeline={"path": f"{meta}/pipeline.json", "sha256": sha256_hex(pipeline)},
        run={"path": f"{meta}/run.json"},
        **store_sums(tasks),
    )
    known = same_store(root, manifest)
    if known is None:
        step_aside(root, meta)
    copies = {f"{meta}/tokenizer/{name}": data for name, data in tokenizer_files.items()}
    for path, data in (copies | {f"{meta}/pipeline.json": pipeline}).items():
        write_bytes(root / path, data)
    _commit(root, manifest, tables, run, known or {})
    return manifest


def _commit(root: Path, manifest: Manifest, tables: dict[str, pa.Table], run: dict, known: dict[str, str]) -> None:
    table_files = {
        name: _write_table(root / manifest.tables[name]["path"], table, known.get(name))
        for name, table in tables.items()
    }
    run = run | {"table_files": table_files, "store_id": sha256_hex(manifest.to_bytes())}
    write_bytes(root / manifest.run["path"], orjson.dumps(run, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2))
    manifest.write(root)
    delete_unreferenced(root, reachable(manifest, tables["tasks"]))


def _check_hash(name: str, given: str, computed: str) -> None:
    if given != computed:
        raise ValueError(f"{name} is {given}, of the arguments {computed}; see astrai_data.store.identity")


def _check_parts(tasks: list[TaskRecord], columns: dict[str, str]) -> None:
    if not tasks:
        raise ValueError("a store needs at least one task")
    if len({task.storage_format for task in tasks}) > 1:
        raise ValueError("the tasks have different storage formats")
    for task in tasks:
        if task.columns and task.columns != columns:
            raise ValueError(f"task {task.key} holds {task.columns}, wanted {columns}")


def _describe(path: str, table: pa.Table) -> dict:
    return {"path": path, "num_rows": table.num_rows, "sha256": table_digest(table)}


def _write_table(path: Path, table: pa.Table, known: str | None) -> str:
    """SHA-256 of the table's file; one that is there already and is the `known` one is left as it is."""
    if known is None or not path.is_file() or sha256_hex(path.read_bytes()) != known:
        write_table(path, table)
    return sha256_hex(path.read_bytes())
