"""Sampled rows: the same ones every time, decoded whole, borders and masks visible with and without colour."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from astrai_data.errors import StoreError
from astrai_data.inspect import one_row, query, sample
from astrai_data.inspect.excerpt import MAX_ROW_LINES
from astrai_data.inspect.numbers import counted, place, share, size
from astrai_data.inspect.paint import print_rows, shorten_pieces
from astrai_data.inspect.runs import MaskRun, mask_runs
from astrai_data.inspect.sample import SampleRow, Segment
from astrai_data.ragged import Ragged
from astrai_data.store import TokenStore
from tests.data.small_stores import CAPACITY, write_small_store


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    root = tmp_path_factory.mktemp("sample") / "store"
    documents = write_small_store(root)
    return TokenStore.open(root, split=None), documents


def row_of(run: MaskRun) -> SampleRow:
    segment = Segment(0, "x", 0, "jsonl", 0, False, False, run.num_tokens, 0, [run])
    return SampleRow(0, None, "train", run.num_tokens, 0, [segment])


def printed(rows, max_lines=MAX_ROW_LINES, **kind) -> str:
    console = Console(file=io.StringIO(), width=200, markup=False, emoji=False, highlight=False, **kind)
    print_rows(rows, console, CAPACITY, max_lines)
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
    assert "── document 3 · text.jsonl at byte 200 · 7 tokens, 4 trained ──" in text
    assert "row 1 (train, domain web): 45 of 64 tokens, 38 trained" in text
    assert (
        "document 4 piece 1 · more.jsonl at byte 0 · 64 tokens, 63 trained, goes on from an earlier piece, is cut here"
        in text
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
    row = row_of(MaskRun("text", False, 3, "a⟦b⟧ ⟨c⟩"))
    assert "a\\u27e6b\\u27e7 \\u27e8c\\u27e9" in printed([row])
    assert "a⟦b⟧ ⟨c⟩" in printed([row], force_terminal=True)


def test_long_runs_keep_their_ends():
    row = row_of(MaskRun("text", True, 3, "begin" + "x" * 5000 + "end"))
    text = printed([row])
    assert "⟦begin" in text
    assert "xend⟧" in text
    assert "characters left out" in text
    assert len(text) < 2000
    assert "x" * 5000 in printed([row], max_lines=None)


SPECIALS = MaskRun("text", True, 4, "a<|e|>b<|e|>", ((7, 12),))


def test_special_tokens_are_told_from_their_names():
    assert "⟦a<|e|>b⟨<|e|>⟩⟧" in printed([row_of(SPECIALS)])
    assert "\x1b[32ma<|e|>b\x1b[0m\x1b[7;32m<|e|>\x1b[0m" in printed([row_of(SPECIALS)], force_terminal=True)


@given(st.lists(st.tuples(st.text("ab<", min_size=1, max_size=30), st.booleans()), max_size=12), st.integers(2, 60))
def test_shortened_pieces_keep_both_ends_and_special_tokens_whole(pieces, most):
    whole, short = "".join(text for text, _ in pieces), shorten_pieces(pieces, most)
    assert short == pieces or len("".join(text for text, _ in short)) <= most + 40
    assert {text for text, special in short if special} <= {text for text, special in pieces if special}
    if short != pieces:
        note = next(i for i, (text, _) in enumerate(short) if "left out" in text)
        head, tail = ("".join(text for text, _ in part) for part in (short[:note], short[note + 1 :]))
        assert (whole[: len(head)], whole[len(whole) - len(tail) :]) == (head, tail)
        assert f"{len(whole) - len(head) - len(tail):,} character" in short[note][0]


@pytest.mark.parametrize(
    ("text", "special", "wanted"),
    [
        ("a <|im_end|> b", "text", []),
        ("a <|im_end|> b", "parse", ["<|im_end|>"]),
        ("<|bos|><|eos|>", "parse", ["<|bos|>", "<|eos|>"]),
        ("", "text", []),
        ("Über 😀<|eos|>今日", "parse", ["<|eos|>"]),
    ],
)
def test_runs_know_their_special_tokens(small, text, special, wanted):
    tokenizer = small[0].tokenizer()
    ids, offsets = tokenizer.encode_batch([text, "x", text], special_tokens=special)
    first, other, last = mask_runs(tokenizer, [("text", True)], Ragged(ids, offsets), np.zeros(3, np.int64))
    assert first == last
    assert [first.text[a:b] for a, b in first.special_spans] == wanted
    assert other.special_spans == ()


def test_a_character_cut_in_two_runs_has_no_spans_in_wrong_places(small):
    tokenizer = small[0].tokenizer()
    ids, _ = tokenizer.encode_batch(["😀<|eos|>"], special_tokens="parse")
    runs = mask_runs(tokenizer, [("text", True)], Ragged.from_rows([ids[:1], ids[1:]], np.int32), np.zeros(2, np.int64))
    for run in runs:
        assert {run.text[a:b] for a, b in run.special_spans} <= {"<|eos|>"}


def test_one_row_is_the_row_of_sql(small):
    store, _ = small
    for row in sample(store, store.num_rows):
        assert one_row(store, row.row_id) == row
        [sequence] = query(store, f"SELECT sequence FROM rows WHERE row_id = {row.row_id}")["sequence"].to_pylist()
        assert len(sequence) == row.num_tokens
    for wrong in (-1, store.num_rows):
        with pytest.raises(StoreError, match="no such row"):
            one_row(store, wrong)


@pytest.mark.parametrize(
    ("part", "whole", "decimals", "text"),
    [
        (1, 1, 1, "100.0%"),
        (9996, 10000, 1, "99.9%"),
        (9996, 10000, 2, "99.96%"),
        (999_999, 1_000_000, 2, "99.99%"),
        (1, 1_000_000, 1, "0.1%"),
        (0, 5, 1, "0.0%"),
        (2, 3, 1, "66.7%"),
        (0, 0, 1, "none"),
    ],
)
def test_shares_say_all_only_of_all(part, whole, decimals, text):
    assert share(part, whole, decimals) == text


def test_counts_sizes_and_places():
    sizes = (0, 999, 1000, 23_449, 156_600_000, 2 * 10**9, 3 * 10**12)
    assert [size(n) for n in sizes] == ["0 B", "999 B", "1.0 kB", "23.4 kB", "156.6 MB", "2.0 GB", "3,000.0 GB"]
    assert [counted(n, "shard") for n in (0, 1, 2345)] == ["0 shards", "1 shard", "2,345 shards"]
    assert place("chat.jsonl", 2581, "jsonl") == "chat.jsonl at byte 2,581"
    assert [place("x", 12, kind) for kind in ("json", "parquet", "text")] == ["x at 12"] * 3
