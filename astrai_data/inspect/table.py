"""Answers for people: the first rows of a stream of Arrow batches, drawn as a table.

Long lists and texts are shortened, and what is left out is told. Where the columns do not fit side by side, each row
is a record of its own, one line a column:

    ── 1 ─────────────────
    document_id  0
    source       chat.jsonl
"""

from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from astrai_data.inspect.output import is_number, rows_of
from astrai_data.inspect.printable import printable_cell

MAX_LIST_ITEMS = 8
MAX_CELL_CHARS = 300
MIN_TEXT_CHARS, MIN_LIST_CHARS = 8, 24
"""Columns are not drawn narrower than this, or than their names."""


@dataclass(frozen=True)
class Shown:
    """What a table showed: rows, whether the answer has more of them, whether something was shortened."""

    num_rows: int
    has_more: bool
    shortened: bool


@dataclass(frozen=True)
class _Column:
    """One column, drawn: its name, its cells, and how narrow it may become."""

    name: str
    cells: list[Text]
    is_number: bool

    @property
    def width(self) -> int:
        """Characters of its widest line."""
        return max([len(self.name), *(cell.cell_len for cell in self.cells)])

    @property
    def min_width(self) -> int:
        least = MIN_LIST_CHARS if any(cell.no_wrap for cell in self.cells) else MIN_TEXT_CHARS
        return self.width if self.is_number else max(len(self.name), min(self.width, least))


def write_table(reader: pa.RecordBatchReader, console: Console, max_rows: int) -> Shown:
    """The first `max_rows` rows, drawn; the rest of the stream is not read."""
    rows = rows_of(reader)
    shown = list(islice(rows, max_rows))
    values = list(zip(*(row.values() for row in shown), strict=True)) or [()] * len(reader.schema)
    texts = [[cell(value) for value in column] for column in values]
    columns = [
        _Column(printable_cell(field.name), list(map(_ink, [text for text, _ in cells], column)), is_number(field.type))
        for field, cells, column in zip(reader.schema, texts, values, strict=True)
    ]
    if columns:
        _draw(columns, len(shown), console)
    return Shown(len(shown), next(rows, None) is not None, any(cut for cells in texts for _, cut in cells))


def _draw(columns: list[_Column], num_rows: int, console: Console) -> None:
    widths = _widths(columns, console.width)
    if widths is not None or not num_rows:
        console.print(_side_by_side(columns, widths or [column.width for column in columns]))
        return
    for number in range(num_rows):
        _print_record(columns, number, console)


def _widths(columns: list[_Column], room: int) -> list[int] | None:
    """Characters for each column, the widest made narrower where all do not fit; None where they cannot.

    Between two columns stand three spaces: the padding of both, and the place of a line.
    """
    widths, least = [column.width for column in columns], [column.min_width for column in columns]
    surplus = sum(widths) + 3 * (len(columns) - 1) - room
    if surplus > sum(widths) - sum(least):
        return None
    for _ in range(surplus):
        widest = max(range(len(columns)), key=lambda i: (widths[i] > least[i], widths[i]))
        widths[widest] -= 1
    return widths


def _side_by_side(columns: list[_Column], widths: list[int]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column, width in zip(columns, widths, strict=True):
        justify = "right" if column.is_number else "left"
        table.add_column(Text(column.name), justify=justify, no_wrap=column.is_number, width=width)
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*cells)
    return table


def _print_record(columns: list[_Column], number: int, console: Console) -> None:
    title = f"── {number + 1:,} "
    console.print(Text(title + "─" * max(console.width - len(title), 2), style="dim"), soft_wrap=True)
    record = Table.grid(padding=(0, 2, 0, 0))
    record.add_column(max_width=console.width // 2)
    record.add_column()
    for column in columns:
        record.add_row(Text(column.name, overflow="fold"), Text(column.cells[number].plain, overflow="fold"))
    console.print(record)


def cell(value: object) -> tuple[str, bool]:
    """`value` as the text of a table cell, and whether it had to be shortened."""
    if isinstance(value, list):
        shown = ", ".join(cell(item)[0] for item in value[:MAX_LIST_ITEMS])
        more = len(value) - MAX_LIST_ITEMS
        return (f"[{shown}, … {more:,} more]", True) if more > 0 else (f"[{shown}]", False)
    if isinstance(value, dict):
        return _cut("{" + ", ".join(f"{printable_cell(name)}: {cell(item)[0]}" for name, item in value.items()) + "}")
    if isinstance(value, bool) or value is None:
        return ("" if value is None else str(value).lower()), False
    return _cut(printable_cell(str(value)))


def _ink(text: str, value: object) -> Text:
    """Text is folded where a terminal is too narrow for it, lists are cut."""
    folds = not isinstance(value, list | dict)
    return Text(text, overflow="fold" if folds else "ellipsis", no_wrap=not folds)


def _cut(text: str) -> tuple[str, bool]:
    return (text[:MAX_CELL_CHARS] + "…", True) if len(text) > MAX_CELL_CHARS else (text, False)
