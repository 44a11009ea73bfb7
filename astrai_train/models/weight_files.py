"""Which files hold the weights of a model directory; what is in them is not looked at."""

import json
from pathlib import Path

from astrai_train.models.errors import ModelError, ModelNotFoundError, listed

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files of a model directory: the one, or the shards that the index names.

    Raises:
        ModelNotFoundError: neither is there, or a shard is missing.
        ModelError: the index is not what it should be.
    """
    if (whole := directory / WEIGHTS).is_file():
        return [whole]
    index = directory / INDEX
    if not index.is_file():
        got = listed(sorted(path.name for path in directory.iterdir())) or "an empty directory"
        wanted, hint = f"{WEIGHTS} or {INDEX}", "copy the weights too; for fresh weights name config.json itself"
        what = "no weights in the model directory"
        raise ModelNotFoundError(what, where=directory, got=got, wanted=wanted, hint=hint)
    files = [directory / name for name in _shard_names(index)]
    if missing := [file.name for file in files if not file.is_file()]:
        what, got = "shards of the weights are missing", f"no {listed(missing)}"
        wanted, hint = f"every file that {INDEX} names", "copy the missing files too"
        raise ModelNotFoundError(what, where=directory, got=got, wanted=wanted, hint=hint)
    return files


def _shard_names(index: Path) -> list[str]:
    try:
        names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    except (UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        what, got = "the index of the weights has no weight_map", f"{type(error).__name__}: {error}"
        wanted, hint = 'JSON with "weight_map": {"<weight>": "<file>"}', "fetch the index again"
        raise ModelError(what, where=index, got=got, wanted=wanted, hint=hint) from None
    if bad := [name for name in names if not isinstance(name, str) or Path(name).name != name]:
        what, wanted = "a shard is a file beside its index", "names of files without folders"
        hint = "put the shards beside the index and name them so in weight_map"
        raise ModelError(what, where=index, got=bad[0], wanted=wanted, hint=hint)
    return names
