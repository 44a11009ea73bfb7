"""Losses: the chunked cross entropy against torch's own, labels of `seq` and `sft`, the acceptance numbers."""

import math
from types import SimpleNamespace

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch.nn import functional

from astrai_data.load import PackedLoader
from astrai_data.store import TokenStore
from astrai_train.strategies import NextToken, linear_cross_entropy
from tests.train.small_models import lively
from tests.train.small_runs import make_chat_store, model_config


def slow(hidden, weight, targets, label_smoothing=0.0):
    """The twin: all logits at once."""
    logits = functional.linear(hidden, weight)
    return functional.cross_entropy(logits, targets, reduction="sum", label_smoothing=label_smoothing)


def value_and_grads(function, hidden, weight, targets, **options):
    hidden, weight = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    loss = function(hidden, weight, targets, **options)
    (loss * 3).backward()  # a factor, as the step's 1 / labels is
    return loss.detach(), hidden.grad, weight.grad


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(0, 40),
    width=st.integers(1, 8),
    vocab=st.integers(1, 30),
    max_logits=st.integers(1, 300),
    smoothing=st.sampled_from([0.0, 0.1, 0.9]),
    seed=st.integers(0, 99),
)
def test_chunks_change_nothing(rows, width, vocab, max_logits, smoothing, seed):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, width, generator=generator, dtype=torch.float64)
    weight = torch.randn(vocab, width, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, vocab, (rows,), generator=generator)
    mine = value_and_grads(
        linear_cross_entropy, hidden, weight, targets, label_smoothing=smoothing, max_logits=max_logits
    )
    theirs = value_and_grads(slow, hidden, weight, targets, label_smoothing=smoothing)
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtypes(dtype):
    hidden, weight, targets = torch.randn(50, 16, dtype=dtype), torch.randn(99, 16, dtype=dtype), torch.arange(50)
    loss, *grads = value_and_grads(linear_cross_entropy, hidden, weight, targets, max_logits=500)
    assert loss.dtype == dtype
    assert {grad.dtype for grad in grads} == {dtype}
    torch.testing.assert_close(loss, slow(hidden, weight, targets))


def test_under_autocast_it_is_as_near_as_torchs_own():
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(200, 64, generator=generator)
    weight, targets = torch.randn(100, 64, generator=generator) / 8, torch.arange(200) % 100
    exact = value_and_grads(slow, hidden.double(), weight.double(), targets)
    with torch.autocast("cpu", torch.bfloat16):
        mine = value_and_grads(linear_cross_entropy, hidden, weight, targets, max_logits=3000)
        theirs = value_and_grads(slow, hidden, weight, targets)

    def errors(found):
        return [((one - other).norm() / other.norm()).item() for one, other in zip(found, exact, strict=True)]

    assert [x.dtype for x in mine] == [torch.float32] * 3  # master gradients
    assert all(one <= 1.5 * other + 1e-4 for one, other in zip(errors(mine), errors(theirs), strict=True))


def test_without_gradient_only_the_loss_is_computed():
    hidden, weight = torch.randn(5, 4), torch.randn(9, 4, requires_grad=True)
    with torch.no_grad():
        loss = linear_cross_entropy(hidden, weight, torch.arange(5))
    assert not loss.requires_grad
    torch.testing.assert_close(loss, slow(hidden, weight, torch.arange(5)).detach())


TABLE = torch.zeros(4, 4)
TABLE[1, 2] = 1
STUB = SimpleNamespace(hidden=lambda ids, positions, attention: TABLE[ids], head_weight=torch.eye(4))
ACCEPTANCE = [  # inputs, labels, smoothing, mean loss
    ([1, 2], [2, 0], 0.0, 1.064981),
    ([1, 2], [2, 0], 0.1, 1.102481),
    ([1, 1, 2], [2, -100, 0], 0.0, 1.064981),
]


@pytest.mark.parametrize(("inputs", "labels", "smoothing", "wanted"), ACCEPTANCE)
def test_acceptance_numbers(inputs, labels, smoothing, wanted):
    strategy = NextToken(label_smoothing=smoothing)
    batch = strategy.prepare({
        "input_ids": torch.tensor(inputs),
        "labels": torch.tensor(labels),
        "position_ids": torch.arange(len(inputs)),
        "cu_seqlens": torch.tensor([0, len(inputs)], dtype=torch.int32),
        "max_seqlen": len(inputs),
    })  # fmt: skip
    assert strategy.loss_sum(STUB, batch).item() / batch.num_labels == pytest.approx(wanted, abs=1e-6)


@pytest.fixture(scope="module")
def chats(tmp_path_factory):
    return TokenStore.open(make_chat_store(tmp_path_factory.mktemp("chats") / "store"))


def test_sft_trains_what_the_store_says_and_seq_every_token(chats):
    batches = PackedLoader(chats, seed=0, rows_per_batch=3)
    sft = seq = tokens = segments = 0
    for _ in range(batches.batches_per_epoch):
        batch = next(batches)
        sft += NextToken().prepare(batch).num_labels
        seq += NextToken(every_token=True).prepare(batch).num_labels
        tokens += len(batch["input_ids"])
        segments += len(batch["cu_seqlens"]) - 1
    assert sft == chats.num_trained < chats.num_tokens - chats.num_segments
    assert (tokens, segments) == (chats.num_tokens, chats.num_segments)
    assert seq == tokens - segments


def test_labels_are_the_answers_and_the_end_of_turn(chats):
    """Shifted once, and the first token of the answer is among them."""
    tokenizer, strategy = chats.tokenizer(), NextToken()
    batch = next(PackedLoader(chats, seed=0, rows_per_batch=1))
    prepared = strategy.prepare(batch)
    assert torch.equal(prepared.targets, batch["input_ids"][prepared.rows + 1])
    text = tokenizer.decode(prepared.targets.tolist(), skip_special_tokens=False)
    answers = [part for part in text.split("<|im_end|>") if part]
    assert answers
    assert all(part.startswith("that is ") and part.endswith(", a number") for part in answers)
    assert text.count("<|im_end|>") == len(answers) == len(batch["cu_seqlens"]) - 1


@pytest.mark.parametrize("every_token", [False, True])
def test_the_loss_of_a_batch_is_that_of_its_documents(chats, every_token):
    model, strategy = lively(model_config()), NextToken(every_token)
    batch = next(PackedLoader(chats, seed=0, rows_per_batch=4))
    whole = strategy.loss_sum(model, strategy.prepare(batch)).item()
    alone = 0.0
    for begin, end in zip(batch["cu_seqlens"][:-1].tolist(), batch["cu_seqlens"][1:].tolist(), strict=True):
        part = {name: batch[name][begin:end] for name in ("input_ids", "labels", "position_ids")}
        length = end - begin
        part |= {"cu_seqlens": torch.tensor([0, length], dtype=torch.int32), "max_seqlen": length}
        alone += strategy.loss_sum(model, strategy.prepare(part)).item()
    assert whole == pytest.approx(alone, rel=1e-10)
    assert math.isfinite(whole)
