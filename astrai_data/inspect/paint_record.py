"""One masked record on paper: what became of it, its text, and the rule of each run."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from astrai_data.inspect.numbers import counted
from astrai_data.inspect.paint import in_colour, legend, paint_cell, paint_runs
from astrai_data.inspect.printable import printable_cell
from astrai_data.inspect.record import MaskedRecord
from astrai_data.inspect.runs import MaskRun

MAX_CELL_CHARS = 60
FIRST_IS_NO_LABEL = "the first token of a segment is nobody's label"


def print_record(record: MaskedRecord, name: str, console: Console) -> None:
    """Print one masked record that the user calls `name`."""
    colour = in_colour(console)
    console.print(Text(_title(record, name), style="bold" if colour else ""), soft_wrap=True)
    if not record.runs:
        return
    console.print(legend(console, borders=False))
    console.print()
    console.print(paint_runs(record.runs, colour), soft_wrap=True)
    console.print()
    console.print(_runs_table(record.runs, colour))


def _title(record: MaskedRecord, name: str) -> str:
    why = ": ".join(filter(None, (record.reason, record.message)))
    fate = f"{record.outcome} ({printable_cell(why)})" if why else record.outcome
    cuts = [("its start", record.cut_before), ("its end", record.cut_after)]
    cut = "".join(f", {end} cut off" for end, is_so in cuts if is_so)
    return f"{printable_cell(name)}: {fate}{cut}{_count(record) if record.runs else ''}"


def _count(record: MaskedRecord) -> str:
    """Tokens, their flags and the labels that come of them; why these differ, where they do."""
    flagged, labels = sum(record.loss_mask), counted(record.num_trained, "label")
    why = f": {FIRST_IS_NO_LABEL}" if flagged != record.num_trained else ""
    return f", {counted(record.num_tokens, 'token')}, {flagged:,} flagged, {labels} trained{why}"


def _runs_table(runs: list[MaskRun], colour: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("rule", "trained", "tokens", "text"):
        table.add_column(title, justify="right" if title == "tokens" else "left")
    for run in runs:
        trained = "yes" if run.trained else "no"
        table.add_row(Text(run.rule), trained, f"{run.num_tokens:,}", paint_cell(run, colour, MAX_CELL_CHARS))
    return table
