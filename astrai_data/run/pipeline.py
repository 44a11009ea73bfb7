"""A run from start to end: plan, look at the output, execute, judge, commit.

A kill at any moment loses only the tasks in flight: the same command goes on and ends with the same bytes.
"""

import logging
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from astrai_data.build import Builder, mask_rules
from astrai_data.config import PipelineConfig, TokenizerSpec
from astrai_data.errors import PipelineConfigError, RunError
from astrai_data.ledger import Ledger
from astrai_data.run.executor import run_local, share_cores
from astrai_data.run.lease import Lease
from astrai_data.run.occupant import Occupant, check_may_go_on, find_occupant, is_finished
from astrai_data.run.outcome import check_outcome
from astrai_data.run.plan import RunPlan, inputs_table, make_plan, with_inputs
from astrai_data.run.reuse import is_reusable
from astrai_data.run.sampling import sample_texts
from astrai_data.run.task import Job, TaskSpec, sequence_dtype
from astrai_data.run.work import WorkFolder
from astrai_data.store import Manifest, assemble, read_ledger, read_task
from astrai_data.tokenizer import Tokenizer, choose_backend

logger = logging.getLogger("astrai")

# The accelerated backend is checked on this much text, which costs about 2 % of a run at most.
CHECK_CHARS_PER_BYTE = 0.0005
LEAST_CHECK_CHARS, MOST_CHECK_CHARS = 1 << 15, 1 << 20
PACKAGES = ("astrai", "fastokens", "numpy", "pyarrow", "tokenizers")


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    num_tasks: int
    num_bytes: int
    done_tasks: int
    done_bytes: int
    reused_tasks: int


class Pipeline:
    """Text to store.

    Args:
        config: what to do.
        inputs: paths, folders, globs or URLs, after those of the configuration.
        output: folder of the store.
        tokenizer: folder with `tokenizer.json`; wins over the configuration's.
    """

    def __init__(
        self,
        config: PipelineConfig,
        inputs: Sequence[str | os.PathLike[str]],
        output: str | os.PathLike[str],
        tokenizer: str | os.PathLike[str] | None = None,
    ) -> None:
        self.config = with_inputs(config, [os.fspath(path) for path in inputs])
        self.root = _local(os.fspath(output))
        self._tokenizer = os.fspath(tokenizer) if tokenizer is not None else None

    def plan(self) -> RunPlan:
        """What the run would do; reads the inputs' edges, writes nothing.

        Raises:
            PipelineConfigError, TokenizerError, InputError: what a run would fail on before its first task.
        """
        return self._prepare()[1]

    def run(
        self,
        workers: int = 1,
        *,
        update: bool = False,
        overwrite: bool = False,
        allow_damaged: bool = False,
        progress: Callable[[Progress], None] | None = None,
    ) -> Manifest:
        """Make the store, or finish it, or find it finished.

        Args:
            workers: processes; the store does not depend on it.
            update: allow more inputs than a finished store was made from; only what is new is read.
            overwrite: replace whatever store is there; the old one stays whole until the new one is.
            allow_damaged: keep what is readable of truncated or corrupt files.
            progress: told after each task.

        Returns:
            The manifest of the finished store.

        Raises:
            PipelineConfigError, TokenizerError, InputError: bad configuration, tokenizer or input.
            RunError: the output is in use, holds something else, or the outcome fails the limits.
        """
        tokenizer, plan = self._prepare()
        occupant = find_occupant(self.root)
        if is_finished(occupant, plan) and not overwrite:
            logger.info("this store is finished already: nothing to do")
            return occupant.manifest
        check_may_go_on(self.root, occupant, plan, update=update, overwrite=overwrite)
        self.root.mkdir(parents=True, exist_ok=True)
        with Lease(self.root, executor="local", config_hash=plan.config_hash, plan_hash=plan.plan_hash):
            work = _Run(self, plan, tokenizer, overwrite=overwrite, allow_damaged=allow_damaged)
            return work.do(max(1, workers), progress or (lambda _: None))

    @property
    def tokenizer_spec(self) -> TokenizerSpec:
        """Where the tokenizer lies and which backend is asked for."""
        spec = self.config.tokenizer
        if self._tokenizer is not None:
            return TokenizerSpec(path=self._tokenizer, backend=spec.backend if spec else "auto")
        if spec is None or not spec.path:
            raise PipelineConfigError(
                "no tokenizer is given",
                where="tokenizer.path and --tokenizer",
                wanted="a folder with tokenizer.json",
                hint="add --tokenizer DIR, or train one: astrai tokenizer train INPUT... -o DIR --vocab-size 16384",
            )
        return spec

    def _prepare(self) -> tuple[Tokenizer, RunPlan]:
        self.config.check_runnable()
        tokenizer = Tokenizer.from_pretrained(self.tokenizer_spec.path)
        for warning in Builder(self.config, tokenizer).warnings:
            logger.warning(warning)
        return tokenizer, make_plan(self.config, tokenizer)


class _Run:
    """A run that holds the lock."""

    def __init__(
        self, pipeline: Pipeline, plan: RunPlan, tokenizer: Tokenizer, *, overwrite: bool, allow_damaged: bool
    ) -> None:
        self.root, self.plan, self.tokenizer = pipeline.root, plan, tokenizer
        self.spec = pipeline.tokenizer_spec
        self.overwrite, self.allow_damaged = overwrite, allow_damaged
        self.work = WorkFolder(self.root)
        self.started_s = time.time()

    def do(self, workers: int, report: Callable[[Progress], None]) -> Manifest:
        share_cores(min(workers, len(self.plan.tasks)))
        backend, check = self._choose_backend()
        reused = self._reusable(find_occupant(self.root), backend)
        self.work.write_plan({"config_hash": self.plan.config_hash, "config": self.plan.config.hashed_form()})
        self._execute(backend, workers, reused, report)
        ledger = Ledger()
        for task in self.plan.tasks:
            ledger.merge(read_ledger(self.root, task.key))
        ledger.check(self.root)
        check_outcome(self.root, self.plan, ledger)
        manifest = self._commit(backend, check, workers)
        self.work.clear()
        return manifest

    def _choose_backend(self) -> tuple[str, dict]:
        chars = min(max(self.plan.num_bytes * CHECK_CHARS_PER_BYTE, LEAST_CHECK_CHARS), MOST_CHECK_CHARS)
        texts = sample_texts(self.plan, int(chars)) if self.spec.backend != "tokenizers" else []
        return choose_backend(self.spec.path, self.spec.backend, texts)

    def _reusable(self, occupant: Occupant, backend: str) -> dict[str, dict]:
        """Task key -> note of the tasks that need not run again."""
        notes = self.work.done_notes() if self.overwrite else occupant.notes
        return {
            task.key: notes[task.key]
            for task in self.plan.tasks
            if task.key in notes and is_reusable(self.root, task, notes[task.key], backend)
        }

    def _execute(self, backend: str, workers: int, reused: dict[str, dict], report: Callable[[Progress], None]) -> None:
        pending = [task for task in self.plan.tasks if task.key not in reused]
        num_bytes, done = sum(task.num_bytes for task in self.plan.tasks), []

        def tell() -> None:
            left = [task for task in pending if task.key not in done]
            done_bytes = num_bytes - sum(task.num_bytes for task in left)
            num_tasks = len(self.plan.tasks)
            report(Progress(num_tasks, num_bytes, num_tasks - len(left), done_bytes, len(reused)))

        def finish(spec: TaskSpec) -> None:
            self.work.note_done(spec, backend)
            done.append(spec.key)
            tell()

        tell()
        job = Job(self.root, self.plan.config, str(self.spec.path), backend, self.allow_damaged)
        run_local(job, pending, workers, finish)

    def _commit(self, backend: str, check: dict, workers: int) -> Manifest:
        config, plan = self.plan.config, self.plan
        preprocessing = config.preprocessing
        simple = preprocessing.packing_strategy == "simple"
        return assemble(
            self.root,
            task_keys=[task.key for task in plan.tasks],
            task_inputs=[list(numbers) for numbers in plan.task_inputs],
            inputs=inputs_table(plan, self._records_by_file()),
            columns={"sequence": sequence_dtype(config, self.tokenizer.max_id).name},
            config=config.hashed_form(),
            config_hash=plan.config_hash,
            plan_hash=plan.plan_hash,
            tokenizer_dir=Path(self.spec.path),
            ids_sha256=self.tokenizer.ids_sha256,
            template_sha256=self.tokenizer.template_sha256,
            mask_rules=list(mask_rules(config)),
            packing={
                "strategy": preprocessing.packing_strategy,
                "max_packed_len": None if simple else preprocessing.max_packed_len,
            },
            has_loss_mask=config.has_loss_mask,
            position_ids_mode=config.output.position_ids_mode,
            run=self._run_facts(backend, check, workers),
        )

    def _records_by_file(self) -> Counter[int]:
        """Number of the input file -> records read from it."""
        counts: Counter[int] = Counter()
        for task, numbers in zip(self.plan.tasks, self.plan.task_inputs, strict=True):
            for number, entry in zip(numbers, read_task(self.root, task.key).ranges, strict=False):
                counts[number] += entry["records"]
        return counts

    def _run_facts(self, backend: str, check: dict, workers: int) -> dict:
        """What run.json tells: everything that may differ between two equal runs."""
        notes = find_occupant(self.root).notes
        return {
            "name": self.plan.config.name,
            "started_unix_s": self.started_s,
            "finished_unix_s": time.time(),
            "workers": workers,
            "backend": backend,
            "backend_check": check,
            "tokenizer": str(self.spec.path),
            "inputs": [{"name": file.name, "url": file.url, "version": file.version} for file in self.plan.files],
            "tasks": {task.key: notes[task.key] for task in self.plan.tasks},
            "versions": {name: version(name) for name in PACKAGES} | {"python": platform.python_version()},
        }


def _local(output: str) -> Path:
    if "://" not in output:
        return Path(output)
    raise RunError(
        "a store cannot be written to a URL yet",
        where="--output-dir",
        got=output,
        wanted="a folder of this machine",
        hint="write it locally and copy the folder: a store holds no absolute path",
    )
