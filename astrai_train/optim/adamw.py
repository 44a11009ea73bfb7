"""AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101), with decay on matrices only."""

import torch
from torch import nn

BETAS = (0.9, 0.95)
EPSILON = 1e-8


def build_adamw(model: nn.Module, *, lr: float, weight_decay: float) -> torch.optim.AdamW:
    """AdamW over a model's parameters, each once.

    Norms, biases and embeddings (also one that is the head as well) are not decayed: there is no reason why a rare
    token's vector should shrink while the token is not seen.
    """
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    decayed, free = [], []
    for parameter in model.parameters():
        is_matrix = parameter.dim() >= 2 and id(parameter) not in embeddings
        (decayed if is_matrix else free).append(parameter)
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": free, "weight_decay": 0.0}]
    # One pass over memory instead of about ten.
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=lr, betas=BETAS, eps=EPSILON, fused=True
    )
