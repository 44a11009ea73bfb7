"""What makes them torch operators: schema, fake tensors, gradients, compilation, autocast."""

import pytest
import torch

from astrai_kernels import attention_varlen, rotary
from tests.kernels import exact
from tests.kernels.test_attention import BACKENDS, borders_of, random_qkv

pytestmark = pytest.mark.usefixtures("compiled")
LENGTHS = [3, 0, 6, 1]


def attention_arguments(backend, dtype=torch.float32, requires_grad=True):
    qkv = [x.requires_grad_(requires_grad) for x in random_qkv(12, 4, 2, 8, dtype)]
    return *qkv, borders_of(LENGTHS), 6, 0.3, True, backend


@pytest.mark.parametrize("backend", BACKENDS)
def test_attention_passes_opcheck(backend):
    torch.library.opcheck(torch.ops.astrai.attention_varlen, attention_arguments(backend))


@pytest.mark.parametrize("backend", BACKENDS)
def test_rotary_passes_opcheck(backend):
    x = [torch.randn(5, heads, 8, requires_grad=True) for heads in (4, 2)]
    table = torch.rand(5, 4)
    torch.library.opcheck(torch.ops.astrai.rotary, (x, table, table, None, "half", backend))
    torch.library.opcheck(torch.ops.astrai.rotary, (x, table, table, torch.arange(5), "interleaved", backend))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("heads", [(2, 2), (4, 2), (3, 1)])
def test_attention_gradients_in_float64(causal, heads):
    qkv = [x.requires_grad_() for x in random_qkv(7, *heads, 3, torch.float64)]

    def function(q, k, v):
        return attention_varlen(q, k, v, borders_of([2, 0, 4]), 4, causal=causal)

    assert torch.autograd.gradcheck(function, qkv)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_rotary_gradients_in_float64(layout):
    q, k = (torch.randn(5, heads, 10, dtype=torch.float64, requires_grad=True) for heads in (2, 1))
    cos, sin = torch.rand(2, 5, 4, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda q, k: rotary((q, k), cos, sin, layout), (q, k))
    assert torch.autograd.gradgradcheck(lambda q, k: rotary((q, k), cos, sin, layout), (q, k))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_k48_gradients_equal_autograd_through_the_formula(dtype, tolerance, backend):
    """Segments longer than one block of the backward, on both paths of the forward."""
    borders = borders_of([700, 0, 40])
    qkv = [x.requires_grad_() for x in random_qkv(740, 6, 2, 16, dtype)]
    twins = [x.detach().double().requires_grad_() for x in qkv]
    upstream = torch.randn(740, 6, 16).to(dtype)
    attention_varlen(*qkv, borders, 700, backend=backend).backward(upstream)
    exact.attention(*twins, borders.tolist()).backward(upstream.double())
    for x, twin in zip(qkv, twins, strict=True):
        assert x.grad.dtype == dtype
        assert exact.distance(x.grad, twin.grad) < tolerance


@pytest.mark.parametrize("backend", BACKENDS)
def test_compiles_without_a_graph_break(backend):
    def block(q, k, v, cos, sin, borders):
        q, k = rotary((q, k), cos, sin, backend=backend)
        return attention_varlen(q * 2, k, v, borders, 6, backend=backend) + 1

    *qkv, borders, _, _, _, _ = attention_arguments(backend)
    arguments = (*qkv, torch.rand(12, 4), torch.rand(12, 4), borders)
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager", dynamic=True)
    wanted = block(*arguments)
    got = compiled(*arguments)
    assert torch.allclose(got, wanted, atol=1e-6)
    eager = torch.autograd.grad(wanted.sum(), qkv)
    for a, b in zip(torch.autograd.grad(got.sum(), qkv), eager, strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_fake_tensors_carry_shape_and_dtype():
    with torch._subclasses.FakeTensorMode():
        q, kv = torch.empty(10, 4, 16, dtype=torch.bfloat16), torch.empty(10, 2, 16, dtype=torch.bfloat16)
        out = attention_varlen(q, kv, kv, torch.zeros(3, dtype=torch.int32), 10)
        turned = rotary((q, kv), torch.empty(10, 8), torch.empty(10, 8))
    assert (out.shape, out.dtype) == (q.shape, q.dtype)
    assert [x.shape for x in turned] == [q.shape, kv.shape]


@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast_brings_mixed_dtypes_together(backend):
    q, k, v = random_qkv(9, 2, 2, 16)
    with torch.autocast("cpu", torch.bfloat16):
        out = attention_varlen(q, k, v.bfloat16(), borders_of([9]), 9, backend=backend)
    assert out.dtype == torch.bfloat16
    assert exact.distance(out, exact.attention(q, k, v, [0, 9])) < 1e-2
