"""The norm of the gradient of all parameters together, and its limit."""

from collections.abc import Iterable

import torch


def gradient_norm(parameters: Iterable[torch.nn.Parameter]) -> torch.Tensor:
    """The Euclidean norm over all gradients: a scalar on their device."""
    return torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])


def clip_gradient(parameters: Iterable[torch.nn.Parameter], max_norm: float, norm: torch.Tensor) -> None:
    """Shorten the gradient to `max_norm`, if it is longer; 0: leave it.

    Args:
        parameters: whose gradients are changed in place.
        max_norm: the longest it may be.
        norm: of the gradient as it is, from `gradient_norm`.
    """
    if max_norm > 0:
        torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
