"""A store as the reference's directory tree, for tools that read that.

    DEST/<domain>/shard_0000/{sequence,loss_mask,position_ids}.bin, meta.json

One shard directory for each part, in order, numbered inside its domain. Masks and positions, which a store
derives, are written out: 4 bytes a token and key unless the configuration's `output.dtype` says otherwise.
"""

from collections import Counter
from pathlib import Path

import numpy as np
import orjson

from astrai_data.errors import StoreError
from astrai_data.store.domain_names import folder_of
from astrai_data.store.files import unreadable
from astrai_data.store.reference import DTYPES, save_bin
from astrai_data.store.token_store import TokenStore

DEFAULT_DTYPE = "int32"


def write_reference(store: TokenStore, folder: Path) -> int:
    """Write every part of `store` (the split it was opened with) below `folder`; returns how many.

    Raises:
        StoreError: values that do not fit the dtype of their key.
    """
    dtypes, counters = _dtypes(store), Counter()
    for shard, info in enumerate(store.shards):
        domain = folder_of(info.domain)
        directory = folder / domain / f"shard_{counters[domain]:04d}"
        begin, end = store.shards.token_offsets[shard : shard + 2].tolist()
        arrays = store.slice(begin, end, _keys(store)) if end > begin else {}
        save_bin(directory, {key: [_cast(key, array, dtypes)] for key, array in arrays.items()})
        counters[domain] += 1
    return len(store.shards)


def _keys(store: TokenStore) -> tuple[str, ...]:
    mask = ("loss_mask",) if store.manifest.has_loss_mask else ()
    positions = ("position_ids",) if store.manifest.position_ids_mode != "none" else ()
    return (*store.columns, *mask, *positions)


def _dtypes(store: TokenStore) -> dict[str, str]:
    """What the store's configuration says of dtypes; what it leaves open is int32, as are positions that run on."""
    told = _told_dtypes(store.root / store.manifest.pipeline["path"])
    dtypes = {key: name for key, name in told.items() if name in DTYPES}
    if store.manifest.position_ids_mode == "continuous":
        dtypes["position_ids"] = DEFAULT_DTYPE
    return dtypes


def _told_dtypes(path: Path) -> dict[str, str]:
    try:
        document = orjson.loads(path.read_bytes())
        return dict(document["config"].get("output", {}).get("dtype") or {})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise unreadable(path, error, what="the store's copy of its pipeline cannot be read") from error


def _cast(key: str, array: np.ndarray, dtypes: dict[str, str]) -> np.ndarray:
    name = dtypes.get(key, DEFAULT_DTYPE)
    cast = array.astype(name)
    if not np.array_equal(cast, array):
        raise StoreError(
            f"{key} does not fit the dtype that the configuration gives it",
            where=f"output.dtype.{key}",
            got=f"values from {array.min()} to {array.max()}",
            wanted=name,
            hint="make the store anew with a wider output.dtype",
        )
    return cast
