"""Sampled rows: the same ones every time, decoded whole, borders and masks visible with and without colour."""

import io

import numpy as np
import pytest
from rich.console import Console

from astrai_data.errors import StoreError
from astrai_data.inspect import query, sample
from astrai_data.inspect.paint import print_rows
from astrai_data.inspect.sample import MaskRun, SampleRow, Segment
from astrai_data.store import TokenStore
from tests.data.small_stores import CAPACITY, write_small_store


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    root = tmp_path_factory.mktemp("sample") / "store"
    documents = write_small_store(root)
    return TokenStore.open(root, split=None), documents


def printed(rows, **kind) -> str:
    console = Console(file=io.StringIO(), width=200, markup=False, emoji=False, highlight=False, **kind)
    print_rows(rows, console, CAPACITY)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("num_rows", "split", "row_ids"),
    [
        (1, None, [4]),
        (3, None, [1, 4, 6]),
        (8, None, list(range(8))),
        (99, None, list(range(8))),
        (2, "validation", [2, 7]),
        (3, "train", [1, 4, 6]),
    ],
)
def test_rows_are_spread_over_the_split(small, num_rows, split, row_ids):
    assert [row.row_id for row in sample(small[0], num_rows, split)] == row_ids
    assert sample(small[0], num_rows, split) == sample(small[0], num_rows, split)


def test_an_unknown_split_is_named(small):
    with pytest.raises(StoreError, match="'test'"):
        sample(small[0], 1, "test")


def test_segments_say_what_sql_says(small):
    store, documents = small
    rows = sample(store, store.num_rows)
    segments = [segment for row in rows for segment in row.segments]
    columns = "document_id, piece, num_tokens, num_trained, source, position"
    wanted = query(
        store,
        f"SELECT {columns} FROM segments JOIN (SELECT document_id, source, position FROM documents) "
        "USING (document_id) ORDER BY segment_id",
    ).to_pylist()
    assert [{name: getattr(s, name) for name in columns.split(", ")} for s in segments] == wanted
    for number, document in enumerate(documents):
        own = sorted((s for s in segments if s.document_id == number), key=lambda s: s.piece)
        assert "".join(run.text for segment in own for run in segment.runs) == document.text
        assert [s.cut_before for s in own] == [False] + [True] * (len(own) - 1)
        assert [s.cut_after for s in own] == [True] * (len(own) - 1) + [False]
        flags = [[run.trained] * run.num_tokens for segment in own for run in segment.runs]
        assert np.concatenate(flags).astype(int).tolist() == document.mask


def test_without_colour_brackets_tell_trained_from_masked(small):
    text = printed(sample(small[0], 8))
    assert text.startswith("⟦trained⟧  masked")
    assert "In 1987 there⟦ were 365 days.⟧" in text
    assert "── document 3 · text.jsonl:200 · 7 tokens, 4 trained ──" in text
    assert "row 1 (train, domain web): 45 of 64 tokens, 38 trained" in text
    assert (
        "document 4 piece 1 · more.jsonl:0 · 64 tokens, 63 trained, goes on from an earlier piece, is cut here" in text
    )
    assert "Ruh 😀 今日は" in text.replace("⟦", "").replace("⟧", "")


@pytest.mark.parametrize("kind", [{}, {"force_terminal": True}, {"force_terminal": True, "no_color": True}])
def test_data_never_reaches_the_terminal_as_escape_or_markup(small, kind):
    text = printed(sample(small[0], 8), **kind)
    assert "\x1b[31mno" not in text
    assert "\\e[31mno escape\\x07\\u202e" in text
    assert "no markup[/red]" in text


def test_colour_and_no_colour(small):
    rows = sample(small[0], 8)
    coloured, plain = printed(rows, force_terminal=True), printed(rows, force_terminal=True, no_color=True)
    assert "\x1b[2mIn 1987 there\x1b[0m\x1b[32m were 365 days.\x1b[0m" in coloured
    assert "⟦" not in coloured
    assert "\x1b" not in plain
    assert "In 1987 there⟦ were 365 days.⟧" in plain


def test_brackets_in_the_data_cannot_be_mistaken():
    run = MaskRun("text", False, 3, "a⟦b⟧")
    row = SampleRow(0, None, "train", 3, 0, [Segment(0, "x", 0, 0, False, False, 3, 0, [run])])
    assert "a\\u27e6b\\u27e7" in printed([row])
    assert "a⟦b⟧" in printed([row], force_terminal=True)


def test_long_runs_keep_their_ends():
    run = MaskRun("text", True, 3, "begin" + "x" * 5000 + "end")
    row = SampleRow(0, None, "train", 3, 2, [Segment(0, "x", 0, 0, False, False, 3, 2, [run])])
    text = printed([row])
    assert "⟦begin" in text
    assert "xend⟧" in text
    assert "characters left out" in text
    assert len(text) < 2000
