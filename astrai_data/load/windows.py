"""Flat windows as samples: equal slices of the flat token stream, for stores whose rows are not packed.

Every token of the stream is in a window; the last one may be shorter. A window's border is a border for attention and
positions, like a document's. It costs no label: where it cuts a document, the window's last label is the document's
next token. So the labels of all windows are exactly the store's trained labels, whatever the window.
"""

from functools import lru_cache

import numpy as np

from astrai_data.load.batch import IGNORED, Batch
from astrai_data.load.errors import LoadError
from astrai_data.load.rows import COLUMN
from astrai_data.pack.positions import doc_reset
from astrai_data.ragged import offsets_of
from astrai_data.store import TokenStore

_OPEN_SHARDS = 64


class FlatWindows:
    """Windows of a store, or of one split of it. Pickles as the store's address.

    Args:
        store: where the tokens are.
        window: tokens a window.
        stride: tokens from one window's begin to the next's; `window` if None. Less: tokens are trained several
            times; more: tokens are left out, because they were asked to be.

    Raises:
        LoadError: a window or stride below 1.
    """

    def __init__(self, store: TokenStore, window: int, stride: int | None = None) -> None:
        self.store, self.window, self.stride = store, window, window if stride is None else stride
        for name, value in (("window", window), ("stride", self.stride)):
            if value < 1:
                hint = "such as 2048" if name == "window" else "leave it out: windows then follow each other"
                raise LoadError(
                    f"a {name} has at least one token", where=name, got=value, wanted="1 or more", hint=hint
                )
        self._shard_borders = lru_cache(_OPEN_SHARDS)(self._read_shard_borders)

    def __reduce__(self):
        return FlatWindows, (self.store, self.window, self.stride)

    def __len__(self) -> int:
        """Windows until the last token is in one, or until a begin lies behind it: (200, 64, 64) gives 4."""
        total = self.store.num_tokens
        until_covered = 1 + -(-max(0, total - self.window) // self.stride)
        return min(until_covered, -(-total // self.stride))

    def max_tokens(self) -> int:
        """Tokens that no window exceeds."""
        return self.window

    def state_dict(self) -> dict:
        """What a sample is."""
        return {"kind": "windows", "window": self.window, "stride": self.stride}

    def read(self, samples: np.ndarray) -> Batch:
        """The given windows (int64 [n], at least one) as one sequence.

        Each is read with the token after it, which is a label only. Documents 5 6 7 | 8 9 in windows of 2 are read as
        5 6 7, 7 8 9 and 9; they become the segments 5 6, 7, 8 and 9 with the labels 6 7, none, 9 and none.
        """
        begins = samples * self.stride
        ends = np.minimum(begins + self.window, self.store.num_tokens)
        reach = np.minimum(ends + 1, self.store.num_tokens)
        at = offsets_of(reach - begins)
        ids, labels, starts = self._fetch(begins, reach, at)
        inputs = np.ones(len(ids), bool)
        inputs[at[1:][reach > ends] - 1] = False
        borders = np.append(np.flatnonzero(starts[inputs]), np.count_nonzero(inputs))
        batch = Batch.empty(np.diff(borders))
        batch.input_ids[:], batch.labels[:] = ids[inputs], labels[inputs]
        restart = self.store.manifest.position_ids_mode == "doc_reset"
        batch.position_ids[:] = doc_reset(np.diff(borders) if restart else ends - begins)
        return batch

    def _fetch(self, begins: np.ndarray, ends: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, ...]:
        """Ids [T], labels int64 [T] and where segments start (bool [T]) of ranges of the stream, joined at `at`."""
        bounds = list(zip(begins.tolist(), ends.tolist(), strict=True))
        found = [self.store.slice(begin, end, (COLUMN, "loss_mask")) for begin, end in bounds]
        ids, trained = (np.concatenate([piece[key] for piece in found]) for key in (COLUMN, "loss_mask"))
        shifts = (at[:-1] - begins).tolist()
        starts = np.zeros(len(ids), bool)
        starts[np.concatenate([self._borders(*pair) + by for pair, by in zip(bounds, shifts, strict=True)])] = True
        labels = np.full(len(ids), IGNORED, np.int64)
        np.copyto(labels[:-1], ids[1:], where=trained[1:] & ~starts[1:])
        labels[at[1:] - 1] = IGNORED  # what follows it is another range
        starts[at[:-1]] = True
        return ids, labels, starts

    def _borders(self, begin: int, end: int) -> np.ndarray:
        """Where segments begin, `begin` <= border < `end`, in the flat stream: int64 [n]."""
        found = []
        for shard, first, last in self.store.shards.pieces(begin, end):
            borders = self._shard_borders(shard)
            inside = borders[slice(*np.searchsorted(borders, (first, last)))]
            found.append(inside + self.store.shards.token_offsets[shard])
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _read_shard_borders(self, shard: int) -> np.ndarray:
        """Begins of the segments of a shard, counted inside it: int64 [n]; none twice."""
        return np.unique(offsets_of(self.store.segments(shard).length)[:-1])
