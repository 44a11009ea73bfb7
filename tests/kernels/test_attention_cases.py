"""Acceptance cases of attention whose answers can be worked out by hand, on every path and dtype.

With q = 0 every visible key weighs the same, so the output is a mean of values. K2, K3: public defects.
"""

import math

import pytest
import torch

from astrai_kernels import KernelArgumentError, attention_varlen
from tests.kernels.test_attention import BACKENDS, DTYPES, borders_of, random_qkv, run

pytestmark = [pytest.mark.usefixtures("compiled"), pytest.mark.parametrize("backend", BACKENDS)]
HEAD_DIMS = [32, 64, 128, 256]


def mean_of_ramp(lengths, head_dim, backend, causal, dtype=torch.bfloat16):
    """Output with q = 0 and value j + 1 at position j of its segment, one number a token."""
    ramp = torch.cat([torch.arange(1.0, length + 1) for length in lengths])
    v = ramp[:, None, None].expand(-1, 1, head_dim).to(dtype)
    q, k = torch.zeros_like(v), random_qkv(len(ramp), 1, 1, head_dim, dtype)[1]
    out = run([q, k, v], borders_of(lengths), causal=causal, backend=backend)
    assert out.eq(out[..., :1]).all()
    return out[:, 0, 0].float()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_k01_k02_means(head_dim, dtype, backend):
    assert mean_of_ramp([4], head_dim, backend, False, dtype).tolist() == [2.5] * 4
    assert mean_of_ramp([3, 2], head_dim, backend, True, dtype).tolist() == [1, 1.5, 2, 1, 1.5]


@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32, 33, 511, 513])
def test_k18_lengths_around_tile_borders(length, backend):
    got = mean_of_ramp([length], 64, backend, False)
    wanted = torch.tensor((length + 1) / 2).bfloat16().float()
    assert torch.allclose(got, wanted.expand(length), rtol=0.01, atol=0.01)


def test_k1_more_segments_than_tokens(backend):
    lengths = [0, 1, 0, 0, 1, 0, 1, 0, 0]
    qkv = random_qkv(3, 4, 2, 16)
    assert run(qkv, borders_of(lengths), backend=backend).equal(qkv[2].repeat_interleave(2, 1))


@pytest.mark.parametrize(("q_heads", "kv_heads"), [(4, 2), (17, 1), (33, 1), (64, 1), (130, 1)])
def test_k13_k14_heads_of_a_group(q_heads, kv_heads, backend):
    q, k, v = random_qkv(9, q_heads, kv_heads, 32, torch.bfloat16)
    v = torch.tensor([1.0, 10.0])[:kv_heads, None].expand(9, kv_heads, 32).bfloat16()
    out = run([q, k, v], borders_of([9]), backend=backend)
    assert torch.allclose(out.float(), v.repeat_interleave(q_heads // kv_heads, 1).float(), rtol=0.01)


@pytest.mark.parametrize(
    ("scale", "wanted"), [(None, 4.0), (0.0, 4.0), (1 / math.sqrt(32), 4.0), (2 / math.sqrt(32), 4.6)]
)
def test_k15_k16_k17_scale(scale, wanted, backend):
    q, k, v = torch.zeros(3, 2, 1, 32)
    q[:, :, 0], k[1, :, 0], v[0], v[1] = math.sqrt(32), math.log(3), 1, 5
    out = run([q, k, v], borders_of([2]), scale=scale, backend=backend)
    assert torch.allclose(out[1], torch.tensor(wanted), rtol=1e-5)


def test_k31_k32_slices_of_a_fused_projection(backend):
    fused = torch.randn(50, 4 + 2 + 2, 32, generator=torch.Generator().manual_seed(1))
    q, k, v = fused.split([4, 2, 2], 1)
    dense = run([x.contiguous() for x in (q, k, v)], borders_of([20, 30]), backend=backend)
    assert torch.allclose(run([q, k, v], borders_of([20, 30]), backend=backend), dense, atol=1e-6)


@pytest.mark.parametrize("lengths", [[], [0], [0, 0]])
@pytest.mark.parametrize("num_tokens", [0, 3])
def test_k35_nothing_to_attend_to(lengths, num_tokens, backend):
    out = run(random_qkv(num_tokens, 2, 1, 16), borders_of(lengths), backend=backend)
    assert out.shape == (num_tokens, 2, 16)
    assert out.eq(0).all()


def replaced(name, value):
    arguments = dict(zip("qkv", random_qkv(8, 4, 2, 16), strict=True))
    arguments |= {"cu_seqlens": borders_of([8]), "max_seqlen": 8, "scale": None}
    return arguments | {name: value}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("q", torch.zeros(8, 3, 16)),
        ("q", torch.zeros(8, 64)),
        ("q", torch.zeros(8, 4, 16, dtype=torch.int32)),
        ("k", torch.zeros(8, 2, 24)),
        ("k", torch.zeros(7, 2, 16)),
        ("k", torch.zeros(8, 2, 16).bfloat16()),
        ("v", torch.zeros(8, 1, 16)),
        ("v", torch.zeros(8, 2, 16, device="meta")),
        ("cu_seqlens", torch.tensor([0, 8])),
        ("cu_seqlens", torch.tensor([], dtype=torch.int32)),
        ("cu_seqlens", torch.tensor([1, 8], dtype=torch.int32)),
        ("cu_seqlens", torch.tensor([0, 9], dtype=torch.int32)),
        ("cu_seqlens", torch.tensor([0, 5, 3, 8], dtype=torch.int32)),
        ("max_seqlen", 7),
        ("scale", -1.0),
        ("scale", math.nan),
    ],
)
def test_k33_errors_name_the_argument(name, value, backend):
    with pytest.raises(KernelArgumentError, match=rf"^{name}: got .*wanted"):
        attention_varlen(**replaced(name, value), backend=backend)
