"""Weights from files into a model, by name and without exceptions: what does not fit is an error."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import torch

from astrai_train.models.errors import ModelError, listed
from astrai_train.models.safetensors_file import SafetensorsFile
from astrai_train.models.transformer import Transformer
from astrai_train.models.weight_names import own_weight_name

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def read_weights(
    files: Iterable[Path], *, dtype: torch.dtype | None = None, device: torch.device | str = "cpu"
) -> Iterator[tuple[str, torch.Tensor]]:
    """Every weight of these files under its present name, one at a time, converted and moved.

    Raises:
        ModelError: a weight that is no floating-point tensor, or that stands in two files.
    """
    seen: dict[str, Path] = {}
    for path in files:
        for name, tensor in SafetensorsFile(path).tensors():
            own = own_weight_name(name)
            if own is None:
                continue
            if own in seen:
                what, got = "a weight is there twice", f"{seen[own].name} and {path.name}"
                wanted, hint = "each weight in one file", "fetch the weights again: these files do not belong together"
                raise ModelError(what, where=f"{path.parent}: {name}", got=got, wanted=wanted, hint=hint)
            if not tensor.is_floating_point() or tensor.element_size() == 1:
                what, where = "no weight of this model has such a dtype", f"{path}: {name}"
                wanted, hint = "float32, bfloat16 or float16", "fetch the weights that are not quantised"
                raise ModelError(what, where=where, got=tensor.dtype, wanted=wanted, hint=hint)
            seen[own] = path
            yield own, tensor.to(device, dtype or tensor.dtype)


def load_weights(model: Transformer, weights: Mapping[str, torch.Tensor], where: object) -> None:
    """Put weights in the place of the model's own parameters; names and shapes must be exactly the model's.

    A head is ignored where it is tied to the embedding; an untied head that is missing becomes a copy of it.

    Raises:
        ModelError: missing or unexpected names, or other shapes; the message lists them.
    """
    weights, wanted = dict(weights), model.state_dict()
    if HEAD not in wanted:
        weights.pop(HEAD, None)
    elif HEAD not in weights and EMBEDDING in weights:
        weights[HEAD] = weights[EMBEDDING].clone()
    _check_names(weights.keys(), wanted.keys(), where)
    shapes = {name: (tuple(weights[name].shape), tuple(wanted[name].shape)) for name in wanted}
    if wrong := [f"{name} {got} instead of {want}" for name, (got, want) in shapes.items() if got != want]:
        what, wanted = "weights of other shapes than the configuration says", "the shapes of config.json"
        hint = "compare config.json with the files of weights beside it"
        raise ModelError(what, where=where, got=listed(wrong), wanted=wanted, hint=hint)
    model.load_state_dict(weights, assign=True)


def _check_names(got: Iterable[str], wanted: Iterable[str], where: object) -> None:
    missing, unexpected = sorted(set(wanted) - set(got)), sorted(set(got) - set(wanted))
    if missing or unexpected:
        parts = [("missing: ", missing), ("unexpected: ", unexpected)]
        raise ModelError(
            "the weights are not those of the configuration",
            where=where,
            got="; ".join(label + listed(names) for label, names in parts if names),
            wanted="exactly the weights of the model that config.json describes",
            hint="compare config.json with the files of weights beside it",
        )
