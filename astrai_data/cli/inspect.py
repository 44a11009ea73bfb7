"""`astrai inspect`: a store's summary, queries, samples and integrity.

Standard output holds the answer and nothing else; notes go to standard error.
"""

from pathlib import Path
from typing import Annotated

import typer

FORMATS = ("table", "json", "csv", "parquet")
MAX_TABLE_ROWS = 40


def command(
    store: Annotated[str, typer.Argument(metavar="STORE", help="A token store.", show_default=False)],
    sql: Annotated[
        str | None,
        typer.Option(
            "--sql",
            metavar="SQL",
            help="Answer a query over rows, segments, documents, shards, inputs, ledger, rejects; - reads it from "
            "standard input. Functions: decode(ids), encode(text), piece(id). loss_mask holds flags; num_trained "
            "counts labels: flagged, and not the first token of a segment.",
        ),
    ] = None,
    show: Annotated[
        int | None,
        typer.Option("--show", metavar="N", min=1, help="Show N rows, decoded and shortened, with masks."),
    ] = None,
    row: Annotated[
        int | None, typer.Option("--row", metavar="ID", min=0, help="Show the row with this row_id, as in SQL.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Show rows with all their text, however long.")] = False,
    split: Annotated[
        str | None, typer.Option("--split", metavar="NAME", help="Show rows of this split only: train, validation.")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Read every file and check it.")] = False,
    output_format: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="How answers are written: table, json, csv or parquet.")
    ] = "table",
    json: Annotated[bool, typer.Option("--json", help="Short for --format json.")] = False,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write to a file, not to standard output.")
    ] = None,
    allow_files: Annotated[bool, typer.Option("--allow-files", help="Let the query read and write files.")] = False,
) -> None:
    """Look into a token store: a summary, or what --sql, --show, --row or --verify ask for."""
    from astrai_data.inspect import answer

    asked = _asked({"--sql": sql, "--show": show, "--row": row, "--verify": verify or None})
    output_format = "json" if json else output_format
    _check_format(asked, output_format, output)
    if output is not None and Path(output).absolute().is_relative_to(Path(store).absolute()):
        raise typer.BadParameter("the file would lie inside the store", param_hint="--output")
    _check_options(asked, {"--allow-files": allow_files, "--split": split is not None, "--full": full})
    with answer.paper(output) as paper:
        if sql is not None:
            answer.sql(store, sql, output_format, paper, allow_files=allow_files, max_rows=MAX_TABLE_ROWS)
        elif show is not None or row is not None:
            answer.show(store, show, row, output_format, paper, split=split, full=full)
        elif verify:
            if not answer.verify(store, output_format, paper):
                raise typer.Exit(1)
        else:
            answer.overview(store, output_format, paper)


def _asked(options: dict[str, object]) -> str:
    """Which of the options that exclude each other was given."""
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise typer.BadParameter(f"{' and '.join(given)} exclude each other: ask for one at a time")
    return given[0] if given else "the summary"


def _check_format(asked: str, output_format: str, output: str | None) -> None:
    if output_format not in FORMATS:
        raise typer.BadParameter(f"{output_format!r} is none of {', '.join(FORMATS)}", param_hint="--format")
    if asked != "--sql" and output_format in ("csv", "parquet"):
        raise typer.BadParameter(f"{asked} is written as table or json", param_hint="--format")
    if output_format == "parquet" and output is None:
        raise typer.BadParameter("Parquet is no text: add --output FILE", param_hint="--format")


def _check_options(asked: str, given: dict[str, bool]) -> None:
    """Refuse options that what is asked for does not read."""
    belongs = {
        "--allow-files": (("--sql",), "it belongs to --sql"),
        "--split": (("--show",), "it belongs to --show; in SQL: WHERE split = '...'"),
        "--full": (("--show", "--row"), "it belongs to --show and --row"),
    }
    for name, (readers, advice) in belongs.items():
        if given[name] and asked not in readers:
            raise typer.BadParameter(advice, param_hint=name)
