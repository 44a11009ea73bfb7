"""The order of samples: a pure function of (seed, epoch, position), in constant memory.

Two levels. Rows form blocks of `block_rows` neighbours; the blocks are permuted; `window_blocks` permuted blocks in
succession form a window, and the rows of a window are permuted among themselves. One window of all blocks is a full
shuffle; small windows read a large or distant store block by block: with 4 blocks of 1,024 rows a reader touches
4,096 rows in 4 places before it moves on.

Worked example, 7 rows, blocks of 2, windows of 2 blocks. Blocks (0 1) (2 3) (4 5) (6) come out as, say,
(4 5) (6) | (0 1) (2 3): windows of 3 and 4 rows. Inside each the rows are permuted: 6 4 5 | 2 0 3 1.

A rule's name and version stand in every saved state; a change to the order of any (seed, epoch) raises the version.
"""

from dataclasses import dataclass

import numpy as np
import xxhash

from astrai_data.load.permutation import Permutation

BLOCK_ROWS = 1024


class Order:
    """The order of one epoch.

    Args:
        num_rows: at least 1.
        seed: any integer.
        epoch: from 0.
        block_rows: rows that stay neighbours until their block is read.
        window_blocks: blocks whose rows are mixed with each other; None: all.
    """

    def __init__(
        self, num_rows: int, seed: int, epoch: int, block_rows: int = BLOCK_ROWS, window_blocks: int | None = None
    ) -> None:
        self._num_rows, self._block_rows = num_rows, block_rows
        self._key = f"{Shuffled.name}/{Shuffled.version}/{seed}/{epoch}"
        num_blocks = -(-num_rows // block_rows)
        self._window_blocks = min(window_blocks or num_blocks, num_blocks)
        self._is_one_window = self._window_blocks == num_blocks
        if self._is_one_window:
            return
        self._blocks = Permutation(num_blocks, self._key_of("blocks"))
        # The last block may be short. The window it comes to is shorter by what it lacks, later windows begin earlier.
        self._lacking = num_blocks * block_rows - num_rows
        place = int(self._blocks.inverse(np.array([num_blocks - 1]))[0])
        self._short_window, self._short_slot = divmod(place, self._window_blocks)

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """The rows at `positions` (int64 [n], each in 0 .. num_rows - 1) of this epoch: int64 [n]."""
        positions = np.asarray(positions, np.int64)
        if self._is_one_window:
            return self._mixed(0, self._num_rows, positions)
        windows = self._windows_of(positions)
        rows = np.empty_like(positions)
        for window in np.unique(windows).tolist():
            chosen = windows == window
            rows[chosen] = self._rows_in(window, positions[chosen])
        return rows

    def _windows_of(self, positions: np.ndarray) -> np.ndarray:
        late = positions >= self._begin(self._short_window + 1)
        return (positions + late * self._lacking) // (self._window_blocks * self._block_rows)

    def _begin(self, window: int) -> int:
        """The first position of a window."""
        begin = window * self._window_blocks * self._block_rows
        return min(begin - (self._lacking if window > self._short_window else 0), self._num_rows)

    def _rows_in(self, window: int, positions: np.ndarray) -> np.ndarray:
        begin, end = self._begin(window), self._begin(window + 1)
        slots = self._mixed(window, end - begin, positions - begin)
        if window == self._short_window:
            slots += self._lacking * (slots >= (self._short_slot + 1) * self._block_rows - self._lacking)
        blocks = self._blocks(window * self._window_blocks + slots // self._block_rows)
        return blocks * self._block_rows + slots % self._block_rows

    def _mixed(self, window: int, num_rows: int, places: np.ndarray) -> np.ndarray:
        """Where the places of a window's rows go inside the window."""
        return Permutation(num_rows, self._key_of(f"window {window}"))(places)

    def _key_of(self, purpose: str) -> int:
        return xxhash.xxh3_64_intdigest(f"{self._key}/{purpose}".encode())


@dataclass(frozen=True)
class Shuffled:
    """The rule behind `Order`: another order in every epoch."""

    seed: int
    block_rows: int = BLOCK_ROWS
    window_blocks: int | None = None
    name = "feistel-blocks"
    version = 1

    def order(self, num_rows: int, epoch: int) -> Order:
        """The order of `num_rows` rows in `epoch`."""
        return Order(num_rows, self.seed, epoch, self.block_rows, self.window_blocks)

    def state_dict(self) -> dict:
        """What decides the order, but for the seed and the number of rows."""
        sizes = {"block_rows": self.block_rows, "window_blocks": self.window_blocks}
        return {"name": self.name, "version": self.version} | sizes


@dataclass(frozen=True)
class Sequential:
    """The rule for reading in the store's own order, for validation; the seed decides nothing."""

    seed: int
    name = "sequential"
    version = 1

    def order(self, num_rows: int, epoch: int):
        """Position p holds row p, in every epoch."""
        return np.asarray

    def state_dict(self) -> dict:
        """Name and version."""
        return {"name": self.name, "version": self.version}
