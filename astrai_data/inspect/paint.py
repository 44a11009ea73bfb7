"""Runs of text as ink, for a terminal and for a page without colour.

                     in colour           without
    trained          green               ⟦trained⟧
    masked           dim                 masked
    special token    the same, reversed  ⟨<|im_end|>⟩

The text comes from data: it is escaped for the terminal and never read as markup. A text that only spells a special
token's name is painted as the text it is.
"""

from rich.console import Console
from rich.text import Text

from astrai_data.inspect.numbers import counted, place
from astrai_data.inspect.printable import printable, printable_cell, shorten_middle
from astrai_data.inspect.runs import MaskRun
from astrai_data.inspect.sample import SampleRow, Segment

TRAINED, MASKED, BORDER, SPECIAL = "green", "dim", "cyan", "reverse"
BRACKETS, SPECIAL_BRACKETS = ("⟦", "⟧"), ("⟨", "⟩")
MAX_RUN_CHARS = 1200
_ESCAPED_BRACKETS = {ord(bracket): f"\\u{ord(bracket):04x}" for bracket in (*BRACKETS, *SPECIAL_BRACKETS)}


def in_colour(console: Console) -> bool:
    """Whether `console` can tell trained text by colour."""
    return console.is_terminal and not console.no_color


def legend(console: Console, *, borders: bool) -> Text:
    """One line that says what trained and masked text, special tokens and document borders look like."""
    border = [("  ── document border", BORDER)] if borders else []
    if in_colour(console):
        special = ("special token", f"{MASKED} {SPECIAL}")
        return Text.assemble(("trained", TRAINED), "  ", ("masked", MASKED), "  ", special, *border)
    shown = [f"{BRACKETS[0]}trained{BRACKETS[1]}  masked  {SPECIAL_BRACKETS[0]}special token{SPECIAL_BRACKETS[1]}"]
    return Text("".join([*shown, *(text for text, _ in border)]))


def paint_runs(runs: list[MaskRun], colour: bool, most: int | None = MAX_RUN_CHARS) -> Text:
    """The text of `runs`, each at most about `most` characters long; None: all of it."""
    painted = Text()
    for run in runs:
        pieces = _pieces(run) if most is None else shorten_pieces(_pieces(run), most)
        if colour:
            style = TRAINED if run.trained else MASKED
            for text, special in pieces:
                painted.append(printable(text), f"{style} {SPECIAL}" if special else style)
        else:
            inside = "".join(_bracketed(text, SPECIAL_BRACKETS if special else ("", "")) for text, special in pieces)
            painted.append(f"{BRACKETS[0]}{inside}{BRACKETS[1]}" if run.trained else inside)
    return painted


def paint_cell(run: MaskRun, colour: bool, most: int) -> Text:
    """The text of `run` on one line, at most about `most` characters of it, special tokens told from text."""
    painted = Text()
    for text, special in shorten_pieces(_pieces(run), most):
        shown = printable_cell(text)
        if colour:
            painted.append(shown, SPECIAL if special else "")
        else:
            painted.append(_bracketed(shown, SPECIAL_BRACKETS if special else ("", "")))
    return painted


def _bracketed(text: str, brackets: tuple[str, str]) -> str:
    return f"{brackets[0]}{printable(text).translate(_ESCAPED_BRACKETS)}{brackets[1]}"


def _pieces(run: MaskRun) -> list[tuple[str, bool]]:
    """The run's text in pieces, and of each whether it is a special token."""
    pieces, at = [], 0
    for begin, end in run.special_spans:
        pieces += [(run.text[at:begin], False), (run.text[begin:end], True)]
        at = end
    return [piece for piece in (*pieces, (run.text[at:], False)) if piece[0]]


def shorten_pieces(pieces: list[tuple[str, bool]], most: int) -> list[tuple[str, bool]]:
    """`shorten_middle` for a text in pieces: special tokens are kept or left out whole."""
    whole = "".join(text for text, _ in pieces)
    if shorten_middle(whole, most) == whole:
        return pieces
    head, tail = _up_to(pieces, most // 2), _up_to([(text[::-1], mark) for text, mark in pieces[::-1]], most // 2)
    tail = [(text[::-1], mark) for text, mark in tail[::-1]]
    left_out = len(whole) - sum(len(text) for text, _ in head + tail)
    return [*head, (f" … {counted(left_out, 'character')} left out … ", False), *tail]


def _up_to(pieces: list[tuple[str, bool]], most: int) -> list[tuple[str, bool]]:
    """Pieces from the front, `most` characters of them."""
    taken, room = [], most
    for text, special in pieces:
        if room <= 0 or (special and len(text) > room):
            break
        taken.append((text[:room], special))
        room -= len(text)
    return taken


def print_rows(
    rows: list[SampleRow], console: Console, max_packed_len: int | None, most: int | None = MAX_RUN_CHARS
) -> bool:
    """Print sampled rows, one after the other, `most` characters of a run (None: all); whether any was shortened."""
    colour = in_colour(console)
    console.print(legend(console, borders=True))
    for row in rows:
        console.print()
        console.print(Text(_row_title(row, max_packed_len), style="bold" if colour else ""), soft_wrap=True)
        for segment in row.segments:
            console.print(Text(_segment_title(segment), style=BORDER if colour else ""), soft_wrap=True)
            console.print(paint_runs(segment.runs, colour, most), soft_wrap=True)
    runs = (run for row in rows for segment in row.segments for run in segment.runs)
    return most is not None and any(shorten_middle(run.text, most) != run.text for run in runs)


def _row_title(row: SampleRow, max_packed_len: int | None) -> str:
    size = f"{row.num_tokens:,} of {max_packed_len:,} tokens" if max_packed_len else counted(row.num_tokens, "token")
    domain = "" if row.domain is None else f", domain {printable_cell(row.domain)}"
    count = f"{size}, {row.num_trained:,} trained"
    return f"row {row.row_id:,} ({row.split}{domain}): {count}"


def _segment_title(segment: Segment) -> str:
    cuts = [("goes on from an earlier piece", segment.cut_before), ("is cut here and goes on", segment.cut_after)]
    marks = "".join(f", {mark}" for mark, is_so in cuts if is_so)
    origin = place(printable_cell(segment.source), segment.position, segment.format)
    piece = f" piece {segment.piece}" if segment.cut_before or segment.cut_after else ""
    count = f"{counted(segment.num_tokens, 'token')}, {segment.num_trained:,} trained"
    return f"── document {segment.document_id}{piece} · {origin} · {count}{marks} ──"
