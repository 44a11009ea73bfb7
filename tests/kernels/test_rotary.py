"""Rotary embedding: every path and layout against complex numbers in float64, and the worked cases."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from astrai_kernels import KernelArgumentError, rotary
from tests.kernels import exact
from tests.kernels.test_attention import BACKENDS, DTYPES, TOLERANCE, stridden

pytestmark = pytest.mark.usefixtures("compiled")
LAYOUTS = ["half", "interleaved"]


def tables(num_rows, pairs, seed=0):
    angles = torch.rand(num_rows, pairs, generator=torch.Generator().manual_seed(seed)) * 6.28
    return angles.cos(), angles.sin()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    num_tokens=st.integers(0, 50),
    heads=st.tuples(st.integers(0, 9), st.integers(1, 3)),
    half=st.integers(1, 70),
    unturned=st.integers(0, 10),
    kinds=st.tuples(*[st.sampled_from(["dense", "heads first", "slice", "last axis wide"])] * 2),
    layout=st.sampled_from(LAYOUTS),
    dtype=st.sampled_from(DTYPES),
    look_up=st.booleans(),
)
def test_equals_float64(num_tokens, heads, half, unturned, kinds, layout, dtype, look_up):
    generator = torch.Generator().manual_seed(half)
    cos, sin = tables(num_tokens + 5 * look_up, max(1, half - unturned))
    positions = torch.randint(0, num_tokens + 5, (num_tokens,), generator=generator) if look_up else None
    several = [torch.randn(num_tokens, count, 2 * half, generator=generator).to(dtype) for count in heads]
    rows = slice(None) if positions is None else positions
    for backend in BACKENDS:
        placed = [stridden(x, kind) for x, kind in zip(several, kinds, strict=True)]
        turned = rotary(placed, cos, sin, layout, positions=positions, backend=backend)
        for x, got in zip(several, turned, strict=True):
            assert got.dtype == dtype
            assert exact.distance(got, exact.rotary(x, cos[rows], sin[rows], layout)) < TOLERANCE[dtype]


@pytest.mark.parametrize("backend", BACKENDS)
def test_k38_worked_example(backend):
    x, angles = torch.tensor([[[1.0, 2, 3, 4]]]), torch.tensor([[1.0, 0.5]])
    wanted = torch.tensor([-1.1426, 1.9221, 0.7150, 4.9486])
    got = rotary(x, angles.cos(), angles.sin(), "interleaved", backend=backend)
    assert torch.allclose(got, wanted, atol=1e-4)
    half = rotary(x[..., [0, 2, 1, 3]], angles.cos(), angles.sin(), "half", backend=backend)
    assert half.equal(got[..., [0, 2, 1, 3]])
    rounded = rotary(x.bfloat16(), angles.cos(), angles.sin(), "interleaved", backend=backend)
    assert rounded.flatten().tolist() == [-1.140625, 1.921875, 0.71484375, 4.9375]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16, torch.float64])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_k39_position_0_changes_no_bit(backend, dtype, layout):
    if backend == "cpu" and dtype not in DTYPES:
        pytest.skip("not compiled for it")
    x = torch.randn(3, 2, 16).to(dtype)
    assert rotary(x, torch.ones(3, 8), torch.zeros(3, 8), layout, backend=backend).equal(x)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_k42_batches_and_gradients(backend, layout):
    x = torch.randn(2, 17, 4, 64).bfloat16().requires_grad_()
    cos, sin = (table.view(2, 17, 32) for table in tables(34, 32))
    out = rotary(x, cos, sin, layout, backend=backend)
    assert out.shape == x.shape
    upstream = torch.randn_like(out)
    out.backward(upstream)
    assert x.grad.equal(rotary(upstream, cos, -sin, layout, backend=backend))


@pytest.mark.parametrize("backend", BACKENDS)
def test_looking_up_equals_gathering_before(backend):
    x, positions = torch.randn(2, 9, 3, 32), torch.randint(0, 20, (2, 9))
    cos, sin = tables(20, 16)
    found = rotary(x, cos, sin, positions=positions, backend=backend)
    assert found.equal(rotary(x, cos[positions], sin[positions], backend=backend))


def test_both_paths_are_within_one_bf16_step():
    x, (cos, sin) = torch.randn(200, 4, 64).bfloat16(), tables(200, 32)
    a, b = (rotary(x, cos, sin, backend=backend).view(torch.int16).int() for backend in BACKENDS)
    assert (a - b).abs().max() <= 1


X, COS = torch.zeros(4, 2, 8), torch.zeros(4, 4)


@pytest.mark.parametrize(
    ("name", "arguments", "options"),
    [
        ("x", (torch.zeros(4, 2, 7), COS, COS), {}),
        ("x", (torch.zeros(4, 2, 6), COS, COS), {}),
        ("x", (X.int(), COS, COS), {}),
        ("cos", (X, COS[:3], COS[:3]), {}),
        ("cos", (X, COS.clone().requires_grad_(), COS), {}),
        ("sin", (X, COS, COS[:, :3]), {}),
        ("layout", (X, COS, COS, "neox"), {}),
        ("positions", (X, COS, COS), {"positions": torch.zeros(3, dtype=torch.int64)}),
        ("positions", (X, COS, COS), {"positions": torch.zeros(4, dtype=torch.int32)}),
        ("positions", (X, COS, COS), {"positions": torch.full((4,), 4)}),
        ("positions", (X, COS, COS), {"positions": torch.full((4,), -1)}),
    ],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_k43_errors_name_the_argument(name, arguments, options, backend):
    with pytest.raises(KernelArgumentError, match=rf"^{name}: got .*wanted"):
        rotary(*arguments, **options, backend=backend)
