"""Gathering tokens and mask runs by a plan, against a twin that walks token by token."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astrai_data.pack import CUT_AFTER, CUT_BEFORE, STRATEGIES, Plan, Segments, gather, plan
from astrai_data.ragged import Ragged

MASKED, TRAINED = 0, 1


def gather_all(documents: list[list[int]], masks: list[list[int]], made: Plan) -> tuple[Ragged, Segments]:
    """Gather documents whose mask is given token by token, none cut before."""
    count = len(documents)
    runs = [runs_of(mask) for mask in masks]
    return gather(
        Ragged.from_rows(documents, np.int32),
        Ragged.from_rows([[length for length, _ in row] for row in runs], np.int32),
        Ragged.from_rows([[rule for _, rule in row] for row in runs], np.uint16),
        np.zeros(count, np.int64),
        np.arange(count, dtype=np.int32),
        np.zeros(count, np.uint8),
        made,
    )


def runs_of(rules: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for rule in rules:
        if runs and runs[-1][1] == rule:
            runs[-1] = (runs[-1][0] + 1, rule)
        else:
            runs.append((1, rule))
    return runs


def masks_of(segments: Segments) -> list[list[int]]:
    """The rule of every token, one list a row."""
    rows: list[list[int]] = [[] for _ in range(int(segments.row.max(initial=-1)) + 1)]
    for row, lengths, rules in zip(segments.row, segments.mask_lengths, segments.mask_rules, strict=True):
        rows[row] += np.repeat(rules, lengths).tolist()
    return rows


def lists(rows: Ragged) -> list[list[int]]:
    return [row.tolist() for row in rows]


A, B, C = list(range(25)), [100, 101, 102], list(range(200, 208))
MASKS = [[0] * 5 + [1] * 20, [1] * 3, [0] * 8]


def truncated(length: np.ndarray, mode: str) -> Plan:
    """Every document cut to 10 tokens: what `over_long: truncate` does before packing."""
    kept = np.minimum(length, 10)
    begin = (length - kept) * (mode == "keep_end")
    return Plan(np.arange(len(length)), begin, kept, np.arange(len(length) + 1))


@pytest.mark.parametrize(
    ("strategy", "mode", "rows"),
    [
        ("simple", "keep_start", [A[:10], B, C]),
        ("bfd", "keep_start", [A[:10], C, B]),
        ("bfd_split", None, [A[:10], A[10:20], C, A[20:] + B]),
        ("simple", "keep_end", [A[15:], B, C]),
        ("bfd", "keep_end", [A[15:], C, B]),
    ],
)
def test_rows(strategy, mode, rows):
    """Acceptance 27 and 29; the second gather takes up what the first one left."""
    documents, lengths = Ragged.from_rows([A, B, C], np.int32), np.array([25, 3, 8])
    runs, rules = Ragged.from_rows([[25], [3], [8]], np.int32), Ragged.from_rows([[1], [1], [1]], np.uint16)
    start, flags, ordinals = np.zeros(3, np.int64), np.zeros(3, np.uint8), np.arange(3, dtype=np.int32)
    if mode:
        documents, cut = gather(documents, runs, rules, start, ordinals, flags, truncated(lengths, mode))
        runs, rules, start, flags = cut.mask_lengths, cut.mask_rules, cut.token_start, cut.flags
    made = plan(strategy, documents.lengths, 10)
    packed, segments = gather(documents, runs, rules, start, ordinals, flags, made)
    assert lists(packed) == rows
    assert packed.lengths.max() <= 10
    assert packed.lengths.sum() == segments.length.sum() == (21 if mode else 36)
    first = segments.document == 0
    expected = {
        "keep_start": ([0], [CUT_AFTER]),
        "keep_end": ([15], [CUT_BEFORE]),
        None: ([0, 10, 20], [CUT_AFTER, CUT_BEFORE | CUT_AFTER, CUT_BEFORE]),
    }
    assert (segments.token_start[first].tolist(), segments.flags[first].tolist()) == expected[mode]
    assert segments.flags[~first].tolist() == [0, 0]


def test_masks_follow_their_tokens():
    """Acceptance 28: `bfd` of documents cut to ten tokens, then `bfd_split` of the whole ones."""
    short = [A[:10], B, C]
    _, segments = gather_all(short, [MASKS[0][:10], *MASKS[1:]], plan("bfd", np.array([10, 3, 8]), 10))
    assert masks_of(segments) == [[0] * 5 + [1] * 5, [0] * 8, [1] * 3]
    _, segments = gather_all([A, B, C], MASKS, plan("bfd_split", np.array([25, 3, 8]), 10))
    assert masks_of(segments) == [[0] * 5 + [1] * 5, [1] * 10, [0] * 8, [1] * 8]


@pytest.mark.parametrize(("strategy", "kept"), [("bfd", 18), ("bfd_split", 33)])
def test_tokens_kept(strategy, kept):
    """Acceptance 29: lengths 25 and 8 at capacity 10."""
    lengths = np.array([25, 8])
    made = plan(strategy, np.minimum(lengths, 10) if strategy == "bfd" else lengths, 10)
    rows, segments = gather_all([A, C], [MASKS[0], MASKS[2]], made)
    assert rows.lengths.sum() == kept
    assert rows.lengths.max() <= 10
    assert rows.lengths.tolist() == [len(mask) for mask in masks_of(segments)]


def test_flagged_label_of_a_segment_start_is_never_counted():
    """cases/data.md 14: labels per segment are its flagged tokens but the first."""
    documents, masks = [[1, 2, 3], [4, 5], [6], []], [[1, 1, 1], [0, 1], [1], []]
    _, segments = gather_all(documents, masks, plan("bfd", np.array([3, 2, 1, 0]), 8))
    assert segments.num_trained(np.array([False, True])).tolist() == [2, 1, 0, 0]
    assert segments.num_trained(np.array([True, False])).tolist() == [0, 0, 0, 0]


def test_runs_that_do_not_cover_their_document_are_refused():
    with pytest.raises(ValueError, match="do not sum"):
        gather_all([[1, 2, 3]], [[1, 1]], plan("simple", np.array([3]), None))


DOCUMENTS = st.lists(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2)), max_size=5),  # (run length, rule), as they come
    max_size=12,
)


def batch(documents) -> tuple[Ragged, Ragged, Ragged]:
    """Tokens that are all different, with their runs; buffers that do not begin at offset 0, as slices do."""
    run_lengths = Ragged.from_rows([[9], *[[length for length, _ in runs] for runs in documents]], np.int32)
    run_rules = Ragged.from_rows([[7], *[[rule for _, rule in runs] for runs in documents]], np.uint16)
    totals = np.array([row.sum() for row in run_lengths])
    tokens = Ragged.from_lengths(np.arange(totals.sum(), dtype=np.int32), totals)
    return tuple(Ragged(column.values, column.offsets[1:]) for column in (tokens, run_lengths, run_rules))


def slow_gather(tokens, run_lengths, run_rules, token_start, document, flags, made) -> list[tuple]:
    """Of each piece: row, document, token_start, flags, tokens, runs, labels trained under rule 1."""
    segments = []
    rows = np.repeat(np.arange(made.num_rows), np.diff(made.row_offsets)).tolist()
    for row, which, begin, length in zip(rows, made.document, made.begin, made.length, strict=True):
        items = tokens[which].tolist()
        rules = np.repeat(run_rules[which], run_lengths[which]).tolist()[begin : begin + length]
        before = CUT_BEFORE if begin > 0 else flags[which] & CUT_BEFORE
        after = CUT_AFTER if begin + length < len(items) else flags[which] & CUT_AFTER
        place = (row, document[which], token_start[which] + begin, before | after)
        segments.append((*place, items[begin : begin + length], runs_of(rules), sum(r == 1 for r in rules[1:])))
    return segments


def as_tuples(rows: Ragged, segments: Segments) -> list[tuple]:
    ends = np.cumsum(segments.length)
    columns = (segments.row, segments.document, segments.token_start, segments.flags)
    tokens = [rows.flat[end - length : end].tolist() for end, length in zip(ends, segments.length, strict=True)]
    runs = [
        list(zip(lengths.tolist(), rules.tolist(), strict=True))
        for lengths, rules in zip(segments.mask_lengths, segments.mask_rules, strict=True)
    ]
    trained = segments.num_trained(np.array([False, True, False])).tolist()
    return list(zip(*columns, tokens, runs, trained, strict=True))


@settings(max_examples=400, deadline=None)
@given(
    DOCUMENTS,
    st.sampled_from(STRATEGIES),
    st.integers(1, 15),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_equals_its_slow_twin(documents, strategy, capacity, split, random):
    columns = batch(documents)
    count = len(documents)
    capacity = capacity if split else 40
    made = plan(strategy, columns[0].lengths, capacity, split=split)
    made = made.take_rows(np.array(random.sample(range(made.num_rows), made.num_rows), np.int64))
    token_start = np.array([random.randrange(9) for _ in range(count)], np.int64)
    flags = np.array([random.randrange(4) for _ in range(count)], np.uint8)
    ordinals = np.array(random.sample(range(1000), count), np.int32)
    rows, segments = gather(*columns, token_start, ordinals, flags, made)
    assert as_tuples(rows, segments) == slow_gather(*columns, token_start, ordinals, flags, made)
    assert rows.lengths.tolist() == [sum(made.length[b:e]) for b, e in pairwise(made.row_offsets)]


@settings(max_examples=200, deadline=None)
@given(DOCUMENTS.filter(bool), st.data())
def test_any_disjoint_pieces_can_be_gathered(documents, data):
    """Pieces that leave tokens out, stand in any order and may be empty, as truncation makes them."""
    columns = batch(documents)
    pieces = []
    for which, length in enumerate(columns[0].lengths.tolist()):
        cuts = sorted(data.draw(st.lists(st.integers(0, length), max_size=6)))
        pieces += [(which, begin, end - begin) for begin, end in zip(cuts[::2], cuts[1::2], strict=False)]
    pieces = data.draw(st.permutations(pieces))
    document, begin, length = np.array(pieces, np.int64).reshape(-1, 3).T
    made = Plan(document, begin, length, np.arange(len(pieces) + 1))
    zeros = np.zeros(len(documents), np.int64)
    place = (zeros, np.arange(len(documents), dtype=np.int32), zeros.astype(np.uint8))
    assert as_tuples(*gather(*columns, *place, made)) == slow_gather(*columns, *place, made)


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.float32])
def test_dtypes(dtype):
    tokens = Ragged.from_rows([[1, 2, 3, 4, 5], [6]], dtype)
    runs, rules = Ragged.from_rows([[5], [1]], np.int32), Ragged.from_rows([[TRAINED], [MASKED]], np.uint16)
    ordinals, flags = np.arange(2, dtype=np.int32), np.zeros(2, np.uint8)
    made = plan("bfd_split", tokens.lengths, 2)
    rows, segments = gather(tokens, runs, rules, np.zeros(2, np.int64), ordinals, flags, made)
    assert rows.values.dtype == dtype
    assert lists(rows) == [[1, 2], [3, 4], [5, 6]]
    wanted = {"row": "i4", "length": "i4", "document": "i4", "token_start": "i8", "flags": "u1"}
    assert {name: getattr(segments, name).dtype.str[1:] for name in wanted} == wanted
    assert segments.mask_lengths.values.dtype == np.int32
    assert segments.mask_rules.values.dtype == np.uint16
