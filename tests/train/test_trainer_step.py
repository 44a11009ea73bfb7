"""One optimizer step: accumulation, normalisation by labels, clipping, decay, and steps with nothing to learn."""

import pytest
import torch
from torch import nn

from astrai_data.load import PackedLoader
from astrai_data.store import TokenStore
from astrai_train.device import choose_precision
from astrai_train.errors import TrainError
from astrai_train.models import PackedAttention, Transformer
from astrai_train.optim import build_adamw, clip_gradient, gradient_norm
from astrai_train.step import accumulate_gradient, mean_loss
from astrai_train.strategies import NextToken
from tests.train.small_models import lively
from tests.train.small_runs import model_config

CPU = choose_precision("cpu", "float32")
LABELS = [1, 2, 3, 50, 1, 4, 2, 60]


def row(num_labels: int, length: int = 64, seed: int = 0) -> dict:
    """One document of which the last `num_labels` tokens are trained."""
    ids = torch.randint(0, 512, (length,), generator=torch.Generator().manual_seed(seed))
    labels = torch.full((length,), -100)
    labels[length - 1 - num_labels : length - 1] = ids[length - num_labels :]
    borders = torch.tensor([0, length], dtype=torch.int32)
    return {"input_ids": ids, "labels": labels, "position_ids": torch.arange(length)} | {
        "cu_seqlens": borders,
        "max_seqlen": length,
    }


def joined(rows: list[dict]) -> dict:
    """Rows as one batch."""
    lengths = torch.tensor([0] + [len(one["input_ids"]) for one in rows])
    names = ("input_ids", "labels", "position_ids")
    whole = {name: torch.cat([one[name] for one in rows]) for name in names}
    return whole | {"cu_seqlens": lengths.cumsum(0).to(torch.int32), "max_seqlen": int(lengths.max())}


def gradient(model: Transformer, batches: list[dict]) -> tuple[float, list[torch.Tensor]]:
    model.zero_grad()
    strategy = NextToken()
    loss = accumulate_gradient(model, strategy, [strategy.prepare(batch) for batch in batches], CPU)
    return loss.item(), [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("accumulate", [2, 4, 8])
def test_accumulation_changes_no_gradient(dtype, tolerance, accumulate):
    model = lively(model_config(), dtype)
    rows = [row(count, seed=i) for i, count in enumerate(LABELS)]
    size = len(rows) // accumulate
    parts = [joined(rows[begin : begin + size]) for begin in range(0, len(rows), size)]
    (loss, grads), (split_loss, split_grads) = gradient(model, [joined(rows)]), gradient(model, parts)
    assert split_loss == pytest.approx(loss, rel=tolerance)
    for whole, split in zip(grads, split_grads, strict=True):
        assert (whole - split).norm() <= tolerance * whole.norm()


def test_accumulation_over_a_store_changes_no_gradient(text_store):
    store, model = TokenStore.open(text_store), lively(model_config())
    found = []
    for accumulate in (1, 2, 4):
        loader = PackedLoader(store, seed=3, rows_per_batch=8 // accumulate)
        found.append(gradient(model, [next(loader) for _ in range(accumulate)])[1])
    for others in found[1:]:
        for mine, theirs in zip(found[0], others, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


def test_each_label_weighs_the_same():
    """Losses (4) and (1, 1, 1) give 7 / 4, not the mean of two means."""

    class Given:
        def loss_sum(self, model, batch):
            return model(batch)

    losses = iter([4.0, 3.0])
    parameter = nn.Parameter(torch.ones(()))
    batches = [NextToken().prepare(row(count)) for count in (1, 3)]
    loss = accumulate_gradient(lambda batch: parameter * next(losses), Given(), batches, CPU)
    assert loss.item() == pytest.approx(1.75)
    assert parameter.grad.item() == pytest.approx(1.75)


def test_gradients_add_up_until_they_are_zeroed():
    model = lively(model_config())
    strategy, rows = NextToken(), [row(5, seed=i) for i in range(4)]
    seen = []
    hook = model.model.norm.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    accumulate_gradient(model, strategy, [strategy.prepare(one) for one in rows], CPU)
    hook.remove()
    assert len(seen) == 4
    alone = [gradient(model, [one])[1][list(model.state_dict()).index("model.norm.weight")] for one in rows]
    for count in range(1, 5):
        torch.testing.assert_close(seen[count - 1], sum(alone[:count]) / 4)


def test_a_batch_without_labels_adds_nothing():
    model = lively(model_config())
    loss, grads = gradient(model, [row(3)])
    with_empty, same = gradient(model, [row(3), row(0, seed=1)])
    assert with_empty == loss
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(grads, same, strict=True))
    model.zero_grad()
    assert accumulate_gradient(model, NextToken(), [NextToken().prepare(row(0))], CPU).item() == 0
    assert all(parameter.grad is None for parameter in model.parameters())
    assert mean_loss(model, NextToken(), [NextToken().prepare(row(0))], CPU) is None


def test_the_mean_over_a_split_weighs_labels_and_leaves_the_mode():
    model, strategy = lively(model_config()).train(), NextToken()
    batches = [strategy.prepare(row(count, seed=count)) for count in LABELS]
    whole = accumulate_gradient(model, strategy, batches, CPU).item()
    assert mean_loss(model, strategy, batches, CPU) == pytest.approx(whole, rel=1e-10)
    assert model.training


def test_changing_a_document_changes_no_bit_of_another(text_store):
    model, strategy = lively(model_config(), torch.float32), NextToken()
    batch = next(PackedLoader(TokenStore.open(text_store), seed=0, rows_per_batch=4))
    borders = batch["cu_seqlens"].tolist()
    assert len(borders) > 4
    before = logits(model, strategy, batch)
    for document in range(len(borders) - 1):
        begin, end = borders[document], borders[document + 1]
        changed = batch | {"input_ids": batch["input_ids"].clone()}
        changed["input_ids"][begin] = (batch["input_ids"][begin] + 1) % 512
        after = logits(model, strategy, changed)
        others = torch.ones(len(before), dtype=torch.bool)
        others[begin:end] = False
        assert torch.equal(before[others], after[others])
        assert not torch.equal(before[begin:end], after[begin:end])


def logits(model, strategy, batch) -> torch.Tensor:
    prepared = strategy.prepare(batch)
    attention = PackedAttention(prepared.cu_seqlens, prepared.max_seqlen)
    return model(prepared.input_ids, prepared.position_ids, attention)


@pytest.mark.parametrize(("max_norm", "wanted"), [(1.0, [0.6, 0.8]), (10.0, [3, 4]), (0.0, [3, 4])])
def test_clipping(max_norm, wanted):
    parameters = [nn.Parameter(torch.zeros(1)) for _ in range(2)]
    for parameter, value in zip(parameters, [3.0, 4.0], strict=True):
        parameter.grad = torch.tensor([value])
    norm = gradient_norm(parameters)
    clip_gradient(parameters, max_norm, norm)
    assert norm.item() == 5
    assert [p.grad.item() for p in parameters] == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("tied", [False, True])
def test_only_matrices_decay(tied):
    model = Transformer(model_config(tie_word_embeddings=tied))
    optimizer = build_adamw(model, lr=1.0, weight_decay=0.5)
    decay = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert len(decay) == len(list(model.parameters()))
    for name, parameter in model.named_parameters():
        free = "norm" in name or "embed_tokens" in name
        assert decay[id(parameter)] == (0.0 if free else 0.5), name


@pytest.mark.parametrize("name", ["tpu", "cuda:99", "nonsense"])
def test_a_device_that_is_not_there_is_an_error(name):

    with pytest.raises(TrainError) as caught:
        choose_precision(name)
    assert caught.value.got == name


def test_bfloat16_autocast_keeps_weights_and_gradients_in_float32():
    model, strategy = Transformer(model_config()), NextToken()
    precision = choose_precision("cpu", "bfloat16")
    batches = [strategy.prepare(row(20, seed=i)) for i in range(2)]
    loss = accumulate_gradient(model, strategy, batches, precision).item()
    assert {p.dtype for p in model.parameters()} | {p.grad.dtype for p in model.parameters()} == {torch.float32}
    assert loss == pytest.approx(mean_loss(model, strategy, batches, CPU), rel=2e-2)
