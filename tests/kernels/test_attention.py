"""Variable-length attention: every path against float64, and what must hold to the last bit."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from astrai_kernels import attention_varlen
from tests.kernels import exact

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
DTYPES = [torch.float32, torch.bfloat16]
BACKENDS = ["torch", "cpu"]

pytestmark = pytest.mark.usefixtures("compiled")


def borders_of(lengths):
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


def random_qkv(num_tokens, q_heads, kv_heads, head_dim, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(num_tokens, heads, head_dim) for heads in (q_heads, kv_heads, kv_heads)]
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def run(qkv, cu_seqlens, **options):
    longest = int(cu_seqlens.diff().max()) if len(cu_seqlens) > 1 else 0
    return attention_varlen(*qkv, cu_seqlens, longest, **options)


def stridden(x, kind):
    """The same values in other memory."""
    if kind == "dense":
        return x
    if kind == "heads first":
        return x.transpose(0, 1).contiguous().transpose(0, 1)
    if kind == "slice":
        wide = torch.full((x.shape[0], x.shape[1], x.shape[2] + 16), torch.nan, dtype=x.dtype)
        wide[..., 3 : 3 + x.shape[2]] = x
        return wide[..., 3 : 3 + x.shape[2]]
    return x.transpose(1, 2).contiguous().transpose(1, 2)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.one_of(st.integers(0, 3), st.integers(0, 40), st.integers(120, 300)), max_size=6),
    kv_heads=st.integers(1, 3),
    group=st.sampled_from([1, 2, 3, 4, 7]),
    head_dim=st.integers(1, 32).map(lambda eighths: 8 * eighths),
    kinds=st.tuples(*[st.sampled_from(["dense", "heads first", "slice", "last axis wide"])] * 3),
    tail=st.integers(0, 2),
    causal=st.booleans(),
    dtype=st.sampled_from(DTYPES),
    scale=st.sampled_from([None, 0.3]),
)
def test_equals_float64(lengths, kv_heads, group, head_dim, kinds, tail, causal, dtype, scale):
    cu_seqlens = borders_of(lengths)
    qkv = random_qkv(sum(lengths) + tail, kv_heads * group, kv_heads, head_dim, dtype)
    truth = exact.attention(*qkv, cu_seqlens.tolist(), causal=causal, scale=scale)
    placed = [stridden(x, kind) for x, kind in zip(qkv, kinds, strict=True)]
    for backend in BACKENDS:
        got = run(placed, cu_seqlens, causal=causal, scale=scale, backend=backend)
        assert got.dtype == dtype
        assert got.is_contiguous()
        assert exact.distance(got, truth) < TOLERANCE[dtype]
        assert got[sum(lengths) :].eq(0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lengths", [[1000], [128, 129, 127, 96, 97], [1] * 50, [0, 0, 7, 0]])
def test_bits_do_not_depend_on_threads(lengths, dtype):
    qkv = random_qkv(sum(lengths), 6, 2, 64, dtype)
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(run(qkv, borders_of(lengths), backend="cpu"))
    assert results[0].equal(results[1])
    assert results[0].equal(results[2])


@pytest.mark.parametrize("poison", [torch.nan, 1e30])
def test_no_segment_touches_another(poison):
    lengths = [30, 150, 1, 64]
    cu_seqlens, qkv = borders_of(lengths), random_qkv(sum(lengths), 4, 2, 32)
    before = run(qkv, cu_seqlens, backend="cpu")
    for begin, end in pairwise(cu_seqlens.tolist()):
        touched = [x.clone() for x in qkv]
        for x in touched:
            x[begin:end] = poison
        after = run(touched, cu_seqlens, backend="cpu")
        assert after[:begin].equal(before[:begin])
        assert after[end:].equal(before[end:])


def test_the_past_does_not_see_the_future():
    qkv = random_qkv(200, 4, 2, 32)
    before = run(qkv, borders_of([200]), backend="cpu")
    for x in qkv:
        x[150:] = 7.0
    assert run(qkv, borders_of([200]), backend="cpu")[:150].equal(before[:150])


@pytest.mark.parametrize("backend", BACKENDS)
def test_scores_that_overflow_the_exponential_stay_finite(backend):
    q, k, v = random_qkv(70, 2, 1, 16)
    got = run([q * 100, k * 100, v], borders_of([70]), backend=backend)
    assert exact.distance(got, exact.attention(q * 100, k * 100, v, [0, 70])) < 1e-4


@pytest.mark.parametrize("score", [-math.inf, math.nan])
def test_k3_rows_without_a_usable_score(score):
    """Only the compiled path: what torch's own kernels make of infinities is theirs."""
    q, k, v = (torch.full((200, 2, 16), value) for value in (1.0, 1.0, 2.0))
    k[:150] = score
    out = run([q, k, v], borders_of([200]), backend="cpu")
    if math.isnan(score):
        assert out.isnan().all()
    else:
        assert out[:150].eq(0).all()
        assert torch.allclose(out[150:], v[150:])


def test_offsets_beyond_32_bits(tmp_path):
    """Tokens 2^31 elements apart, in a sparse file of 20 GB of which five pages exist."""
    stride, shape = 2**31 + 8, (3, 1, 8)
    flat = torch.from_file(str(tmp_path / "sparse"), shared=True, size=2 * stride + 8, dtype=torch.float32)
    far = flat.as_strided(shape, (stride, 8, 1))
    near = random_qkv(3, 1, 1, 8)[0]
    far.copy_(near)
    assert run([far] * 3, borders_of([3]), backend="cpu").equal(run([near] * 3, borders_of([3]), backend="cpu"))
