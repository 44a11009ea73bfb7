"""The operators in plain torch: the path that is always there, and the truth the compiled ones are tested against.

Attention runs segment by segment, so no mask over the whole row ever exists; the backward recomputes the weights
block by block in at least float32. It is written out (Dao et al. 2022, FlashAttention, appendix B.2) and not taken
from autograd, because an operator's implementation runs below autograd.
"""

from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own name for it)

MAX_SCORES = 1 << 19  # of one block of the backward: 2 MiB of float32, so that its passes stay near the cache


def attention_varlen(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, borders: list[int], scale: float, causal: bool
) -> torch.Tensor:
    """[T, Hq, D]; tokens past the last border get zeros."""
    out = torch.zeros(q.shape, dtype=q.dtype, device=q.device)
    for begin, end in pairwise(borders):
        if begin < end:
            heads_first = (x[begin:end].transpose(0, 1).unsqueeze(0) for x in (q, k, v))
            shared = q.shape[1] != k.shape[1]
            one = F.scaled_dot_product_attention(*heads_first, is_causal=causal, scale=scale, enable_gqa=shared)
            out[begin:end] = one[0].transpose(0, 1)
    return out


def attention_varlen_backward(
    grad: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    borders: list[int],
    scale: float,
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of q, k and v, in their shapes and dtype."""
    grads = tuple(torch.zeros(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    with torch.autocast(q.device.type, enabled=False):
        for begin, end in pairwise(borders):
            if begin < end:
                part = slice(begin, end)
                found = _segment_backward(grad[part], q[part], k[part], v[part], scale, causal)
                for whole, one in zip(grads, found, strict=True):
                    whole[part] = one
    return grads


def _segment_backward(grad, q, k, v, scale, causal):
    """The same for one segment of `length` tokens. Grouped tensors are [kv_heads, group, length, head_dim]."""
    length, kv_heads, _ = k.shape
    wide = torch.promote_types(q.dtype, torch.float32)
    q, grad = (x.to(wide).unflatten(1, (kv_heads, -1)).permute(1, 2, 0, 3) for x in (q, grad))
    k, v = (x.to(wide).transpose(0, 1) for x in (k, v))
    grad_q, grad_k, grad_v = (torch.zeros_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    block = max(16, MAX_SCORES // (q.shape[0] * q.shape[1] * length))
    for first in range(0, length, block):
        rows = slice(first, min(first + block, length))
        keys = slice(0, rows.stop if causal else length)
        limits = torch.arange(rows.start, rows.stop, device=q.device) if causal else None
        dq, dk, dv = _block_backward(grad[:, :, rows], q[:, :, rows], k[:, keys], v[:, keys], scale, limits)
        grad_q[:, :, rows] = dq
        grad_k[:, keys] += dk
        grad_v[:, keys] += dv
    return grad_q.permute(2, 0, 1, 3).flatten(1, 2), grad_k.transpose(0, 1), grad_v.transpose(0, 1)


def _block_backward(grad, q, k, v, scale, limits):
    """One block of query rows against `keys`; `limits` [rows] is the last key of each row, None: all of them."""
    grouped = q.shape
    q, grad = (x.flatten(1, 2) for x in (q, grad))
    scores = (q @ k.transpose(1, 2)).mul_(scale)
    if limits is not None:
        hidden = torch.arange(k.shape[1], device=q.device) > limits[:, None]
        scores.unflatten(1, grouped[1:3]).masked_fill_(hidden, float("-inf"))
    weights = scores.softmax(-1)
    grad_v = weights.transpose(1, 2) @ grad
    grad_weights = grad @ v.transpose(1, 2)
    mean = (weights * grad_weights).sum(-1, keepdim=True)
    grad_scores = weights.mul_(grad_weights.sub_(mean)).mul_(scale)
    return (grad_scores @ k).unflatten(1, grouped[1:3]), grad_scores.transpose(1, 2) @ q, grad_v


def rotary(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, positions: torch.Tensor | None, layout: str
) -> torch.Tensor:
    """`x` [T, H, D] turned; computed in at least float32 and rounded once."""
    wide = torch.promote_types(x.dtype, torch.float32)
    cos, sin = (table if positions is None else table[positions] for table in (cos, sin))
    cos, sin = cos[:, None].to(wide), sin[:, None].to(wide)
    width = 2 * cos.shape[-1]
    turned, rest = x[..., :width].to(wide), x[..., width:]
    if layout == "half":
        a, b = turned.chunk(2, -1)
        turned = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
    else:
        a, b = turned[..., 0::2], turned[..., 1::2]
        turned = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
    return torch.cat((turned.to(x.dtype), rest), -1)
