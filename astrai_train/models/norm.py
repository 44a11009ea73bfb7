"""RMSNorm: y = x / sqrt(mean(x^2) + eps) * weight (arXiv:1910.07467, equation 4)."""

import torch
from torch import nn
from torch.nn import functional


class RMSNorm(nn.Module):
    """Over the last dimension; computed in the wider of the dtypes of input and weight, returned in the input's."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., size] -> [..., size]."""
        wide = x.to(torch.promote_types(x.dtype, self.weight.dtype))
        return functional.rms_norm(wide, self.weight.shape, self.weight, self.eps).to(x.dtype)
