"""A run that holds the lock: choose the tokenizer's backend, do the tasks, judge the outcome, commit."""

import platform
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from astrai_data import interrupts
from astrai_data.build import mask_rules, sequence_dtype
from astrai_data.config import TokenizerSpec
from astrai_data.errors import RunError
from astrai_data.ledger import Ledger
from astrai_data.run.executor import prepare_workers, run_local
from astrai_data.run.lease import Lease
from astrai_data.run.occupant import find_occupant
from astrai_data.run.outcome import check_outcome
from astrai_data.run.plan import RunPlan, inputs_table
from astrai_data.run.reuse import obstacle
from astrai_data.run.sampling import sample_texts
from astrai_data.run.task import Job, TaskSpec
from astrai_data.run.work import WorkFolder, done_note
from astrai_data.store import Manifest, assemble, delete_temporaries, read_ledger, read_task
from astrai_data.tokenizer import SPECIAL_TOKENS_CHOICES, Tokenizer, choose_backend

# The accelerated backend is checked on this much text, which costs about 2 % of a run at most.
CHECK_CHARS_PER_BYTE = 0.0002
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


class Execution:
    """The work of one run, from the plan to the committed store.

    Args:
        root: the store.
        plan: what to do.
        tokenizer: opened, for what the manifest says of it.
        spec: where the tokenizer lies, and the backend asked for.
        lease: the lock of the store, held.
        tokenizer_files: what its folder held when it was opened, which the store keeps.
        overwrite: do all tasks anew, but those that a run with the same purpose had finished.
        allow_damaged: keep what is readable of truncated or corrupt files.
    """

    def __init__(
        self,
        root: Path,
        plan: RunPlan,
        tokenizer: Tokenizer,
        spec: TokenizerSpec,
        lease: Lease,
        *,
        tokenizer_files: dict[str, bytes],
        overwrite: bool,
        allow_damaged: bool,
    ) -> None:
        self.root, self.plan, self.tokenizer, self.spec, self.lease = root, plan, tokenizer, spec, lease
        self.tokenizer_files = tokenizer_files
        self.overwrite, self.allow_damaged = overwrite, allow_damaged
        self.work = WorkFolder(self.root)
        self.started_s = time.time()

    def do(self, workers: int, report: Callable[[Progress], None]) -> Manifest:
        """Do what is not done yet, then commit.

        Args:
            workers: processes at a time.
            report: told after each task.

        Raises:
            RunError: the outcome fails the limits, workers died, or another run took the store over.
            AstraiError: what a task raised.
        """
        workers = max(1, min(workers, len(self.plan.tasks)))
        prepare_workers(workers)
        delete_temporaries(self.root)
        tokenizer, check = self._choose_backend()
        notes = self._reusable(tokenizer.backend)
        self.work.write_plan(
            {
                "config_hash": self.plan.config_hash,
                "plan_hash": self.plan.plan_hash,
                "config": self.plan.config.hashed_form(),
                "inputs": [file.name for file in self.plan.files],
            }
        )
        self._execute(tokenizer, workers, notes, report)
        ledger = Ledger()
        for task in self.plan.tasks:
            ledger.merge(read_ledger(self.root, task.key))
        ledger.check(self.root)
        check_outcome(self.root, self.plan, ledger)
        self.lease.check()
        interrupts.check()
        manifest = self._commit(self._run_facts(check, workers, notes))
        self.work.clear()
        return manifest

    def _choose_backend(self) -> tuple[Tokenizer, dict]:
        chars = min(max(self.plan.num_bytes * CHECK_CHARS_PER_BYTE, LEAST_CHECK_CHARS), MOST_CHECK_CHARS)
        texts = sample_texts(self.plan, int(chars)) if self.spec.backend != "tokenizers" else []
        wanted = self.plan.config.input
        is_chat = any(section.template for section in wanted.sections or [])  # template text is always parsed
        choices = SPECIAL_TOKENS_CHOICES if is_chat else (wanted.special_tokens,)
        return choose_backend(self.tokenizer, self.spec.backend, texts, special_tokens=choices)

    def _reusable(self, backend: str) -> dict[str, dict]:
        """Task key -> note of the tasks that need not run again."""
        notes = self.work.done_notes() if self.overwrite else find_occupant(self.root).notes
        return {
            task.key: notes[task.key]
            for task in self.plan.tasks
            if task.key in notes and obstacle(self.root, task, notes[task.key], backend) is None
        }

    def _execute(
        self, tokenizer: Tokenizer, workers: int, notes: dict[str, dict], report: Callable[[Progress], None]
    ) -> None:
        """Run every task that has no note yet, and enter its note."""
        pending = [task for task in self.plan.tasks if task.key not in notes]
        num_tasks, num_bytes, num_reused = len(self.plan.tasks), self.plan.num_bytes, len(notes)
        left_bytes = sum(task.num_bytes for task in pending)

        def tell() -> None:
            report(Progress(num_tasks, num_bytes, len(notes), num_bytes - left_bytes, num_reused))

        def finish(spec: TaskSpec) -> None:
            nonlocal left_bytes
            self.lease.check()
            self.work.note_done(spec, tokenizer.backend)
            notes[spec.key] = done_note(spec, tokenizer.backend)
            left_bytes -= spec.num_bytes
            tell()

        tell()
        job = Job(self.root, self.plan.config, tokenizer, self.allow_damaged)
        try:
            run_local(job, pending, workers, finish)
        except BaseException:
            self._forget_halves()
            raise

    def _forget_halves(self) -> None:
        """Remove what workers that were ended had half written: on a full disk it would be in the way."""
        with suppress(RunError, OSError):
            self.lease.check()
            delete_temporaries(self.root)

    def _commit(self, run_facts: dict) -> Manifest:
        config, plan = self.plan.config, self.plan
        hashed = config.hashed_form()
        packing = {name: hashed["preprocessing"][name] for name in ("packing_strategy", "max_packed_len")}
        simple = packing["packing_strategy"] == "simple"
        return assemble(
            self.root,
            task_keys=[task.key for task in plan.tasks],
            task_inputs=[list(numbers) for numbers in plan.task_inputs],
            inputs=inputs_table(plan, self._records_by_file()),
            columns={"sequence": sequence_dtype(config, self.tokenizer.max_id).name},
            config=hashed,
            config_hash=plan.config_hash,
            plan_hash=plan.plan_hash,
            tokenizer_files=self.tokenizer_files,
            ids_sha256=self.tokenizer.ids_sha256,
            template_sha256=self.tokenizer.template_sha256,
            mask_rules=list(mask_rules(config)),
            packing={
                "strategy": packing["packing_strategy"],
                "max_packed_len": None if simple else packing["max_packed_len"],
            },
            has_loss_mask=config.has_loss_mask,
            position_ids_mode=config.output.position_ids_mode,
            run=run_facts,
        )

    def _records_by_file(self) -> Counter[int]:
        """Number of the input file -> records read from it."""
        counts: Counter[int] = Counter()
        for task, numbers in zip(self.plan.tasks, self.plan.task_inputs, strict=True):
            for number, entry in zip(numbers, read_task(self.root, task.key).ranges, strict=True):
                counts[number] += entry["records"]
        return counts

    def _run_facts(self, check: dict, workers: int, notes: dict[str, dict]) -> dict:
        """What run.json tells: everything that may differ between two equal runs."""
        return {
            "name": self.plan.config.name and _legible(self.plan.config.name),
            "started_unix_s": self.started_s,
            "finished_unix_s": time.time(),
            "workers": workers,
            "backend": check["backend"],
            "backend_check": check,
            "tokenizer": _legible(str(Path(self.spec.path).absolute())),
            "inputs": [{"name": f.name, "url": _legible(f.url), "version": f.version} for f in self.plan.files],
            "tasks": {task.key: notes[task.key] for task in self.plan.tasks},
            "versions": {name: version(name) for name in PACKAGES} | {"python": platform.python_version()},
        }


def _legible(name: str) -> str:
    """A path as UTF-8 can hold it; bytes of a name that are no UTF-8 are shown as escapes."""
    return name.encode("utf-8", "backslashreplace").decode()
