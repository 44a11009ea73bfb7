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

from astrai_data.inspect.excerpt import MAX_ROW_LINES, Excerpt, excerpts
from astrai_data.inspect.numbers import counted, place
from astrai_data.inspect.printable import printable, printable_cell, shorten_middle
from astrai_data.inspect.runs import MaskRun
from astrai_data.inspect.sample import SampleRow, Segment

TRAINED, MASKED, BORDER, SPECIAL = "green", "dim", "cyan", "reverse"
BRACKETS, SPECIAL_BRACKETS = ("⟦", "⟧"), ("⟨", "⟩")
PAGE_WIDTH = 80
"""Columns of a line where there is no terminal that has some."""
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


def paint_runs(runs: list[MaskRun], colour: bool) -> Text:
    """The text of `runs`."""
    painted = Text()
    for run in runs:
        pieces = _pieces(run)
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
    rows: list[SampleRow], console: Console, max_packed_len: int | None, max_lines: int | None = MAX_ROW_LINES
) -> bool:
    """Print sampled rows, one after the other, about `max_lines` of each (None: all); whether any was shortened."""
    console.print(legend(console, borders=True))
    shortened = [_print_row(row, console, max_packed_len, max_lines) for row in rows]
    return any(shortened)


def _print_row(row: SampleRow, console: Console, max_packed_len: int | None, max_lines: int | None) -> bool:
    colour = in_colour(console)
    border = BORDER if colour else ""
    console.print()
    console.print(Text(_row_title(row, max_packed_len), style="bold" if colour else ""), soft_wrap=True)
    documents = [segment.runs for segment in row.segments]
    width = console.width if console.is_terminal else PAGE_WIDTH
    shown = documents if max_lines is None else excerpts(documents, max_lines, width)
    for segment, excerpt in zip(row.segments, shown, strict=False):
        console.print(Text(_segment_title(segment), style=border), soft_wrap=True)
        console.print(_paint_excerpt(excerpt, colour), soft_wrap=True)
    if rest := row.segments[len(shown) :]:
        tokens = counted(sum(segment.num_tokens for segment in rest), "token")
        console.print(Text(f"… {counted(len(rest), 'more document')} with {tokens} left out …", style=border))
    return bool(rest) or any(isinstance(part, str) for excerpt in shown for part in excerpt)


def _paint_excerpt(excerpt: Excerpt, colour: bool) -> Text:
    """Runs one behind the other, notes on lines of their own."""
    painted = Text()
    for part in excerpt:
        if isinstance(part, str):
            painted.append("" if painted.plain.endswith("\n") else "\n")
            painted.append(f"{part}\n", BORDER if colour else "")
        else:
            painted.append_text(paint_runs([part], colour))
    return painted


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
