"""The network: equal to its slow twin, sizes, initialisation, what goes in and comes out."""

import copy
import math
import pickle

import pytest
import torch

from astrai_train.models import ModelError, PackedAttention, Transformer
from astrai_train.models.feed_forward import FeedForward
from astrai_train.models.kernels import compiled_op
from astrai_train.models.norm import RMSNorm
from tests.train.small_models import SMALL, lively, packed_row, slow_logits, tiny


def forward(model, row, **options):
    return model(row["input_ids"], row["position_ids"], PackedAttention(row["cu_seqlens"]), **options)


CASES = {
    "every head its own keys": {"num_key_value_heads": 4},
    "two heads share": {},
    "all heads share": {"num_key_value_heads": 1},
    "tied": {"tie_word_embeddings": True},
    "norm before rotation": {"use_qk_norm": True},
    "norm after rotation": {"use_qk_norm": True, "qk_norm_position": "after"},
    "interleaved": {"rope_layout": "interleaved"},
    "gated": {"use_gated_attention": True},
    "wide heads": {"head_dim": 16},
    "narrow heads, all at once": {
        "head_dim": 4,
        "use_qk_norm": True,
        "use_gated_attention": True,
        "rope_layout": "interleaved",
        "tie_word_embeddings": True,
    },
}


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_equals_the_slow_twin(changes):
    config = tiny(**SMALL | changes)
    model, row = lively(config), packed_row([5, 1, 9], config.vocab_size)
    slow = torch.cat([slow_logits(model, ids.tolist()) for ids in row["input_ids"].split([5, 1, 9])])
    torch.testing.assert_close(forward(model, row), slow, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_gradients_equal_those_of_the_slow_twin(changes):
    config = tiny(**SMALL | changes)
    model, row = lively(config), packed_row([5, 8], config.vocab_size)
    slow = torch.cat([slow_logits(model, ids.tolist()) for ids in row["input_ids"].split([5, 8])])
    weights = torch.linspace(-1, 1, slow.numel(), dtype=torch.float64).view_as(slow)
    fast, slow = (
        torch.autograd.grad((logits * weights).sum(), list(model.parameters()))
        for logits in (forward(model, row), slow)
    )
    for mine, theirs in zip(fast, slow, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_in_float32_it_is_the_same_model(changes):
    config = tiny(**SMALL | changes)
    model, row = lively(config), packed_row([5, 1, 9], config.vocab_size)
    wide, narrow = forward(model, row), forward(copy.deepcopy(model).float(), row).double()
    assert (wide - narrow).norm() / wide.norm() < 1e-5


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 17_192),
        ({"use_qk_norm": True, "use_gated_attention": True}, 17_336),
        ({"tie_word_embeddings": True}, 9_192),
        (
            {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 512}
            | {"num_hidden_layers": 8},
            5_234_944,
        ),
        (
            {"vocab_size": 100_000, "hidden_size": 1536, "num_attention_heads": 24, "num_key_value_heads": 4}
            | {"intermediate_size": 6912, "num_hidden_layers": 24},
            1_203_807_744,
        ),
        (
            {"vocab_size": 10_000, "hidden_size": 1536, "num_attention_heads": 24, "num_key_value_heads": 4}
            | {"intermediate_size": 6912, "num_hidden_layers": 24},
            927_327_744,
        ),
    ],
)
def test_number_of_parameters(changes, count):
    assert Transformer(tiny(**changes), device="meta").num_parameters() == count


def test_names_are_those_of_llama():
    names = Transformer(tiny(), device="meta").state_dict().keys()
    assert len(names) == 21
    assert len(Transformer(tiny(tie_word_embeddings=True), device="meta").state_dict()) == 20
    layer = ["input_layernorm", "mlp.down_proj", "mlp.gate_proj", "mlp.up_proj", "post_attention_layernorm"]
    layer += [f"self_attn.{name}_proj" for name in "koqv"]
    wanted = [f"model.layers.{i}.{name}.weight" for i in (0, 1) for name in layer]
    wanted += ["lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"]
    assert sorted(names) == sorted(wanted)


def test_fresh_weights():
    torch.manual_seed(0)
    sizes = {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 512}
    model = Transformer(tiny(num_hidden_layers=8, **sizes))
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            assert (weight == 1).all()
            continue
        wanted = 0.005 if name.endswith(("o_proj.weight", "down_proj.weight")) else 0.02
        assert weight.std().item() == pytest.approx(wanted, rel=0.03), name
        assert abs(weight.mean().item()) < 0.05 * wanted, name


def test_fresh_weights_are_those_of_their_generator():
    first, second = (Transformer(tiny(), generator=torch.Generator().manual_seed(7)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_norm():
    norm = RMSNorm(2, 1e-5)
    torch.nn.init.ones_(norm.weight)
    torch.testing.assert_close(norm(torch.tensor([3.0, 4.0])), torch.tensor([0.848528, 1.131370]))
    assert norm(torch.tensor([3.0, 4.0]).bfloat16()).dtype == torch.bfloat16


def test_feed_forward():
    part = FeedForward(tiny(hidden_size=2, intermediate_size=1, num_attention_heads=1))
    for name, value in (("up_proj", 2.0), ("gate_proj", 1.0), ("down_proj", 3.0)):
        torch.nn.init.constant_(getattr(part, name).weight, value)
    x = torch.tensor([[1.0, 0.0]])
    torch.testing.assert_close(part(x), torch.full((1, 2), 4.386352))


def test_one_token_attends_to_itself():
    """Before the output projection attention is v, each key head's repeated; a zero gate halves it."""
    config = tiny(**SMALL | {"use_gated_attention": True})
    layer = lively(config).model.layers[0].self_attn
    x, rotation = torch.randn(1, 32, dtype=torch.float64), (torch.ones(1, 4).double(), torch.zeros(1, 4).double())
    torch.nn.init.zeros_(layer.output_gate.weight)
    torch.nn.init.eye_(layer.o_proj.weight)
    v = layer.v_proj(x).view(1, 2, 1, 8).expand(1, 2, 2, 8).reshape(1, 32)
    torch.testing.assert_close(layer(x, rotation, PackedAttention(torch.tensor([0, 1]))), v / 2)


def test_the_future_is_not_seen():
    model = lively(tiny(), torch.float32)
    row = packed_row([4], 1000)
    other = row | {"input_ids": torch.cat([row["input_ids"][:3], torch.tensor([9])])}
    assert torch.equal(forward(model, row)[:3], forward(model, other)[:3])


def test_logits_for_some_positions():
    model, row = lively(tiny()), packed_row([7, 5], 1000)
    wanted = torch.tensor([11, 0, 6])
    some = forward(model, row, logits_for=wanted)
    torch.testing.assert_close(some, forward(model, row)[wanted], rtol=1e-12, atol=1e-12)
    assert forward(model, row, logits_for=torch.empty(0, dtype=torch.int64)).shape == (0, 1000)


def test_logits_are_the_head_of_hidden():
    model, row = lively(tiny()), packed_row([7, 5], 1000)
    hidden = model.hidden(row["input_ids"], row["position_ids"], PackedAttention(row["cu_seqlens"]))
    assert hidden.shape == (12, 8)
    assert torch.equal(model.head(hidden), forward(model, row))


def test_tied_head_is_the_embedding():
    model = Transformer(tiny(tie_word_embeddings=True))
    with torch.no_grad():
        model.model.embed_tokens.weight[0, 0] = 100
    assert model.head_weight[0, 0] == 100
    forward(model, packed_row([4], 1000)).sum().backward()
    assert (model.model.embed_tokens.weight.grad != 0).any(1).all()  # the head reaches every row
    assert copy.deepcopy(model).head_weight.data_ptr() != model.head_weight.data_ptr()


@pytest.mark.parametrize(
    ("ids", "positions", "says"),
    [
        ([[1, 2]], [[0, 1]], "one dimension"),
        ([1, 2], [0], "one dimension"),
        ([1, 1000], [0, 1], "input_ids out of range"),
        ([1, -1], [0, 1], "input_ids out of range"),
        ([1, 2], [0, 64], "position_ids out of range"),
        ([1, 2], [-1, 0], "position_ids out of range"),
    ],
)
def test_input_that_is_no_row(ids, positions, says):
    with pytest.raises(ModelError, match=says):
        Transformer(tiny())(torch.tensor(ids), torch.tensor(positions), PackedAttention(torch.tensor([0, 2])))


def test_noise_on_embeddings_only_in_training():
    """Uniform with the scale alpha / sqrt(length * width), whose standard deviation is that over sqrt(3)."""
    config = tiny(hidden_size=1024, num_hidden_layers=1, num_attention_heads=8, neftune_alpha=5.0)
    model, lengths = Transformer(config), [512, 64]
    row = packed_row(lengths, 1000)
    x = torch.zeros(576, 1024)
    noise = model._noise(x, PackedAttention(row["cu_seqlens"]).token_lengths)
    for part, length in zip(noise.split(lengths), lengths, strict=True):
        scale = 5 / math.sqrt(length * 1024)
        assert part.std().item() == pytest.approx(scale / math.sqrt(3), rel=0.02)
        assert part.abs().max().item() <= scale
    short = packed_row([6], 1000)
    assert not torch.equal(forward(model.train(), short), forward(model, short))
    assert torch.equal(forward(model.eval(), short), forward(model, short))
    model.neftune_alpha = 0.0
    assert torch.equal(forward(model.train(), short), forward(model.eval(), short))


def test_autocast_keeps_the_weights_and_comes_close():
    model, row = lively(tiny(**SMALL | {"use_qk_norm": True}), torch.float32), packed_row([9, 3], 97)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.3)
    with torch.autocast("cpu", torch.bfloat16):
        logits = forward(model, row)
    assert logits.dtype == torch.bfloat16
    assert next(model.parameters()).dtype == torch.float32
    exact = forward(model, row)
    assert (logits - exact).norm() / exact.norm() < 0.02


def test_a_copy_in_another_process_is_the_same():
    model, row = lively(tiny(), torch.float32), packed_row([9, 3], 1000)
    before = forward(model, row)
    assert torch.equal(forward(pickle.loads(pickle.dumps(model)), row), before)


@pytest.mark.parametrize("changes", [{}, {"rope_layout": "interleaved"}], ids=["half", "interleaved"])
def test_without_gradients_it_is_the_same_model(changes):
    """Compiled kernels may serve where no gradient is wanted; where there are none this compares torch with itself."""
    model, row = lively(tiny(**SMALL | changes), torch.float32), packed_row([40, 1, 9], 97)
    with torch.no_grad():
        without = forward(model, row)
    recorded = forward(model, row)
    assert (recorded - without).norm() / recorded.norm() < 1e-5


def test_where_gradients_are_recorded_torch_computes():
    assert compiled_op("rotary", torch.ones(1, 1, 8)) is None
