"""Fresh weights: normal with `initializer_range`, the matrices that write to the residual stream smaller by depth."""

import math

import torch
from torch import nn

from astrai_train.models.norm import RMSNorm

WRITES_TO_RESIDUAL = ("o_proj", "down_proj")


def initialise(model: nn.Module, std: float, num_layers: int, generator: torch.Generator | None = None) -> None:
    """Fill every weight: N(0, std); o_proj and down_proj N(0, std / sqrt(2 * num_layers)); norms 1.

    Two branches a layer add to the stream, so this keeps its variance from growing with the depth.
    """
    for name, module in model.named_modules():
        if isinstance(module, RMSNorm):
            nn.init.ones_(module.weight)
        elif isinstance(module, nn.Linear | nn.Embedding):
            is_deep = name.rpartition(".")[2] in WRITES_TO_RESIDUAL
            nn.init.normal_(module.weight, 0.0, std / math.sqrt(2 * num_layers) if is_deep else std, generator)
