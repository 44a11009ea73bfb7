"""An optimizer's state as tensors with names, so that safetensors can hold it: `<parameter>.<what>`."""

from collections.abc import Mapping

import torch
from torch import nn

from astrai_train.errors import CheckpointError


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, torch.Tensor]:
    """The state of every parameter of the model; of those never updated there is none."""
    return {
        f"{name}.{what}": value
        for name, parameter in model.named_parameters()
        for what, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, torch.Tensor], where: object
) -> None:
    """Put a saved state in its place; learning rate and decay stay the optimizer's own.

    Raises:
        CheckpointError: a state of another model.
    """
    parameters = dict(model.named_parameters())
    for full_name, value in tensors.items():
        name, _, what = full_name.rpartition(".")
        parameter = parameters.get(name)
        if parameter is None or value.shape not in ((), parameter.shape):
            got = f"{full_name} {list(value.shape)}"
            raise CheckpointError(
                "the state of the optimizer is not that of the model",
                where=where,
                got=got,
                wanted=f"{name} {list(parameter.shape)}" if parameter is not None else "names of the model's weights",
                hint="restore the checkpoint from a copy, or begin a new run with the checkpoint as its --model",
            )
        # A count of steps stays on the CPU unless the optimizer is fused, which wants it beside the parameter.
        on = parameter.device if value.dim() or optimizer.defaults.get("fused") else value.device
        optimizer.state[parameter][what] = value.to(on)
