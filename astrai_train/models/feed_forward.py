"""The feed-forward part: SwiGLU, down(silu(gate(x)) * up(x)) (arXiv:2002.05202, equation 6)."""

import torch
from torch import nn
from torch.nn import functional

from astrai_train.models.config import ModelConfig


class FeedForward(nn.Module):
    """Three matrices without bias."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[T, hidden] -> [T, hidden]."""
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
