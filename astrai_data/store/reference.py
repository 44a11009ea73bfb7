"""The reference's shard directory: raw `<key>.bin` files and a `meta.json` (spec/data.md, §10 and §11).

It is a format we export and open, not our own: no tokenizer, no checksums, no document borders. `meta.json`
is written last, so a directory without one is not a shard.
"""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from astrai_data.errors import StoreError
from astrai_data.store.files import replacing, write_bytes

DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
"""Dtype names that a `meta.json` may hold."""

META = "meta.json"
_ANEW = "name a shard_NNNN folder, or export the store anew with `astrai export`"


def save_bin(
    directory: str | Path, arrays: dict[str, list[np.ndarray]], record_keys: Iterable[str] | None = None
) -> None:
    """Write each key's arrays, joined along the first dimension, as one shard directory.

    Args:
        directory: made if missing.
        arrays: key -> arrays whose trailing dimensions agree; their dtypes are promoted (int32 and float32 give
            float32).
        record_keys: keys whose arrays are records: their starts go into `meta.json`.

    Raises:
        ValueError: a nested list, no array, or trailing dimensions that differ.
        TypeError: a dtype that the format has no name for.
    """
    directory, record_keys = Path(directory), set(record_keys or ())
    joined = {key: _join(key, values) for key, values in arrays.items()}
    meta = {}
    for key, array in joined.items():
        with replacing(directory / f"{key}.bin") as temporary:
            temporary.write_bytes(np.ascontiguousarray(array, array.dtype.newbyteorder("<")))
        meta[key] = {"shape": list(array.shape), "dtype": array.dtype.name}
        if key in record_keys:
            meta[key]["offsets"] = np.cumsum([0] + [len(values) for values in arrays[key]]).tolist()
    write_bytes(directory / META, json.dumps(meta).encode())


def load_bin(directory: str | Path) -> dict[str, list[np.ndarray]]:
    """Map a shard directory: key -> [one array], copy-on-write; writing to it does not change the file.

    Raises:
        StoreError: no shard, an unknown dtype, or a file of the wrong size.
    """
    directory = Path(directory)
    return {key: [_map(directory / f"{key}.bin", entry)] for key, entry in _read_meta(directory).items()}


def load_bin_offsets(directory: str | Path) -> dict[str, np.ndarray]:
    """Starts of the records of each key that has them: key -> int64 [records + 1].

    Raises:
        StoreError: no shard.
    """
    meta = _read_meta(Path(directory))
    return {key: np.array(entry["offsets"], np.int64) for key, entry in meta.items() if "offsets" in entry}


def _join(key: str, values: list[np.ndarray]) -> np.ndarray:
    if not values:
        raise ValueError(f"{key!r} has no arrays")
    if any(isinstance(value, list | tuple) for value in values):
        raise ValueError(f"{key!r} is nested; wanted a list of arrays")
    arrays = [np.asarray(value) for value in values]
    dtypes = {array.dtype for array in arrays}
    unknown = sorted(dtype.name for dtype in dtypes if dtype.name not in DTYPES)
    if unknown:
        raise TypeError(f"{key!r} is {unknown[0]}; wanted one of {', '.join(DTYPES)}")
    return np.concatenate(arrays, dtype=_promoted(dtypes))


def _promoted(dtypes: set[np.dtype]) -> np.dtype:
    """As the reference's join promotes: where there are floats, integers do not widen them."""
    floats = {dtype for dtype in dtypes if dtype.kind == "f"}
    return np.result_type(*(floats or dtypes))


def _read_meta(directory: Path) -> dict[str, dict]:
    path = directory / META
    try:
        meta = json.loads(path.read_bytes())
        if all(isinstance(entry["shape"], list) and entry["dtype"] in DTYPES for entry in meta.values()):
            return meta
        got: object = "an unknown dtype or no shape"
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        got = error
    raise StoreError(
        "this is no shard directory",
        where=path,
        got=got,
        wanted='{"<key>": {"shape": [...], "dtype": "int32"}}',
        hint=_ANEW,
    )


def _map(path: Path, entry: dict) -> np.ndarray:
    shape, dtype = tuple(entry["shape"]), np.dtype(entry["dtype"]).newbyteorder("<")
    wanted = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    size = path.stat().st_size if path.is_file() else None
    if size != wanted:
        got = "nothing" if size is None else f"{size:,} bytes"
        what = "a shard's file has the wrong size"
        raise StoreError(what, where=path, got=got, wanted=f"{wanted:,} bytes", hint=_ANEW)
    return np.memmap(path, dtype, "c", shape=shape) if wanted else np.empty(shape, dtype)
