"""Attention over keys in blocks, such that a token's result does not depend on what is computed beside it.

softmax(q K^T / sqrt(D)) V, where the keys come in blocks of `KEY_BLOCK`. Every matrix product has the same inner shape
whatever the number of sequences, queries or keys; the maximum of the scores is exact in any order; and the blocks'
sums are added in their order, where a block that a query may not see adds exactly zero. So the bits of a result
depend on the query and on the keys it sees, and not on neighbours, on where a prompt is cut into chunks, or on how far
the longest sequence of the batch reaches. One assumption is left, that a matrix product gives a row the same bits for
each number of rows in use; `engine/row_counts.py` checks it on the machine at hand.

The price is the scores in full, R * Hq * L floats; callers bound R. The fast kernels of torch cut their work by the
shape of the whole call and promise none of this.
"""

import torch

KEY_BLOCK = 128
"""Keys a block."""


def attend_blocks(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Causal attention of S sequences with R queries each, scaled by 1/sqrt(D).

    Args:
        q: [S, R, Hq, D].
        k: [S, L, Hkv, D], L a multiple of `KEY_BLOCK`; the key at index j has position j. Query head h reads key head
            h // (Hq / Hkv).
        v: as k.
        positions: int64 [S, R] of the queries; a query sees the keys up to its own position.

    Returns:
        [S, R, Hq, D] in q's dtype; computed in float32 at least.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    sizes = (*q.shape[:2], k.shape[2], q.shape[2] // k.shape[2], q.shape[3])  # S, R, Hkv, G, D
    key_blocks, value_blocks = (_in_blocks(x.to(wide)) for x in (k, v))  # [S, Hkv, n, B, D]
    num_blocks = key_blocks.shape[2]
    queries = q.to(wide).reshape(sizes).permute(0, 2, 1, 3, 4).flatten(2, 3)  # [S, Hkv, R * G, D]
    queries = queries.unsqueeze(2).expand(-1, -1, num_blocks, -1, -1).flatten(0, 2)
    scores = torch.bmm(queries * sizes[-1] ** -0.5, key_blocks.flatten(0, 2).transpose(1, 2))
    weights = _exponentials(scores, positions, sizes, num_blocks)
    parts = torch.bmm(weights, value_blocks.flatten(0, 2))  # [S * Hkv * n, R * G, D]
    total, norm = (_sum_in_order(x, sizes, num_blocks) for x in (parts, weights.sum(-1, keepdim=True)))
    out = (total / norm).unflatten(2, (sizes[1], sizes[3]))  # [S, Hkv, R, G, D]
    return out.transpose(1, 2).reshape(q.shape).to(q.dtype)


def _in_blocks(x: torch.Tensor) -> torch.Tensor:
    """[S, L, Hkv, D] -> [S, Hkv, n, B, D], contiguous."""
    return x.unflatten(1, (-1, KEY_BLOCK)).permute(0, 3, 1, 2, 4).contiguous()


def _exponentials(scores: torch.Tensor, positions: torch.Tensor, sizes: tuple, num_blocks: int) -> torch.Tensor:
    """exp(score - the query's largest), zero for keys behind the query; [S * Hkv * n, R * G, B] in and out."""
    num_sequences, num_queries, kv_heads, group, _ = sizes
    scores = scores.view(num_sequences, kv_heads, num_blocks, num_queries, group, KEY_BLOCK)
    key_positions = torch.arange(num_blocks * KEY_BLOCK, device=scores.device).view(1, num_blocks, 1, KEY_BLOCK)
    hidden = key_positions > positions[:, None, :, None]  # [S, n, R, B]
    scores.masked_fill_(hidden[:, None, :, :, None], -torch.inf)
    largest = scores.amax((2, 5), keepdim=True)
    return (scores - largest).exp_().view(-1, num_queries * group, KEY_BLOCK)


def _sum_in_order(parts: torch.Tensor, sizes: tuple, num_blocks: int) -> torch.Tensor:
    """[S * Hkv * n, R * G, d] -> [S, Hkv, R * G, d], block after block."""
    parts = parts.view(sizes[0], sizes[2], num_blocks, *parts.shape[1:])
    total = parts[:, :, 0]
    for block in range(1, num_blocks):
        total = total + parts[:, :, block]
    return total
