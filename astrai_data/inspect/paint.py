"""Runs of text as ink: trained in colour and masked dimmed on a terminal, trained in brackets where there is no colour.

The text comes from data: it is escaped for the terminal and never read as markup.
"""

from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from astrai_data.inspect.printable import printable, printable_cell, shorten_middle
from astrai_data.inspect.sample import MaskRun, SampleRow, Segment

if TYPE_CHECKING:  # building records needs tokenizers and templates, which painting does not
    from astrai_data.inspect.record import MaskedRecord

TRAINED, MASKED, BORDER = "green", "dim", "cyan"
BRACKETS = ("⟦", "⟧")
MAX_RUN_CHARS = 1200
_ESCAPED_BRACKETS = {ord(bracket): f"\\u{ord(bracket):04x}" for bracket in BRACKETS}


def in_colour(console: Console) -> bool:
    """Whether `console` can tell trained text by colour."""
    return console.is_terminal and not console.no_color


def legend(console: Console, *, borders: bool) -> Text:
    """One line that says how trained text is told from masked text, and what a document border looks like."""
    border = [("  ── document border", BORDER)] if borders else []
    if in_colour(console):
        return Text.assemble(("trained", TRAINED), "  ", ("masked", MASKED), *border)
    return Text("".join([f"{BRACKETS[0]}trained{BRACKETS[1]}  masked", *(text for text, _ in border)]))


def paint_runs(runs: list[MaskRun], colour: bool, most: int | None = MAX_RUN_CHARS) -> Text:
    """The text of `runs`, each at most about `most` characters long."""
    painted = Text()
    for run in runs:
        text = run.text if most is None else shorten_middle(run.text, most)
        if colour:
            painted.append(printable(text), TRAINED if run.trained else MASKED)
        else:
            inside = printable(text).translate(_ESCAPED_BRACKETS)
            painted.append(f"{BRACKETS[0]}{inside}{BRACKETS[1]}" if run.trained else inside)
    return painted


def print_rows(rows: list[SampleRow], console: Console, max_packed_len: int | None) -> None:
    """Print sampled rows, one after the other."""
    colour = in_colour(console)
    console.print(legend(console, borders=True))
    for row in rows:
        console.print()
        console.print(Text(_row_title(row, max_packed_len), style="bold" if colour else ""), soft_wrap=True)
        for segment in row.segments:
            console.print(Text(_segment_title(segment), style=BORDER if colour else ""), soft_wrap=True)
            console.print(paint_runs(segment.runs, colour), soft_wrap=True)


def _row_title(row: SampleRow, max_packed_len: int | None) -> str:
    capacity = f" of {max_packed_len:,}" if max_packed_len else ""
    domain = "" if row.domain is None else f", domain {printable_cell(row.domain)}"
    count = f"{row.num_tokens:,}{capacity} tokens, {row.num_trained:,} trained"
    return f"row {row.row_id:,} ({row.split}{domain}): {count}"


def _segment_title(segment: Segment) -> str:
    cuts = [("goes on from an earlier piece", segment.cut_before), ("is cut here and goes on", segment.cut_after)]
    marks = "".join(f", {mark}" for mark, is_so in cuts if is_so)
    origin = f"{printable_cell(segment.source)}:{segment.position}"
    piece = f" piece {segment.piece}" if segment.cut_before or segment.cut_after else ""
    count = f"{segment.num_tokens:,} tokens, {segment.num_trained:,} trained"
    return f"── document {segment.document_id}{piece} · {origin} · {count}{marks} ──"


def print_record(record: "MaskedRecord", name: str, console: Console) -> None:
    """Print one masked record: what became of it, its text, and the rule of each run."""
    colour = in_colour(console)
    console.print(Text(_record_title(record, name), style="bold" if colour else ""), soft_wrap=True)
    if not record.runs:
        return
    console.print(legend(console, borders=False))
    console.print()
    console.print(paint_runs(record.runs, colour, most=None), soft_wrap=True)
    console.print()
    console.print(_runs_table(record.runs))


def _record_title(record: "MaskedRecord", name: str) -> str:
    why = ": ".join(filter(None, (record.reason, record.message)))
    fate = f"{record.outcome} ({printable_cell(why)})" if why else record.outcome
    cuts = [("its start", record.cut_before), ("its end", record.cut_after)]
    cut = "".join(f", {end} cut off" for end, is_so in cuts if is_so)
    count = f", {record.num_tokens:,} tokens, {record.num_trained:,} trained" if record.runs else ""
    return f"{printable_cell(name)}: {fate}{count}{cut}"


def _runs_table(runs: list[MaskRun]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("rule", "trained", "tokens", "text"):
        table.add_column(title, justify="right" if title == "tokens" else "left")
    for run in runs:
        text = printable_cell(shorten_middle(run.text, 60))
        table.add_row(Text(run.rule), "yes" if run.trained else "no", f"{run.num_tokens:,}", Text(text))
    return table
