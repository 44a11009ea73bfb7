"""One task: ranges of input become the files under `data/<task key>/`.

The way of the data, in order: read, build, window, pack, write. A task is idempotent, and its bytes depend on nothing
but its specification: not on the day, the folder, the machine, the worker or what ran before it.

Of a task over plain text 44 % are tokenizing, 20 % building and 17 % parsing JSON and filling Arrow columns
(`benchmarks/stages.py`).
"""

import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import xxhash

from astrai_data import interrupts
from astrai_data.build import Builder, DocumentBatch
from astrai_data.config import PipelineConfig
from astrai_data.ledger import Ledger
from astrai_data.pack import Plan, Segments, gather, plan
from astrai_data.ragged import Ragged
from astrai_data.records import InputFile, InputRange
from astrai_data.run.reading import TaskBatch, TaskReader, count_records, split_batch
from astrai_data.run.task_documents import TaskDocuments
from astrai_data.run.task_rejects import TaskRejects, refused_record
from astrai_data.run.windows import Window, WindowColumns, Windows
from astrai_data.store import TaskWriter
from astrai_data.tokenizer import Tokenizer


@dataclass(frozen=True)
class Job:
    """What all tasks of a run share; a worker opens it once."""

    root: Path
    config: PipelineConfig
    tokenizer: Tokenizer
    allow_damaged: bool


@dataclass(frozen=True)
class TaskSpec:
    """One task: its key and its ranges, each with the file it lies in."""

    key: str
    ranges: tuple[tuple[InputFile, InputRange], ...]

    @property
    def num_bytes(self) -> int:
        """Bytes on disk that the task reads."""
        return sum(span.end - span.begin for _, span in self.ranges)


class TaskRunner:
    """Runs tasks of one job, one after the other, with the tokenizer opened once."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.config = job.config
        self.builder = Builder(self.config, job.tokenizer)
        self.trained = np.array([rule.trained for rule in self.builder.rules], bool)

    def run(self, spec: TaskSpec) -> None:
        """Do the whole task; returns when its `task.json` is on disk."""
        _Task(self, spec).run()


class _Task:
    """A task under way: its ledger, documents, rejects, windows and parts."""

    def __init__(self, runner: TaskRunner, spec: TaskSpec) -> None:
        self.runner, self.config, self.spec = runner, runner.config, spec
        self.ledger = Ledger()
        self.documents = TaskDocuments(runner.job.root, tuple(runner.config.data.keep_fields))
        self.rejects = TaskRejects(runner.job.root)
        self.windows = Windows(self.config.output.max_tokens_per_shard)
        output = self.config.output
        self.writer = TaskWriter(runner.job.root, spec.key, storage_format=output.storage_format)
        self.num_parts = 0

    def run(self) -> None:
        """Read, build, pack and write all of it."""
        reader = TaskReader(
            self.spec.ranges,
            self.runner.builder.fields,
            max_record_bytes=self.config.data.max_record_bytes,
            allow_damaged=self.runner.job.allow_damaged,
        )
        with closing(self.documents), closing(self.rejects):
            for batch in self._within_limit(reader):
                interrupts.check()
                count_records(reader.ranges, batch)
                for window in self.windows.add(self._build(batch)):
                    self._write(window)
            for window in self.windows.rest():
                self._write(window)
            self.ledger.check(f"task {self.spec.key}")
            self.writer.finish(self.documents.tables(), self.ledger, self.rejects, reader.ranges)

    def _within_limit(self, batches: Iterable[TaskBatch]) -> Iterator[TaskBatch]:
        """All batches; under `max_items` in slices that cannot keep more documents than may still be kept."""
        most = self.config.preprocessing.max_items
        if not most:
            yield from batches
            return
        for batch in batches:
            rest = batch
            while rest.columns.num_rows > (left := most - len(self.documents)):
                first, rest = split_batch(rest, left)
                yield first
                if left == 0:  # what was rejected before the record that is one too many counts, in whatever batch
                    return
            yield rest

    def _build(self, batch: TaskBatch) -> DocumentBatch:
        self.ledger.add("records", batch.domain, "read", len(batch.rejects))
        for reason, count in Counter(reject.reason for _, reject in batch.rejects).items():
            self.ledger.add("records", batch.domain, "rejected", count, reason)
        built = self.runner.builder.build(batch.columns, batch.domain, self.ledger)
        refused = [refused_record(batch.columns, row, refusal) for row, refusal in built.refused.items()]
        for ordinal, reject in sorted([*batch.rejects, *refused], key=lambda entry: (entry[0], entry[1].position)):
            self.rejects.append(ordinal, reject)
        self.documents.append(built.documents)
        return built.documents

    def _write(self, window: Window) -> None:
        """Pack a window and write it as the task's next part; Arrow then gives back what packing took."""
        rows, segments = self._pack(window.release())
        self.writer.write_part(window.split, window.domain, rows, segments)
        self.num_parts += 1
        self._account(window.domain, rows, segments)
        self.documents.count(segments, self.runner.trained)
        del rows, segments
        pa.default_memory_pool().release_unused()

    def _pack(self, columns: WindowColumns) -> tuple[Ragged, Segments]:
        return gather(
            columns.tokens,
            columns.run_lengths,
            columns.run_rules,
            columns.token_start,
            columns.document,
            columns.flags,
            self._plan(columns.tokens.lengths),
        )

    def _plan(self, lengths: np.ndarray) -> Plan:
        preprocessing = self.config.preprocessing
        split = preprocessing.over_long == "split"
        packed = plan(preprocessing.packing_strategy, lengths, preprocessing.max_packed_len, split=split)
        return packed.take_rows(self._row_order(packed.num_rows)) if self.config.run.shuffle_rows else packed

    def _row_order(self, num_rows: int) -> np.ndarray:
        """Rows sorted by xxh3_64(seed, task key, part, row)."""
        salt = struct.pack("<Q32sI", self.config.run.seed, self.spec.key.encode(), self.num_parts)
        digest = xxhash.xxh3_64_intdigest
        drawn = (digest(salt + row.to_bytes(8, "little")) for row in range(num_rows))
        return np.argsort(np.fromiter(drawn, np.uint64, num_rows), kind="stable")

    def _account(self, domain: str | None, rows: Ragged, segments: Segments) -> None:
        """Enter the part's trained and masked tokens, rule by rule, and its slots."""
        rules = self.runner.builder.rules
        lengths = np.bincount(segments.mask_rules.flat, segments.mask_lengths.flat, len(rules)).astype(np.int64)
        for rule, length in zip(rules, lengths.tolist(), strict=True):
            if not rule.trained:
                self.ledger.add("tokens", domain, "masked", length, rule.name)
        flagged, labels = lengths[self.runner.trained].sum(), segments.num_trained(self.runner.trained).sum()
        self.ledger.add("tokens", domain, "trained", labels)
        self.ledger.add("tokens", domain, "masked", flagged - labels, "segment_start")
        if self.config.preprocessing.packing_strategy != "simple":
            slots = len(rows) * self.config.preprocessing.max_packed_len
            self.ledger.add("slots", domain, "slots", slots)
            self.ledger.add("slots", domain, "tokens", len(rows.flat))
            self.ledger.add("slots", domain, "padding", slots - len(rows.flat))
