"""Columns of a whole store by global id: ids in, one Arrow value an id out.

These are the functions behind the SQL views. A query calls them with chunks of some 2,048 ids and only for the columns
it reads, so a store of any size is looked at through a few mapped parts. Ids that ascend through one part, the common
case, are answered with a slice; anything else is gathered part by part and put back in order.
"""

from collections.abc import Callable
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa

from astrai_data.inspect.part_view import PartView
from astrai_data.ragged import offsets_of
from astrai_data.store import TokenStore

PartColumn = Callable[[PartView, np.ndarray], pa.Array]

NUM_OPEN_PARTS = 8


class StoreColumns:
    """Rows and segments of `store` (opened with all splits) as columns that are computed where they are read.

    Attributes:
        shards: the shards table.
        row_begins, segment_begins: int64 [num_shards + 1], the id of each shard's first row and segment.
        part: shard -> its `PartView`.
    """

    def __init__(self, store: TokenStore) -> None:
        self.store = store
        self.shards = store.table("shards")
        self.row_begins = offsets_of(self.shards["num_rows"].to_numpy())
        self.segment_begins = offsets_of(self.shards["num_segments"].to_numpy())
        self._trained = np.array([rule.trained for rule in store.mask_rules], bool)
        self._rule_names = pa.array([rule.name for rule in store.mask_rules], pa.string())
        self.part = lru_cache(NUM_OPEN_PARTS)(self._open_part)

    @cached_property
    def row_lengths(self) -> np.ndarray:
        """int32 [num_rows]: tokens of every row."""
        return self.store.table("rows")["num_tokens"].to_numpy()

    def rows(self, column: PartColumn, ids: np.ndarray) -> pa.Array:
        """`column` of the rows `ids` (int64 [n])."""
        return self._by_part(self.row_begins, column, ids)

    def segments(self, column: PartColumn, ids: np.ndarray) -> pa.Array:
        """`column` of the segments `ids` (int64 [n])."""
        return self._by_part(self.segment_begins, column, ids)

    def shard_values(self, name: str, ids: np.ndarray) -> pa.Array:
        """The shard's `name` (domain, split) for each of the rows `ids`."""
        return self.shards[name].combine_chunks().take(pa.array(owners(self.row_begins, ids)))

    def _open_part(self, shard: int) -> PartView:
        return PartView(
            self.store.tokens(shard),
            self.store.segments(shard),
            self._trained,
            self._rule_names,
            self.shards["row_begin"][shard].as_py(),
            self.shards["document_begin"][shard].as_py(),
        )

    def _by_part(self, begins: np.ndarray, column: PartColumn, ids: np.ndarray) -> pa.Array:
        return by_owner(begins, ids, lambda shard, local: column(self.part(shard), local))


def by_owner(begins: np.ndarray, ids: np.ndarray, answer: Callable[[int, np.ndarray], pa.Array]) -> pa.Array:
    """Ask for `ids` (int64 [n], n > 0) where they lie, and put the answers in the order of `ids`.

    Args:
        begins: int64 [num_owners + 1], rising; owner `k` has the ids `begins[k]` up to `begins[k + 1]`.
        ids: wanted.
        answer: (owner, ids counted from its begin) to one value each.
    """
    owner = owners(begins, ids)
    if (owner == owner[0]).all():
        return answer(int(owner[0]), ids - begins[owner[0]])
    order = np.argsort(owner, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(owner[order])) + 1)
    joined = pa.concat_arrays([answer(int(owner[g[0]]), ids[g] - begins[owner[g[0]]]) for g in groups])
    return joined if (np.diff(order) == 1).all() else joined.take(pa.array(np.argsort(order)))


def owners(begins: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """int64 [n]: the owner of each id; those without any ids are passed over."""
    return np.searchsorted(begins, ids, side="right") - 1
