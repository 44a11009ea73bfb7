"""Attention and rotary in float64, as the formulas stand: the truth of the tests, slow and plain."""

import math
from itertools import pairwise

import torch


def attention(q, k, v, borders, *, scale=None, causal=True) -> torch.Tensor:
    """[T, Hq, D] float64; every key-value head repeated for its group, every segment with its own full mask."""
    scale = scale or 1 / math.sqrt(q.shape[-1])
    group = q.shape[1] // k.shape[1]
    q, k, v = q.double(), k.double().repeat_interleave(group, 1), v.double().repeat_interleave(group, 1)
    out = torch.zeros_like(q)
    for begin, end in pairwise(borders):
        scores = torch.einsum("ihd,jhd->hij", q[begin:end], k[begin:end]) * scale
        if causal:
            hidden = torch.ones(end - begin, end - begin, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, -math.inf)
        out[begin:end] = torch.einsum("hij,jhd->ihd", scores.softmax(-1), v[begin:end])
    return out


def rotary(x, cos, sin, layout) -> torch.Tensor:
    """[T, H, D] float64, element pair by element pair as complex numbers."""
    pairs = cos.shape[-1]
    out = x.double().clone()
    first = slice(0, 2 * pairs, 2) if layout == "interleaved" else slice(0, pairs)
    second = slice(1, 2 * pairs, 2) if layout == "interleaved" else slice(pairs, 2 * pairs)
    turn = torch.complex(cos.double(), sin.double())[:, None]
    turned = torch.complex(out[..., first].clone(), out[..., second].clone()) * turn
    out[..., first], out[..., second] = turned.real, turned.imag
    return out


def distance(got: torch.Tensor, truth: torch.Tensor) -> float:
    """|got - truth| / |truth|, in norms; 0 for two empty or all-zero tensors."""
    norm = truth.norm().item()
    return (got.double() - truth).norm().item() / norm if norm else got.double().norm().item()
