"""Where the time of one task goes, room by room: the figure of docs/performance.md.

    python benchmarks/stages.py            # 96 MB, one task, one process, one tokenizer thread

A task is run twice to warm up and then under the interpreter's deterministic profiler. Time in a library counts for
the room of ours that called it. The profiler makes Python calls dearer than they are, so what is many small calls
(building, packing plans) looks larger here than without it, by some percent.
"""

import cProfile
import os
import pstats
import shutil
import tempfile
from collections import defaultdict
from functools import cache
from pathlib import Path

os.environ |= {"RAYON_NUM_THREADS": "1", "FASTOKENS_BPE_THREADS": "1"}

from corpus import train_tokenizer, write_jsonl

from astrai_data import Pipeline, PipelineConfig, Tokenizer
from astrai_data.run.task import Job, TaskRunner

ROOMS = {
    "tokenizer": "tokenize",
    "records/json_lines": "parse JSON",
    "records/columns": "columns: strings to Arrow",
    "records": "read, hash, frame lines",
    "build": "build: strings from Arrow, EOS, hashes, ledger",
    "run/windows": "wait in windows",
    "pack": "pack: plan and gather",
    "store": "write files",
    "run": "documents, rejects, bookkeeping",
}
WIDTH = 40


def room_of(path: str) -> str | None:
    """The label of the room that a source file belongs to; None if it is not ours."""
    _, ours, inside = path.replace(os.sep, "/").rpartition("astrai_data/")
    if not ours:
        return None
    return next((label for prefix, label in ROOMS.items() if inside.startswith(prefix)), ROOMS["build"])


def seconds_by_room(stats: dict) -> dict[str, float]:
    """Seconds of each room, from what `pstats` knows of functions and their callers."""

    @cache
    def shares(function: tuple, depth: int = 8) -> tuple[tuple[str, float], ...]:
        """How the time of a function spreads over rooms, by who called it, up to `depth` calls up; sums to 1 or 0."""
        if room := room_of(function[0]):
            return ((room, 1.0),)
        spread: dict[str, float] = defaultdict(float)
        callers = stats[function][4] if depth else {}
        for caller, (_, _, own, _) in callers.items():
            for label, share in shares(caller, depth - 1):
                spread[label] += share * own
        total = sum(spread.values())
        return tuple((label, value / total) for label, value in spread.items()) if total else ()

    seconds: dict[str, float] = defaultdict(float)
    for function, (_, _, own, _, _) in stats.items():
        for label, share in shares(function):
            seconds[label] += own * share
    return seconds


def profile(folder: Path) -> dict[str, float]:
    """Seconds of each room for one task over 96 MB."""
    tokenizer = train_tokenizer(folder / "tokenizer")
    write_jsonl(folder / "text.jsonl", 96 * 10**6, "s")
    config = PipelineConfig.from_dict({"version": 2, "input": {"sections": [{"field": "text", "action": "train"}]}})
    root = folder / "store"
    pipeline = Pipeline(config, [folder / "text.jsonl"], root, tokenizer)
    [task] = pipeline.plan().tasks
    runner = TaskRunner(Job(root, pipeline.config, Tokenizer.from_pretrained(tokenizer, backend="fastokens"), False))
    profiler = cProfile.Profile()
    for runs_before_last in (2, 1, 0):
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        if not runs_before_last:
            profiler.enable()
        runner.run(task)
        profiler.disable()
    return seconds_by_room(pstats.Stats(profiler).stats)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="astrai-bench-") as folder:
        seconds = profile(Path(folder))
    total, longest = sum(seconds.values()), max(seconds.values())
    for label, value in sorted(seconds.items(), key=lambda item: -item[1]):
        print(f"{label:<48}{value / total:5.0%}  {'#' * round(WIDTH * value / longest)}")
    print(f"{'one task, 96 MB, under the profiler':<48}{total:5.2f} s")


if __name__ == "__main__":
    main()
