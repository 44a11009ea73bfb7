"""Rows shortened to a screen: bounded, with both ends of a run, and every omission counted."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from astrai_data.inspect.excerpt import MAX_ROW_LINES, excerpts, shorten_document, shorten_run
from astrai_data.inspect.paint import print_rows
from astrai_data.inspect.runs import MaskRun
from astrai_data.inspect.sample import SampleRow, Segment

ANSWER = MaskRun("assistant", True, 700, "an answer in many words " * 90 + "<|end|>", ((2160, 2167),))
CONTEXT = MaskRun("context", False, 300, "<|start|>user\n" + "a question " * 80, ((0, 9),))


def row_of(*documents: list[MaskRun]) -> SampleRow:
    segments = [
        Segment(number, "chats.jsonl", 0, "jsonl", 0, False, False, sum(run.num_tokens for run in runs), 0, runs)
        for number, runs in enumerate(documents)
    ]
    return SampleRow(0, None, "train", sum(segment.num_tokens for segment in segments), 0, segments)


def page_of(row: SampleRow, width: int = 80, max_lines: int | None = MAX_ROW_LINES) -> tuple[str, bool]:
    """The row as a terminal of `width` columns shows it, and whether it was shortened."""
    console = Console(file=io.StringIO(), width=width, markup=False, emoji=False, highlight=False, no_color=True)
    shortened = print_rows([row], console, 8192, max_lines)
    return console.file.getvalue(), shortened


def num_lines(page: str, width: int = 80) -> int:
    return sum(max(1, -(-len(line) // width)) for line in page.splitlines())


CONVERSATION = [CONTEXT, ANSWER] * 4


@pytest.mark.parametrize(
    "row",
    [
        row_of(CONVERSATION),
        row_of(*[CONVERSATION] * 9),
        row_of([MaskRun("text", True, 8000, "one line a number\n" * 4000)]),
        row_of([MaskRun("text", True, 8000, "no line at all " * 4000)]),
        row_of(*[[MaskRun("text", True, 9, "nine")]] * 900),
    ],
    ids=["a conversation", "conversations", "lines", "one line", "many documents"],
)
def test_a_row_fits_a_screen(row):
    page, shortened = page_of(row)
    assert shortened
    assert 12 <= num_lines(page) <= 26
    whole, shortened = page_of(row, max_lines=None)
    assert not shortened
    assert num_lines(whole) > 100
    assert "left out" not in whole


def test_what_is_left_out_is_counted():
    page, _ = page_of(row_of(*[CONVERSATION] * 9))
    assert "… 6 more runs with 3,000 tokens left out …" in page
    assert "… 8 more documents with 32,000 tokens left out …" in page
    kept = re.sub(r"\n… [\d,]+ characters left out …\n|[⟦⟧⟨⟩]", "", page)
    counts = [int(count.replace(",", "")) for count in re.findall("… ([\\d,]+) characters", page)]
    first, second = (len(run.text) - count for run, count in zip((CONTEXT, ANSWER), counts, strict=True))
    assert CONTEXT.text[: first // 3] in kept
    assert first + second < 1200
    assert kept.count("<|end|>") == 1


def test_the_first_trained_run_is_always_shown():
    turns = [MaskRun(name, False, 5, "words\n" * 40) for name in ("bos", "system", "user", "tool")]
    shown = shorten_document([*turns, ANSWER, CONTEXT], 6, 80)
    assert [part.rule for part in shown if isinstance(part, MaskRun) and part.trained] == ["assistant"] * 2
    assert shown[-1] == "… 1 more run with 300 tokens left out …"


def test_what_fits_stays_as_it_is():
    document = [MaskRun("text", True, 3, "two\nlines\n"), MaskRun("eos", True, 1, "<|e|>", ((0, 5),))]
    assert excerpts([document, document], MAX_ROW_LINES, 80) == [document, document]
    assert excerpts([], MAX_ROW_LINES, 80) == []
    assert excerpts([[]], MAX_ROW_LINES, 80) == [[]]


@given(
    st.lists(st.tuples(st.text("ab 今\n", min_size=1, max_size=40), st.booleans()), max_size=12),
    st.integers(3, 9),
    st.integers(4, 30),
)
def test_a_shortened_run_keeps_its_ends_and_special_tokens_whole(pieces, max_lines, width):
    ends = [sum(len(text) for text, _ in pieces[:number]) for number in range(len(pieces) + 1)]
    spans = tuple((ends[i], ends[i + 1]) for i, (_, special) in enumerate(pieces) if special)
    run = MaskRun("text", True, 9, "".join(text for text, _ in pieces), spans)
    shown = shorten_run(run, max_lines, width)
    if len(shown) == 1:
        assert shown == [run]
        return
    head, note, tail = shown
    assert run.text.startswith(head.text)
    assert run.text.endswith(tail.text)
    left_out = len(run.text) - len(head.text) - len(tail.text)
    assert note.startswith(f"… {left_out} character")
    whole = [run.text[a:b] for a, b in spans]
    kept = [part.text[a:b] for part in (head, tail) for a, b in part.special_spans]
    assert kept == whole[: len(head.special_spans)] + whole[len(whole) - len(tail.special_spans) :]
