"""`astrai preprocess`: text in, a token store out."""

import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from astrai_data.run import Pipeline, Progress
    from astrai_data.store import Manifest

EXECUTORS = ("local",)


def command(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="INPUT...", help="Files, folders, globs or URLs, in this order."),
    ] = None,
    output_dir: Annotated[str, typer.Option("--output-dir", "-o", help="Folder of the store.")] = ...,
    config: Annotated[
        str, typer.Option("--config", "-c", help="Pipeline: a JSON file, or a ready-made one by name.")
    ] = ...,
    tokenizer: Annotated[
        str | None,
        typer.Option("--tokenizer", "--tokenizer-path", help="Folder with tokenizer.json; wins over the pipeline's."),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; by default one a core.")] = None,
    executor: Annotated[str, typer.Option(help="Where tasks run: local.")] = "local",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, list the tasks, write nothing.")
    ] = False,
    update: Annotated[
        bool, typer.Option("--update", help="Add inputs to a finished store; only what is new is read.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace whatever store is there.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Keep at most this many records.")] = None,
    allow_damaged: Annotated[
        bool, typer.Option("--allow-damaged", help="Keep what is readable of truncated files.")
    ] = False,
    batch_size: Annotated[
        int | None, typer.Option(min=1, hidden=True, help="Accepted for old command lines; changes nothing.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say more.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")] = False,
) -> None:
    """Turn text into a packed token store.

    A run that was stopped goes on where it was when the same command is given again; on a finished store it does
    nothing.
    """
    if executor not in EXECUTORS:
        raise typer.BadParameter(f"{executor!r} is not supported yet; wanted: {', '.join(EXECUTORS)}")
    logging.basicConfig(format="%(message)s")
    logging.getLogger("astrai").setLevel(_level(verbose, quiet))
    signal.signal(signal.SIGTERM, _interrupt)
    pipeline = _pipeline(config, inputs or [], output_dir, tokenizer, limit)
    if dry_run:
        _print_plan(pipeline)
        return
    with _progress(quiet) as progress:
        manifest = pipeline.run(
            workers or _cores(),
            update=update,
            overwrite=overwrite,
            allow_damaged=allow_damaged,
            progress=progress,
        )
    if not quiet:
        _print_outcome(pipeline.root, manifest)


def _pipeline(config: str, inputs: list[str], output: str, tokenizer: str | None, limit: int | None) -> "Pipeline":
    from astrai_data.config import PipelineConfig
    from astrai_data.run import Pipeline

    loaded: PipelineConfig = PipelineConfig.from_file(config)
    if limit is not None:
        loaded = loaded.with_values({"preprocessing.max_items": limit})
    return Pipeline(loaded, inputs, output, tokenizer)


def _level(verbose: bool, quiet: bool) -> int:
    return logging.DEBUG if verbose else logging.ERROR if quiet else logging.INFO


def _interrupt(signum: int, frame: object) -> None:
    """SIGTERM stops a run as Ctrl-C does: workers end, the lock goes, the exit code is 130."""
    raise KeyboardInterrupt


def _cores() -> int:
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[["Progress"], None] | None]:
    """A bar on a terminal, plain lines elsewhere."""
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
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        shown = bar.add_task("tokenizing")

        def report(progress: "Progress") -> None:
            tasks = f"{progress.done_tasks}/{progress.num_tasks} tasks"
            bar.update(shown, total=progress.num_bytes, completed=progress.done_bytes, description=tasks)

        yield report


def _print_progress(progress: "Progress") -> None:
    reused = f", {progress.reused_tasks} of them from before" if progress.reused_tasks else ""
    print(
        f"{progress.done_tasks} of {progress.num_tasks} tasks, {_size(progress.done_bytes)} of "
        f"{_size(progress.num_bytes)}{reused}",
        file=sys.stderr,
        flush=True,
    )


def _print_plan(pipeline: "Pipeline") -> None:
    plan = pipeline.plan()
    for task in plan.tasks:
        names = [file.name for file, _ in task.ranges]
        more = f" and {len(names) - 1} more files" if len(names) > 1 else ""
        span = task.ranges[0][1]
        where = more or f" [{span.begin}, {span.end})"
        print(f"{task.key}  {_size(task.num_bytes):>10}  {names[0]}{where}")
    print(
        f"{len(plan.tasks)} tasks, {len(plan.files)} files, {_size(plan.num_bytes)}; nothing was written",
        file=sys.stderr,
    )


def _print_outcome(root: Path, manifest: "Manifest") -> None:
    totals = manifest.totals
    print(
        f"{root}: {totals['num_documents']:,} documents, {totals['num_tokens']:,} tokens "
        f"({totals['num_trained']:,} trained) in {totals['num_rows']:,} rows, {totals['num_shards']:,} shards\n"
        f"look at it:  astrai inspect {root}\n"
        f"prove it:    astrai inspect {root} --verify",
        file=sys.stderr,
    )


def _size(num_bytes: int) -> str:
    size = float(num_bytes)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
