"""Proving a store: every file that the manifest reaches is read and held against what was noted of it.

The chain: `run.json` names the SHA-256 of the manifest and of every table file; the manifest names logical
digests of the tables and the SHA-256 of tokenizer and pipeline; the `tasks` table names the checksum of every
file of a task. So one flipped byte anywhere but in `run.json`, which is a witness and not itself checked, is
found and its file named. What a damaged file would have told is then left unchecked rather than guessed at.
"""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pyarrow as pa

from astrai_data.errors import AstraiError, StoreError
from astrai_data.store.digest import table_digest
from astrai_data.store.finding import Finding
from astrai_data.store.identity import plan_hash
from astrai_data.store.locate import local_root, read_manifest
from astrai_data.store.manifest import FILE_NAME, Manifest
from astrai_data.store.reach import is_under_way, reachable, unreferenced
from astrai_data.store.tables import read_table
from astrai_data.store.verify_contents import Contents
from astrai_data.store.verify_files import check_files, check_sha256


def verify_store(root: str | Path) -> list[Finding]:
    """Read the whole store at `root`, all splits.

    Returns:
        What is wrong with it; nothing if it is whole.

    Raises:
        StoreError: there is no store.
    """
    root = local_root(root)
    try:
        manifest, store_id = read_manifest(root)
    except StoreError as error:
        if not (root / FILE_NAME).is_file():
            raise
        return [Finding(FILE_NAME, f"{error.what}: {error.got}")]
    return list(_Verification(root, manifest).check(store_id))


class _Verification:
    def __init__(self, root: Path, manifest: Manifest) -> None:
        self.root, self.manifest = root, manifest
        self.tables: dict[str, pa.Table] = {}  # those that are whole
        self.damaged: set[str] = set()

    def check(self, store_id: str) -> Iterator[Finding]:
        run = self._read_run()
        if run is None:
            yield Finding(self.manifest.run["path"], "cannot be read")
            yield Finding(FILE_NAME, "cannot be proved without run.json, which holds its SHA-256")
        elif run.get("store_id") != store_id:
            yield Finding(FILE_NAME, f"its SHA-256 is {store_id}, run.json says {run.get('store_id')}")
            return  # it cannot be followed further
        checks = (self._check_named(), self._check_tables(run or {}), self._check_tasks(), self._check_contents())
        for findings in checks:
            for finding in findings:
                self.damaged.add(finding.path)
                yield finding

    def _read_run(self) -> dict | None:
        try:
            run = orjson.loads((self.root / self.manifest.run["path"]).read_bytes())
        except (OSError, ValueError):
            return None
        return run if isinstance(run, dict) else None

    def _check_named(self) -> Iterator[Finding]:
        """Pipeline and tokenizer."""
        pipeline, tokenizer = self.manifest.pipeline, self.manifest.tokenizer
        yield from check_sha256(self.root, pipeline["path"], pipeline["sha256"])
        if pipeline["sha256"] != self.manifest.config_hash:
            yield Finding(FILE_NAME, "config_hash is not the hash of the pipeline")
        for name, digest in tokenizer["files"].items():
            yield from check_sha256(self.root, f"{tokenizer['path']}/{name}", digest)

    def _check_tables(self, run: dict) -> Iterator[Finding]:
        witness = run.get("table_files")
        for name, entry in self.manifest.tables.items():
            if isinstance(witness, dict) and name in witness:
                findings = list(check_sha256(self.root, entry["path"], witness[name]))
                yield from findings
                if findings:
                    continue
            yield from self._check_table(name, entry)

    def _check_table(self, name: str, entry: dict) -> Iterator[Finding]:
        try:
            table = read_table(self.root / entry["path"])
        except StoreError as error:
            yield Finding(entry["path"], f"{error.what}: {error.got}")
            return
        if table.num_rows != entry["num_rows"] or table_digest(table) != entry["sha256"]:
            yield Finding(entry["path"], "its content is not what the manifest says")
        else:
            self.tables[name] = table

    def _check_tasks(self) -> Iterator[Finding]:
        """Every file of every task, the plan, and files that nobody names, unless a run may still come to them."""
        if "tasks" not in self.tables:
            return
        tasks = self.tables["tasks"]
        if plan_hash(self.manifest.config_hash, tasks["key"].to_pylist()) != self.manifest.plan_hash:
            yield Finding(FILE_NAME, "plan_hash is not the hash of config_hash and the task keys")
        yield from check_files(self.root, tasks, self.tables.get("shards"))
        if not is_under_way(self.root):
            for path in unreferenced(self.root, reachable(self.manifest, tasks)):
                yield Finding(path, "nothing in the store refers to this file")

    def _check_contents(self) -> Iterator[Finding]:
        if set(self.tables) == set(self.manifest.tables):
            contents = Contents(self.root, self.manifest, self.tables, self.damaged, self._max_id())
            yield from contents.check()

    def _max_id(self) -> int | None:
        """The largest id of the store's tokenizer; None if the tokenizer is damaged."""
        from astrai_data.tokenizer import Tokenizer

        path = self.manifest.tokenizer["path"]
        if any(damaged.startswith(f"{path}/") for damaged in self.damaged):
            return None
        try:
            return Tokenizer.from_pretrained(self.root / path).max_id
        except AstraiError:
            return None
