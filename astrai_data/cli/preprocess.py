"""`astrai preprocess`: text in, a token store out."""

import logging
import os
from typing import TYPE_CHECKING, Annotated

import typer

from astrai_data.cli.run_report import print_outcome, print_plan, showing_progress

if TYPE_CHECKING:
    from astrai_data.run import Pipeline

EXECUTORS = ("local",)


def command(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="INPUT...", help="Files, folders, globs or URLs, in this order."),
    ] = None,
    output_dir: Annotated[str, typer.Option("--output-dir", "-o", metavar="STORE", help="Folder of the store.")] = ...,
    config: Annotated[
        str,
        typer.Option("--config", "-c", metavar="PIPELINE", help="Pipeline: a JSON file, or a ready-made one by name."),
    ] = ...,
    tokenizer: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder with tokenizer.json, or a training run's; wins over the pipeline's."),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, metavar="N", help="Processes; by default one a core.")] = None,
    executor: Annotated[str, typer.Option(metavar="NAME", help="Where tasks run: local.")] = "local",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, list the tasks, write nothing.")
    ] = False,
    update: Annotated[
        bool, typer.Option("--update", help="Add inputs to a finished store; only what is new is read.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace whatever store is there.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Keep at most this many records.")] = None,
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

    A run that was stopped goes on when the same command is given again; on a finished store it does nothing.
    """
    if executor not in EXECUTORS:
        raise typer.BadParameter(f"{executor!r} is not supported yet; wanted: {', '.join(EXECUTORS)}")
    logging.basicConfig(format="%(message)s")
    logging.getLogger("astrai").setLevel(_level(verbose, quiet))
    pipeline = _pipeline(config, inputs or [], output_dir, tokenizer, limit)
    if dry_run:
        print_plan(pipeline.plan(update=update, overwrite=overwrite))
        return
    with showing_progress(quiet) as progress:
        manifest = pipeline.run(
            workers or _cores(),
            update=update,
            overwrite=overwrite,
            allow_damaged=allow_damaged,
            progress=progress,
        )
    if not quiet:
        print_outcome(pipeline.root, manifest)


def _pipeline(config: str, inputs: list[str], output: str, tokenizer: str | None, limit: int | None) -> "Pipeline":
    from astrai_data.config import PipelineConfig
    from astrai_data.run import Pipeline

    loaded = PipelineConfig.from_file(config)
    if not loaded.is_given("version"):
        message = 'the pipeline names no version and gets the defaults of version 1; new ones should say "version": 2'
        logging.getLogger("astrai").warning(message)
    if limit is not None:
        loaded = loaded.with_values({"preprocessing.max_items": limit})
    return Pipeline(loaded, inputs, output, tokenizer)


def _level(verbose: bool, quiet: bool) -> int:
    return logging.DEBUG if verbose else logging.ERROR if quiet else logging.INFO


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
