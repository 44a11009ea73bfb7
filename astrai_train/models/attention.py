"""Grouped-query attention: projections, norms, rotation, gate. Who attends to whom is the context's business.

The model never sees a mask or a cache: it hands rotated queries and keys to an `AttentionContext`. Training brings
`PackedAttention` (documents packed in a row), the server its paged cache.
"""

from typing import Protocol

import torch
from torch import nn

from astrai_train.models.config import ModelConfig
from astrai_train.models.norm import RMSNorm
from astrai_train.models.rope import Rotation, rotate_pair


class AttentionContext(Protocol):
    """What the tokens of one forward may attend to."""

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Attention of one layer, scaled by 1/sqrt(D).

        Args:
            layer: its index, for contexts that keep keys and values.
            q: [T, Hq, D], rotated.
            k: [T, Hkv, D], rotated; query head h reads key head h // (Hq / Hkv).
            v: [T, Hkv, D].

        Returns:
            [T, Hq, D].
        """
        ...


class Attention(nn.Module):
    """One layer's attention (GQA, arXiv:2305.13245)."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        width, head_dim = config.hidden_size, config.head_dim
        query_width, key_width = config.num_attention_heads * head_dim, config.num_key_value_heads * head_dim
        self.layer, self.head_dim, self.rope_layout = layer, head_dim, config.rope_layout
        self.norm_first = config.qk_norm_position == "before"
        self.q_proj = nn.Linear(width, query_width, bias=False)
        self.k_proj = nn.Linear(width, key_width, bias=False)
        self.v_proj = nn.Linear(width, key_width, bias=False)
        self.o_proj = nn.Linear(query_width, width, bias=False)
        self.q_norm = RMSNorm(head_dim, config.rms_norm_eps) if config.use_qk_norm else None
        self.k_norm = RMSNorm(head_dim, config.rms_norm_eps) if config.use_qk_norm else None
        self.output_gate = nn.Linear(width, query_width, bias=False) if config.use_gated_attention else None

    def forward(self, x: torch.Tensor, rotation: Rotation, context: AttentionContext) -> torch.Tensor:
        """[T, hidden], already normed -> [T, hidden]."""
        q, k, v = (project(x).unflatten(-1, (-1, self.head_dim)) for project in (self.q_proj, self.k_proj, self.v_proj))
        q, k = self._placed(q, k, rotation)
        out = context.attend(self.layer, q, k, v).flatten(1)
        if self.output_gate is not None:
            out = out * torch.sigmoid(self.output_gate(x))
        return self.o_proj(out)

    def _placed(self, q: torch.Tensor, k: torch.Tensor, rotation: Rotation) -> tuple[torch.Tensor, torch.Tensor]:
        if self.q_norm is None:
            return rotate_pair(q, k, rotation, self.rope_layout)
        if self.norm_first:
            return rotate_pair(self.q_norm(q), self.k_norm(k), rotation, self.rope_layout)
        q, k = rotate_pair(q, k, rotation, self.rope_layout)
        return self.q_norm(q), self.k_norm(k)
