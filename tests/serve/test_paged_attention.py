"""The paged forward: equal to the trainer's, and bit for bit the same in any company."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from astrai_serve.cache import KeyValueStorage, PagedAttention, Span
from astrai_serve.cache.block_attention import KEY_BLOCK, attend_blocks
from astrai_serve.engine.row_counts import RowCounts, find_row_counts
from astrai_train.models import ModelConfig, PackedAttention, Transformer
from tests.serve.serving import SIZES, near_ties
from tests.train.small_models import lively

PAGE = 8
ROWS = RowCounts((4, 8, 16, 32, 64, 128, 256), True)


def slow_attention(q, k, v, positions):
    """One query and one head at a time, in float64."""
    out, group = torch.zeros_like(q, dtype=torch.float64), q.shape[2] // k.shape[2]
    for s in range(q.shape[0]):
        for r in range(q.shape[1]):
            end = int(positions[s, r]) + 1
            for h in range(q.shape[2]):
                keys, values = k[s, :end, h // group].double(), v[s, :end, h // group].double()
                weights = (keys @ q[s, r, h].double() / q.shape[3] ** 0.5).softmax(0)
                out[s, r, h] = weights @ values
    return out


@pytest.mark.parametrize("heads", [(4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_blocks_equal_plain_attention(heads, dtype):
    torch.manual_seed(0)
    q = torch.randn(2, 5, heads[0], 16, dtype=dtype)
    k, v = (torch.randn(2, 3 * KEY_BLOCK, heads[1], 16, dtype=dtype) for _ in range(2))
    positions = torch.tensor([[0, 1, 127, 128, 383], [5, 300, 256, 255, 0]])
    error = (attend_blocks(q, k, v, positions).double() - slow_attention(q, k, v, positions)).abs().max()
    assert error < {torch.float32: 1e-6, torch.bfloat16: 1e-2, torch.float64: 1e-12}[dtype]


def test_the_acceptance_case_of_two_keys():
    k = torch.zeros(1, KEY_BLOCK, 1, 2)
    k[0, :2, 0] = torch.eye(2)
    out = attend_blocks(torch.tensor([[[[1.0, 0.0]]]]), k, k, torch.tensor([[1]]))
    torch.testing.assert_close(out.flatten(), torch.tensor([0.6698, 0.3302]), atol=1e-4, rtol=0)


class Runs:
    """Sequences computed in chunks: the logits of every token of every sequence."""

    def __init__(self, model: Transformer, sequences: list[torch.Tensor], *, poison: bool = False) -> None:
        self.model, self.sequences = model, sequences
        most = sum(-(-len(ids) // PAGE) for ids in sequences)
        self.storage = KeyValueStorage(model.config, most * PAGE, device="cpu", dtype=model.head_weight.dtype)
        if poison:  # whatever lies in pages that are not written yet must not matter
            self.storage.keys[:, : most * PAGE] = torch.nan
            self.storage.values[:, : most * PAGE] = torch.nan
        order, self.pages = torch.randperm(most).tolist(), []
        for ids in sequences:
            self.pages.append([order.pop() for _ in range(-(-len(ids) // PAGE))])
        self.done = [0] * len(sequences)
        vocab_size, dtype = model.config.vocab_size, self.storage.keys.dtype
        self.logits = [torch.zeros(len(ids), vocab_size, dtype=dtype) for ids in sequences]

    @torch.inference_mode()
    def step(self, counts: dict[int, int]) -> None:
        spans = {
            s: Span(self.pages[s], self.done[s], min(self.done[s] + count, len(self.sequences[s])))
            for s, count in counts.items()
            if count and self.done[s] < len(self.sequences[s])
        }
        if not spans:
            return
        num = sum(span.end - span.begin for span in spans.values())
        rows = ROWS.padded(num)
        ids = torch.cat([self.sequences[s][span.begin : span.end] for s, span in spans.items()])
        positions = torch.cat([torch.arange(span.begin, span.end) for span in spans.values()])
        pad = torch.zeros(rows - num, dtype=torch.int64)
        attention = PagedAttention(self.storage, PAGE, list(spans.values()), ROWS.counts, rows)
        out = self.model(torch.cat([ids, pad]), torch.cat([positions, pad]), attention)
        row = 0
        for s, span in spans.items():
            count = span.end - span.begin
            self.logits[s][span.begin : span.end] = out[row : row + count]
            self.done[s], row = span.end, row + count


@pytest.fixture(scope="module")
def sequences():
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(0, SIZES["vocab_size"], (n,), generator=generator) for n in (1, 5, 40, 130, 200)]


@pytest.fixture(scope="module")
def alone(sequences):
    """Each sequence computed by itself, at most 256 tokens at once."""
    runs = Runs(near_ties(), sequences)
    for s in range(len(sequences)):
        runs.step({s: 256})
    return runs.logits


@pytest.mark.parametrize(
    "changes", [{}, {"use_qk_norm": True}, {"use_gated_attention": True}, {"num_key_value_heads": 6}]
)
def test_the_trainers_logits(sequences, changes):
    model = lively(ModelConfig(**SIZES | changes), torch.float64)
    runs = Runs(model, sequences, poison=True)
    for _ in range(300):
        runs.step({0: 1, 1: 2, 2: 7, 3: 1, 4: 64})
    for ids, got in zip(sequences, runs.logits, strict=True):
        borders = torch.tensor([0, len(ids)], dtype=torch.int32)
        with torch.inference_mode():
            wanted = model(ids, torch.arange(len(ids)), PackedAttention(borders))
        torch.testing.assert_close(got, wanted, atol=1e-10, rtol=1e-10)


@given(st.data())
@settings(max_examples=12, deadline=None)
def test_the_same_bits_in_any_company_and_any_chunks(sequences, alone, data):
    runs = Runs(near_ties(), sequences, poison=True)
    sizes = st.sampled_from([0, 1, 1, 2, 3, 5, 16, 17, 47, 64, 100])
    while any(done < len(ids) for done, ids in zip(runs.done, sequences, strict=True)):
        counts = {s: data.draw(sizes) for s in data.draw(st.permutations(range(len(sequences))))}
        while sum(counts.values()) > 256:
            counts.pop(next(iter(counts)))
        runs.step(counts or {0: 1})
        if not any(counts.values()):
            runs.step(dict.fromkeys(range(len(sequences)), 50))
    for got, wanted in zip(runs.logits, alone, strict=True):
        assert torch.equal(got, wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_row_counts_agree_where_they_say_so(dtype):
    model = near_ties().to(dtype)
    found = find_row_counts(model, 64)
    assert found.counts[-1] == 64
    assert [found.padded(n) for n in (1, 64)] == [found.counts[0], 64]
    if not found.same_bits:
        pytest.skip("this machine gives no row counts that agree")
    hidden = torch.randn(64, SIZES["hidden_size"], dtype=dtype)
    whole = model.head(hidden)
    for count in found.counts:
        assert torch.equal(model.head(hidden[:count]), whole[:count])


def test_a_machine_whose_rows_depend_on_their_place():
    class Uneven(torch.nn.Module):
        def forward(self, x):
            return x + torch.arange(len(x))[:, None] * 1e-6

    model = near_ties()
    model.model.norm = Uneven()
    found = find_row_counts(model, 16)
    assert not found.same_bits
    assert found.counts == (4, 8, 16)


def test_counts_that_differ_are_not_used():
    class Uneven(torch.nn.Module):
        def forward(self, x):
            return x * (1 + 1e-6 * (len(x) < 16))

    model = near_ties()
    model.model.norm = Uneven()
    found = find_row_counts(model, 64)
    assert found.same_bits
    assert found.counts == (16, 32, 64)
