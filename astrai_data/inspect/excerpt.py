"""A row shortened to what fits a screen: whole rows of long documents are hundreds of lines.

Of a row its first documents are shown, of a document its first runs, of a run its first and last lines. Lines are
counted run by run and without the escapes of the printed text: a row takes about so many, not exactly so many.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, chain

from rich.cells import chop_cells

from astrai_data.inspect.numbers import counted
from astrai_data.inspect.runs import MaskRun

MAX_ROW_LINES = 20
"""Of a row, without its title: one row fits a screen of 24 lines."""
MIN_DOCUMENT_LINES = 8
"""Of a document, with its border line; fewer if it has no more."""
MIN_RUN_LINES = 5

Excerpt = list[MaskRun | str]
"""Runs to show, and in between notes on what is left out."""


def excerpts(documents: Sequence[list[MaskRun]], max_lines: int, width: int) -> list[Excerpt]:
    """What to show of the documents of a row; the last ones may be missing.

    Args:
        documents: the runs of each.
        max_lines: of all of them, with a border line for each.
        width: columns of a line.
    """
    found: list[Excerpt] = []
    left = max_lines
    for number, runs in enumerate(documents):
        share = max(MIN_DOCUMENT_LINES, left // (len(documents) - number))
        shown = shorten_document(runs, share - 1, width)
        left -= 1 + _num_lines(shown, width)
        if found and left < 0:
            break
        found.append(shown)
    return found


def shorten_document(runs: list[MaskRun], max_lines: int, width: int) -> Excerpt:
    """The first runs, at least to the first trained one, each shortened; how many are left out."""
    run_lines = max(MIN_RUN_LINES, max_lines // max(1, len(runs)))
    short = [shorten_run(run, run_lines, width) for run in runs]
    lines = list(accumulate(_num_lines(run, width) for run in short))
    trained = next((number for number, run in enumerate(runs) if run.trained), 0)
    num_shown = max(trained + 1, bisect_right(lines, max_lines))
    if rest := runs[num_shown:]:
        tokens = counted(sum(run.num_tokens for run in rest), "token")
        short[num_shown:] = [[f"… {counted(len(rest), 'more run')} with {tokens} left out …"]]
    return list(chain.from_iterable(short))


def shorten_run(run: MaskRun, max_lines: int, width: int) -> Excerpt:
    """The first lines of a run and the last; how many characters between them are left out.

    A special token that would be cut is left out whole.
    """
    begins = _line_begins(run.text, width)
    num_lines = len(begins) - 1
    if num_lines <= max_lines:
        return [run]
    num_last = (max_lines - 1) // 2
    num_first = max_lines - 1 - num_last
    head, tail = _cut(run, 0, begins[num_first]), _cut(run, begins[num_lines - num_last], begins[-1])
    left_out = len(run.text) - len(head.text) - len(tail.text)
    return [head, f"… {counted(left_out, 'character')} left out …", tail]


def _num_lines(shown: Excerpt, width: int) -> int:
    return sum(1 if isinstance(part, str) else len(_line_begins(part.text, width)) - 1 for part in shown)


def _line_begins(text: str, width: int) -> list[int]:
    """Where the lines of `text` begin in it, and where the last one ends."""
    lines = (part for line in text.splitlines(keepends=True) for part in chop_cells(line, width) or [line])
    return [0, *accumulate(map(len, lines))]


def _cut(run: MaskRun, begin: int, end: int) -> MaskRun:
    """The run with the characters from `begin` to `end` only."""
    for a, b in run.special_spans:
        begin = b if a < begin < b else begin
        end = a if a < end < b else end
    spans = tuple((a - begin, b - begin) for a, b in run.special_spans if begin <= a and b <= end)
    return replace(run, text=run.text[begin:end], special_spans=spans)
