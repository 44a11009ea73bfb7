"""The plan of a run: which tasks there are, and the key of each.

A key is the hash of what decides the task's bytes: the configuration's hash, the kind of input, and the fingerprints
of its ranges. There is no path in it: the same text in another folder makes the same store.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import orjson
import pyarrow as pa
import xxhash

from astrai_data.config import PipelineConfig
from astrai_data.errors import PipelineConfigError
from astrai_data.records import InputFile, InputRange, PassedOver, cut_inputs, find_inputs
from astrai_data.run.task import TaskSpec
from astrai_data.store import canonical_json, config_hash, plan_hash
from astrai_data.tokenizer import Tokenizer


@dataclass(frozen=True)
class RunPlan:
    """What is to be done: the input files in order, the tasks over them, and what folders of inputs hold besides."""

    config: PipelineConfig
    config_hash: str
    files: tuple[InputFile, ...]
    tasks: tuple[TaskSpec, ...]
    task_inputs: tuple[tuple[int, ...], ...]
    passed_over: PassedOver

    @cached_property
    def plan_hash(self) -> str:
        """Hash of the configuration and the ordered task keys: what decides the whole store."""
        return plan_hash(self.config_hash, [task.key for task in self.tasks])

    @property
    def num_bytes(self) -> int:
        """Bytes of all input files on disk."""
        return sum(file.size for file in self.files)


def make_plan(config: PipelineConfig, tokenizer: Tokenizer) -> RunPlan:
    """Expand the configured inputs, cut them into tasks, name each task.

    Raises:
        PipelineConfigError: no inputs are configured.
        InputError: a path or pattern that matches nothing, or a file that cannot be read.
    """
    if not config.data.inputs:
        raise PipelineConfigError(
            "there is nothing to read",
            where="data.inputs and the command line",
            got="no input",
            wanted="at least one file, folder, glob or URL",
            hint="astrai preprocess INPUT... -o STORE -c PIPELINE --tokenizer DIR",
        )
    found = find_inputs(config.data.inputs)
    files = list(found.files)
    hashed = config_hash(config.hashed_form(), tokenizer.ids_sha256, tokenizer.template_sha256)
    groups = cut_inputs(files)
    if config.preprocessing.max_items:  # a limit counts over all inputs, in order
        groups = [tuple(span for group in groups for span in group)]
    seen: Counter[str] = Counter()
    tasks = tuple(_task(hashed, files, group, seen) for group in groups)
    inputs = tuple(tuple(span.file for span in group) for group in groups)
    return RunPlan(config, hashed, found.files, tasks, inputs, found.passed_over)


def with_inputs(config: PipelineConfig, inputs: list[str]) -> PipelineConfig:
    """The configuration with the command line's inputs after its own."""
    own = [spec.model_dump(exclude_unset=True) for spec in config.data.inputs]
    return config.with_values({"data.inputs": [*own, *({"path": path} for path in inputs)]})


def inputs_table(plan: RunPlan, num_records: Counter[int]) -> pa.Table:
    """The store's `inputs` table; `num_records` by number of the file."""
    return pa.table(
        {
            "name": pa.array([file.name for file in plan.files], pa.string()),
            "size": pa.array([file.size for file in plan.files], pa.int64()),
            "format": pa.array([file.format for file in plan.files], pa.string()),
            "records": pa.array([num_records[number] for number in range(len(plan.files))], pa.int64()),
        }
    )


def _task(config_hash: str, files: list[InputFile], group: tuple[InputRange, ...], seen: Counter[str]) -> TaskSpec:
    """The task over `group`; `seen` counts equal ranges, so that each gets a key of its own."""
    kinds = [_kind(files[span.file]) for span in group]
    ranges = [[files[span.file].size, span.begin, span.end, span.fingerprint.hex()] for span in group]
    described = {  # as JSON once: a group of 100,000 files is hashed twice
        "config_hash": config_hash,
        "kinds": orjson.Fragment(orjson.dumps(kinds)),
        "ranges": orjson.Fragment(orjson.dumps(ranges)),
    }
    equal = xxhash.xxh3_128_hexdigest(canonical_json(described))
    key = xxhash.xxh3_128_hexdigest(canonical_json(described | {"occurrence": seen[equal]}))
    seen[equal] += 1
    return TaskSpec(key, tuple((files[span.file], span) for span in group))


def _kind(file: InputFile) -> list:
    return [file.format, file.compression, file.domain, sorted(dict(file.fields).items())]
