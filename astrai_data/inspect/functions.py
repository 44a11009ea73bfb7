"""The SQL functions of a store's own tokenizer: `decode(ids)`, `encode(text)` and `piece(id)`.

Each works on a whole chunk at once. NULL in, NULL out; a list with a NULL inside decodes to NULL. Special tokens are
shown by `decode` and recognised by `encode`, so that `decode(encode(text))` is `text`. The tokenizer is loaded by the
first query that needs it.
"""

from collections.abc import Callable
from functools import cached_property

import numpy as np
import pyarrow as pa

from astrai_data.errors import StoreError
from astrai_data.ragged import Ragged
from astrai_data.store import TokenStore

MACROS = (
    "CREATE MACRO decode(ids) AS _decode(ids::INTEGER[])",
    "CREATE MACRO encode(text) AS _encode(text::VARCHAR)",
    "CREATE MACRO piece(id) AS _piece(id::INTEGER)",
)
"""Casts in front of the functions: any integers are welcome, and DuckDB's own `encode` and `decode` stay away."""


def register_functions(store: TokenStore, connection, register: Callable) -> None:
    """Make the functions known to `connection`; `register` as in `Session.register`."""
    text = StoreText(store)
    register("_decode", text.decode, "INTEGER[]", "VARCHAR")
    register("_encode", text.encode, "VARCHAR", "INTEGER[]")
    register("_piece", text.piece, "INTEGER", "VARCHAR")
    for macro in MACROS:
        connection.execute(macro)


class StoreText:
    """Arrow functions between ids and text."""

    def __init__(self, store: TokenStore) -> None:
        self._store = store

    @cached_property
    def tokenizer(self):
        """The tokenizer that the store was made with."""
        return self._store.tokenizer()

    def decode(self, ids: pa.ChunkedArray) -> pa.Array:
        """list<int32> [n] -> string [n]."""
        lists = _one(ids)
        known, rows = _without_nulls(lists)
        self._check(rows.flat)
        texts = pa.array(self.tokenizer.decode_batch(rows), pa.string())
        return _where(known, texts)

    def encode(self, texts: pa.ChunkedArray) -> pa.Array:
        """string [n] -> list<int32> [n], without what a post-processor would add."""
        column = _one(texts)
        known = column.is_valid().to_numpy(zero_copy_only=False)
        ids, offsets = self.tokenizer.encode_batch(column.drop_null().to_pylist(), special_tokens="parse")
        lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(ids))
        return _where(known, lists)

    def piece(self, ids: pa.ChunkedArray) -> pa.Array:
        r"""int32 [n] -> string [n]: the token's own text; bytes that are no text alone are shown as `\xNN`."""
        column = _one(ids)
        known = column.is_valid().to_numpy(zero_copy_only=False)
        some = column.drop_null().to_numpy()
        self._check(some)
        return _where(known, pa.array(self._pieces(some), pa.string()))

    def _pieces(self, ids: np.ndarray) -> list[str]:
        each, back = np.unique(ids, return_inverse=True)
        if self.tokenizer.is_byte_level:
            texts = [row.tobytes().decode("utf-8", "backslashreplace") for row in self.tokenizer.token_bytes.take(each)]
        else:
            texts = self.tokenizer.decode_batch(Ragged(each, np.arange(len(each) + 1)))
        return [texts[number] for number in back.tolist()]

    def _check(self, ids: np.ndarray) -> None:
        largest = self.tokenizer.max_id
        wrong = ids[(ids < 0) | (ids > largest)]
        if len(wrong):
            raise StoreError(
                "an id is not in the store's tokenizer",
                where="the SQL query",
                got=int(wrong[0]),
                wanted=f"0 to {largest}",
                hint="decode and piece take ids of this store: those of the views, or of encode('text')",
            )


def _one(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _without_nulls(lists: pa.ListArray) -> tuple[np.ndarray, Ragged]:
    """(bool [n]: neither NULL nor with a NULL inside, the lists that are so)."""
    lengths = lists.value_lengths().fill_null(0).to_numpy()
    values = lists.flatten()
    known = lists.is_valid().to_numpy(zero_copy_only=False)
    if values.null_count:
        owners = np.repeat(np.arange(len(lists)), lengths)
        known[owners[~values.is_valid().to_numpy(zero_copy_only=False)]] = False
        values = values.fill_null(0)
    rows = Ragged.from_lengths(values.to_numpy(), lengths)
    return known, rows if known.all() else rows.take(np.flatnonzero(known))


def _where(known: np.ndarray, values: pa.Array) -> pa.Array:
    """`values` at the places that are `known` (bool [n]), NULL at the others."""
    if known.all():
        return values
    places = np.cumsum(known) - 1
    return values.take(pa.array(places, mask=~known))
