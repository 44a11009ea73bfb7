"""`astrai inspect`: a store's summary, queries, samples and integrity.

Standard output holds the answer and nothing else; notes go to standard error.
"""

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
            metavar="QUERY|-",
            help="Answer a query over rows, segments, documents, shards, inputs, ledger, rejects; - reads it from "
            "standard input. Functions: decode(ids), encode(text), piece(id).",
        ),
    ] = None,
    show: Annotated[
        int | None, typer.Option("--show", metavar="N", min=1, help="Show N rows, decoded, with their masks.")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Read every file and check it.")] = False,
    output_format: Annotated[
        str, typer.Option("--format", metavar="|".join(FORMATS), help="How answers are written.")
    ] = "table",
    json: Annotated[bool, typer.Option("--json", help="Short for --format json.")] = False,
    allow_files: Annotated[bool, typer.Option("--allow-files", help="Let the query read and write files.")] = False,
    split: Annotated[
        str | None, typer.Option("--split", metavar="NAME", help="Show rows of this split only: train, validation.")
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write to a file, not to standard output.")
    ] = None,
) -> None:
    """Look into a token store: a summary, or what --sql, --show or --verify ask for."""
    from astrai_data.inspect import answer

    wanted = [name for name, given in (("--sql", sql), ("--show", show), ("--verify", verify)) if given]
    if len(wanted) > 1:
        raise typer.BadParameter(f"{' and '.join(wanted)} exclude each other: ask for one at a time")
    output_format = "json" if json else output_format
    _check_options(wanted, output_format, allow_files, split, output)
    with answer.paper(output) as paper:
        if sql is not None:
            answer.sql(store, sql, output_format, paper, allow_files=allow_files, max_rows=MAX_TABLE_ROWS)
        elif show is not None:
            answer.show(store, show, output_format, paper, split)
        elif verify:
            if not answer.verify(store, output_format, paper):
                raise typer.Exit(1)
        else:
            answer.overview(store, output_format, paper)


def _check_options(
    wanted: list[str], output_format: str, allow_files: bool, split: str | None, output: str | None
) -> None:
    """Refuse options that what is wanted does not read."""
    asked = wanted[0] if wanted else "the summary"
    if output_format not in FORMATS:
        raise typer.BadParameter(f"{output_format!r} is none of {', '.join(FORMATS)}", param_hint="--format")
    if asked != "--sql" and output_format in ("csv", "parquet"):
        raise typer.BadParameter(f"{asked} is written as table or json", param_hint="--format")
    if asked != "--sql" and allow_files:
        raise typer.BadParameter("it belongs to --sql", param_hint="--allow-files")
    if asked != "--show" and split is not None:
        raise typer.BadParameter("it belongs to --show; in SQL: WHERE split = '...'", param_hint="--split")
    if output_format == "parquet" and output is None:
        raise typer.BadParameter("Parquet is no text: add --output FILE", param_hint="--format")
