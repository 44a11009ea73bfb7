"""Rotary positions: the table, the rotation, the scalings."""

import math

import pytest
import torch

from astrai_train.models import ModelConfigError, NotSupportedYetError
from astrai_train.models.rope import RotaryTable, rotate_pair
from astrai_train.models.rope_scaling import RopeScaling
from tests.train.small_models import tiny


def table(dim, positions, dtype=torch.float32, **changes):
    return RotaryTable(tiny(head_dim=dim, **changes))(torch.tensor(positions), dtype)


def rotate(x, position, layout):
    rotation = table(x.shape[-1], [position] * x.shape[0], x.dtype)
    return rotate_pair(x[:, None], x[:, None], rotation, layout)[0][:, 0]


def test_table():
    cos, sin = table(4, [0, 1])
    torch.testing.assert_close(cos, torch.tensor([[1, 1], [0.540302, 0.999950]]), atol=1e-6, rtol=0)
    torch.testing.assert_close(sin, torch.tensor([[0, 0], [0.841471, 0.010000]]), atol=1e-6, rtol=0)
    assert cos.dtype == torch.float32


def test_table_stays_float32_in_a_bfloat16_model_and_is_exact():
    cos, _ = table(8, range(64), torch.bfloat16)
    assert cos.dtype == torch.float32
    exact = [[math.cos(p * 10000 ** (-2 * i / 8)) for i in range(4)] for p in range(64)]
    assert torch.equal(cos, torch.tensor(exact, dtype=torch.float64).float())
    assert table(8, [3], torch.float64)[0].dtype == torch.float64


def test_rows_are_taken_by_position():
    cos, _ = table(4, [0, 0, 1])
    assert torch.equal(cos[0], cos[1])
    assert not torch.equal(cos[1], cos[2])


@pytest.mark.parametrize(
    ("layout", "x"), [("interleaved", [1.0, 2, 3, 4]), ("half", [1.0, 3, 2, 4])], ids=["interleaved", "half"]
)
def test_rotation(layout, x):
    turned = rotate(torch.tensor([x]), 1, layout)[0]
    order = [0, 1, 2, 3] if layout == "interleaved" else [0, 2, 1, 3]
    wanted = torch.tensor([-1.142640, 1.922076, 2.959851, 4.029799])
    torch.testing.assert_close(turned[order], wanted, atol=1e-6, rtol=0)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_only_the_distance_counts(layout):
    q, k = torch.randn(2, 1, 8, dtype=torch.float64)
    dots = [(rotate(q, i, layout) * rotate(k, j, layout)).sum() for i, j in ((5, 2), (13, 10), (3, 0))]
    torch.testing.assert_close(torch.stack(dots), dots[0].expand(3), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_gradient_of_the_rotation(layout):
    q, k = torch.randn(3, 2, 8, dtype=torch.float64), torch.randn(3, 1, 8, dtype=torch.float64)
    rotation = table(8, [0, 1, 5], torch.float64)
    inputs = q.requires_grad_(), k.requires_grad_()
    assert torch.autograd.gradcheck(lambda q, k: rotate_pair(q, k, rotation, layout), inputs)
    assert torch.autograd.gradgradcheck(lambda q, k: rotate_pair(q, k, rotation, layout), inputs)


@pytest.mark.parametrize(
    ("dim", "factor", "base"), [(8, 4, 63496.042), (64, 4, 41829.366), (128, 8, 82684.623), (4, 2, 40000)]
)
def test_ntk_changes_the_base(dim, factor, base):
    for raw in ({"type": "ntk", "factor": factor}, {"rope_type": "ntk", "factor": factor}, {"factor": factor}):
        frequencies = RopeScaling.from_dict(raw).frequencies(dim, 10000.0, 64)
        assert frequencies == pytest.approx([base ** (-2 * i / dim) for i in range(dim // 2)], rel=1e-7)
        plain = RopeScaling().frequencies(dim, 10000.0, 64)
        assert frequencies[0] == 1
        assert frequencies[-1] == pytest.approx(plain[-1] / factor, rel=1e-9)


def test_linear_divides_positions_and_stretches_the_table():
    config = {"rope_scaling": {"type": "linear", "factor": 4}}
    assert torch.equal(torch.stack(table(8, [8], **config)), torch.stack(table(8, [2])))
    assert RotaryTable(tiny(**config)).num_positions == 256


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def test_llama3_keeps_the_fast_and_divides_the_slow():
    scaled = RopeScaling.from_dict({"rope_type": "llama3"} | LLAMA3).frequencies(128, 500000.0, 131072)
    plain = RopeScaling().frequencies(128, 500000.0, 131072)
    for theta, got in zip(plain, scaled, strict=True):
        wavelength = 2 * math.pi / theta
        if wavelength < 8192 / 4:
            assert got == theta
        elif wavelength > 8192:
            assert got == pytest.approx(theta / 8, rel=1e-14)
        else:
            s = (8192 / wavelength - 1) / 3
            assert got == pytest.approx((1 - s) * theta / 8 + s * theta, rel=1e-14)
    assert RopeScaling.from_dict({"rope_type": "llama3"} | LLAMA3).num_positions(131072) == 131072


def test_yarn_keeps_the_fast_divides_the_slow_and_scales_attention():
    raw = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
    scaling, plain = RopeScaling.from_dict(raw), RopeScaling().frequencies(64, 10000.0, 4096)
    scaled = scaling.frequencies(64, 10000.0, 16384)
    ratios = [b / a for a, b in zip(plain, scaled, strict=True)]
    # Pairs that turn more than 32 times within 4096 positions, and less than once.
    fast = [i for i, theta in enumerate(plain) if 4096 * theta / (2 * math.pi) > 32]
    slow = [i for i, theta in enumerate(plain) if 4096 * theta / (2 * math.pi) < 1]
    assert ratios[0] == 1
    assert ratios[fast[-1]] == 1
    assert all(ratios[i] == pytest.approx(0.25) for i in slow[1:])
    assert ratios == sorted(ratios, reverse=True)
    assert scaling.attention_factor == pytest.approx(0.1 * math.log(4) + 1)
    cos, _ = table(8, [0], rope_scaling=raw)
    assert cos[0, 0].item() == pytest.approx(scaling.attention_factor)


@pytest.mark.parametrize(
    ("raw", "error", "says"),
    [
        ({"type": "liner", "factor": 2}, ModelConfigError, "linear"),
        ({"type": "linear", "factor": 0}, ModelConfigError, "positive number"),
        ({"type": "linear", "factor": "2"}, ModelConfigError, "positive number"),
        ({"type": "linear", "factr": 2}, ModelConfigError, "factor"),
        ({"rope_type": "llama3", "factor": 8}, ModelConfigError, "low_freq_factor"),
        ({"rope_type": "dynamic", "factor": 2}, NotSupportedYetError, "dynamic"),
    ],
)
def test_scalings_that_are_refused(raw, error, says):
    with pytest.raises(error, match=says):
        tiny(rope_scaling=raw)


def test_a_type_that_switches_nothing():
    assert RopeScaling.from_dict({"rope_type": "default"}) == RopeScaling()
    assert RopeScaling.from_dict({}) == RopeScaling.from_dict(None) == RopeScaling()
