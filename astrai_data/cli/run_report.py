"""What `astrai preprocess` tells while it works and when it has ended."""

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from astrai_data.ledger import Ledger
    from astrai_data.run import Progress, RunPlan
    from astrai_data.store import Manifest


@contextmanager
def showing_progress(quiet: bool) -> Iterator[Callable[["Progress"], None] | None]:
    """A bar on a terminal, plain lines elsewhere, nothing if `quiet`."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _bar() as report:
            yield report
    else:
        yield _print_progress


@contextmanager
def _bar() -> Iterator[Callable[["Progress"], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar, _logging_above():
        shown = bar.add_task("starting", total=None)

        def report(progress: "Progress") -> None:
            tasks = f"{progress.done_tasks}/{progress.num_tasks} tasks"
            bar.update(shown, total=progress.num_bytes, completed=progress.done_bytes, description=tasks)

        yield report


@contextmanager
def _logging_above() -> Iterator[None]:
    """While a bar is shown, `sys.stderr` is its own and prints above it; what is logged must go there, too."""
    handlers = [handler for handler in logging.getLogger().handlers if type(handler) is logging.StreamHandler]
    before = [handler.stream for handler in handlers]
    for handler in handlers:
        handler.setStream(sys.stderr)
    try:
        yield
    finally:
        for handler, stream in zip(handlers, before, strict=True):
            handler.setStream(stream)


def _print_progress(progress: "Progress") -> None:
    from astrai_data.inspect.numbers import counted, size

    reused = f", {progress.reused_tasks} of them from before" if progress.reused_tasks else ""
    print(
        f"{progress.done_tasks} of {counted(progress.num_tasks, 'task')}, {size(progress.done_bytes)} of "
        f"{size(progress.num_bytes)}{reused}",
        file=sys.stderr,
        flush=True,
    )


def print_plan(plan: "RunPlan") -> None:
    """What a run would do: a line a task on standard output, the sum on standard error."""
    from astrai_data.inspect.numbers import counted, size

    for task in plan.tasks:
        names = [file.name for file, _ in task.ranges]
        span = task.ranges[0][1]
        more = f" and {counted(len(names) - 1, 'more file')}" if len(names) > 1 else f" [{span.begin}, {span.end})"
        print(f"{task.key}  {size(task.num_bytes):>10}  {names[0]}{more}")
    counts = f"{counted(len(plan.tasks), 'task')}, {counted(len(plan.files), 'file')}, {size(plan.num_bytes)}"
    print(f"{counts}; nothing was written", file=sys.stderr)


def print_outcome(root: Path, manifest: "Manifest") -> None:
    """What became of the records, what the store holds, and how to look at it."""
    from astrai_data.inspect.numbers import counted

    totals = {name.removeprefix("num_"): count for name, count in manifest.totals.items()}
    lines = [
        f"{root}: {counted(totals['documents'], 'document')}, {counted(totals['tokens'], 'token')} "
        f"({totals['trained']:,} trained) in {counted(totals['rows'], 'row')}, {counted(totals['shards'], 'shard')}",
        *_record_lines(root, manifest),
        f"look at it:  astrai inspect {root}",
        f"prove it:    astrai inspect {root} --verify",
    ]
    print("\n".join(lines), file=sys.stderr)


def _record_lines(root: Path, manifest: "Manifest") -> list[str]:
    """The fate of records that are no documents, by reason; nothing if there are none."""
    from astrai_data.ledger import Ledger
    from astrai_data.store import TokenStore

    table = TokenStore.open(root, split=None).table("ledger")
    ledger = Ledger.from_rows([list(row.values()) for row in table.to_pylist()])
    read, kept = ledger.total("records", "read"), ledger.total("records", "kept")
    lost = [f"{what} {_reasons(ledger, what)}" for what in ("filtered", "rejected") if ledger.total("records", what)]
    lines = [f"kept {kept:,} of {read:,} records: {'; '.join(lost)}"] if lost else []
    if ledger.total("records", "rejected"):
        lines.append(f'rejected:    astrai inspect {root} --sql "select source, position, message from rejects"')
    return lines


def _reasons(ledger: "Ledger", what: str) -> str:
    counts: Counter[str] = Counter()
    for balance, _, word, reason, count in ledger.to_rows():
        if (balance, word) == ("records", what):
            counts[reason] += count
    return ", ".join(f"{count:,} {reason}" for reason, count in counts.most_common())
