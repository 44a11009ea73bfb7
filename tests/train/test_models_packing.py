"""Packed rows: documents do not see each other, whatever groups they are attended in."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from astrai_train.models import ModelError, PackedAttention
from astrai_train.models.segment_groups import group_segments
from tests.train.small_models import SMALL, lively, packed_row, tiny

CONFIG = tiny(**SMALL | {"max_position_embeddings": 1024})
ROWS = {
    "one": [300],
    "equal": [40, 40, 40, 40],
    "equal but for the last": [40, 40, 40, 39],
    "one long, many short": [600, *range(3, 40)],
    "many of one token": [1] * 20,
    "short before long": [2, 500],
}


def forward(model, row):
    return model(row["input_ids"], row["position_ids"], PackedAttention(row["cu_seqlens"]))


@pytest.mark.parametrize("lengths", ROWS.values(), ids=ROWS)
def test_a_packed_row_is_its_documents(lengths):
    model, row = lively(CONFIG), packed_row(lengths, 97)
    alone = [forward(model, packed_row([len(ids)], 97) | {"input_ids": ids}) for ids in row["input_ids"].split(lengths)]
    torch.testing.assert_close(forward(model, row), torch.cat(alone), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("lengths", ROWS.values(), ids=ROWS)
def test_gradients_of_a_packed_row_are_those_of_its_documents(lengths):
    model, row = lively(CONFIG), packed_row(lengths, 97)

    def gradients(logits):
        weights = torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype).view_as(logits)
        return torch.autograd.grad((logits * weights).sum(), list(model.parameters()))

    alone = [forward(model, packed_row([len(ids)], 97) | {"input_ids": ids}) for ids in row["input_ids"].split(lengths)]
    together, apart = gradients(forward(model, row)), gradients(torch.cat(alone))
    for mine, theirs in zip(together, apart, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("lengths", [[5, 3], [40, 40], [100, 90, 7, 60, 1, 2], [513, 1, 30]])
@pytest.mark.parametrize("grad", [False, True])
def test_changing_one_document_changes_no_bit_of_another(lengths, dtype, grad):
    model, row = lively(CONFIG, dtype), packed_row(lengths, 97)
    with torch.set_grad_enabled(grad):
        before = forward(model, row).split(lengths)
        for changed in range(len(lengths)):
            parts = list(row["input_ids"].clone().split(lengths))
            parts[changed][0] = (parts[changed][0] + 1) % 97
            after = forward(model, row | {"input_ids": torch.cat(parts)}).split(lengths)
            same = [torch.equal(a, b) for a, b in zip(before, after, strict=True)]
            assert same == [document != changed for document in range(len(lengths))]


def test_a_broken_document_stays_alone():
    """Not even NaN crosses a border, not in the padding of a group either, forward or backward."""
    lengths = [30, 26, 28]
    row = packed_row(lengths, 97)
    q, k, v = (torch.randn(84, heads, 8, requires_grad=True) for heads in (4, 2, 2))
    with torch.no_grad():
        v[:30] = torch.nan
    out = PackedAttention(row["cu_seqlens"]).attend(0, q, k, v)
    assert out[:30].isnan().all()
    assert out[30:].isfinite().all()
    out[30:].sum().backward()
    assert all(x.grad[30:].isfinite().all() for x in (q, k, v))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 70), min_size=1, max_size=40))
def test_groups_hold_every_token_once(lengths):
    borders = [0, *torch.tensor(lengths).cumsum(0).tolist()]
    groups = group_segments(borders)
    assert sum(count * length for count, length in groups.blocks) == len(groups.take)
    assert groups.take[groups.put].tolist() == list(range(borders[-1]))
    slots = iter(groups.take.tolist())
    for count, length in groups.blocks:
        for _ in range(count):
            tokens = [next(slots) for _ in range(length)]
            begin = max(border for border in borders if border <= tokens[0])
            end = min(border for border in borders if border > tokens[0])
            # From the segment's first token on, padded at the end with its own last one.
            assert tokens == [min(begin + i, end - 1) for i in range(length)]


@pytest.mark.parametrize(
    ("lengths", "blocks"),
    [
        ([7], ((1, 7),)),
        ([5, 5, 5], ((3, 5),)),
        ([0, 5, 0], ((1, 5),)),
        ([1000, 2, 3], ((1, 1000), (2, 3))),
        ([30, 26, 28], ((3, 30),)),
        ([], ()),
    ],
)
def test_which_segments_share_a_call(lengths, blocks):
    borders = [0]
    for length in lengths:
        borders.append(borders[-1] + length)
    assert group_segments(borders).blocks == blocks


def test_many_short_segments_do_not_make_many_calls():
    lengths = torch.randint(1, 64, (500,), generator=torch.Generator().manual_seed(0)).tolist()
    groups = group_segments([0, *torch.tensor(lengths).cumsum(0).tolist()])
    assert len(groups.blocks) < 16
    assert len(groups.take) < 1.1 * sum(lengths)


def test_equal_segments_are_not_copied():
    assert group_segments([0, 5, 10]).in_place
    assert not group_segments([0, 5, 8]).in_place


@pytest.mark.parametrize("borders", [[0], [1, 2], [0, 5, 3]])
def test_borders_that_are_none(borders):
    with pytest.raises(ModelError, match="borders"):
        PackedAttention(torch.tensor(borders))


def test_borders_of_another_row():
    row = packed_row([4, 4], 97)
    with pytest.raises(ModelError, match="not those of the row"):
        forward(lively(CONFIG), row | {"cu_seqlens": torch.tensor([0, 4])})


def test_lengths():
    attention = PackedAttention(torch.tensor([0, 2, 2, 5]))
    assert attention.max_seqlen == 3
    assert attention.token_lengths.tolist() == [2, 2, 3, 3, 3]
