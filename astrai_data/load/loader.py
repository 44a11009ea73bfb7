"""The loader: a store in, batches of tensors out, for one rank of a training run.

`next` makes the batch here or takes it from the workers; either way it is the same batch. Epochs roll on without end:
`batches_per_epoch` says how many make one.
"""

from collections.abc import Iterator

import torch

from astrai_data.load.batch import Batch
from astrai_data.load.errors import LoadError
from astrai_data.load.order import BLOCK_ROWS, Sequential, Shuffled
from astrai_data.load.rows import PackedRows
from astrai_data.load.schedule import Cursor, Schedule
from astrai_data.load.state import read_state, state_dict
from astrai_data.load.stream import BatchStream
from astrai_data.load.windows import FlatWindows
from astrai_data.load.workers import Workers
from astrai_data.store import TokenStore


class PackedLoader:
    """An endless iterator over the batches of one rank.

    A batch is a dict: `input_ids`, `labels`, `position_ids` int64 [T], `cu_seqlens` int32 [n + 1], `max_seqlen` int.
    Labels are shifted already; -100 is not trained.

    Args:
        store: a store, or one split of it.
        batch_tokens: tokens a batch at most; as many samples as surely fit. This or `rows_per_batch`.
        rows_per_batch: samples (rows or windows) a batch.
        window: None: samples are the store's rows. Else windows of so many tokens over its flat stream, for stores
            whose rows are not packed (`simple`, `concat`).
        stride: tokens from window to window; `window` if None.
        seed: of the order.
        shuffle: False: the store's own order.
        block_rows, window_blocks: how far the shuffle mixes; see `order`. The default mixes all rows with all.
        rank, world_size: of the data-parallel ranks. All ranks get equally many batches.
        workers: processes that read ahead; 0: none. The batches are the same.
        prefetch: batches each worker holds ready.

    Raises:
        LoadError: a setting that cannot be used, or a split without tokens.
    """

    def __init__(
        self,
        store: TokenStore,
        *,
        seed: int,
        batch_tokens: int | None = None,
        rows_per_batch: int | None = None,
        window: int | None = None,
        stride: int | None = None,
        shuffle: bool = True,
        block_rows: int = BLOCK_ROWS,
        window_blocks: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        workers: int = 0,
        prefetch: int = 2,
    ) -> None:
        _check_least(block_rows=(block_rows, 1), window_blocks=(window_blocks, 1), workers=(workers, 0))
        _check_least(world_size=(world_size, 1), rank=(rank, 0), prefetch=(prefetch, 1))
        if rank >= world_size:
            wanted = f"0 to {world_size - 1}, for world_size {world_size}"
            hint = "ranks count from 0; give the number of all ranks as world_size"
            raise LoadError("there is no such rank", where="rank", got=rank, wanted=wanted, hint=hint)
        samples = _samples(store, window, stride)
        rule = Shuffled(int(seed), block_rows, window_blocks) if shuffle else Sequential(int(seed))
        size = _samples_per_batch(samples, batch_tokens, rows_per_batch)
        self._stream = BatchStream(samples, Schedule(rule, len(samples), size, rank, world_size))
        self._workers, self._prefetch = workers, prefetch
        self._cursor, self._num_batches = Cursor(), 0
        self._batches: Iterator[Batch] | None = None

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, from 0."""
        return self._cursor.epoch

    @property
    def samples_per_batch(self) -> int:
        """Rows or windows a batch; the last batch of an epoch may have fewer."""
        return self._stream.schedule.samples_per_batch

    @property
    def batches_per_epoch(self) -> int:
        """Batches of an epoch that is read from its begin; the same for all ranks."""
        schedule = self._stream.schedule
        return -(-schedule.num_samples // schedule.samples_per_step)

    def __iter__(self) -> "PackedLoader":
        """The loader itself: iterating again goes on where the last iteration was left."""
        return self

    def __next__(self) -> dict[str, torch.Tensor | int]:
        """The next batch.

        Raises:
            StoreError: the store was replaced or damaged.
            LoadError: a worker ended.
        """
        if self._batches is None:
            self._batches = self._start()
        try:
            batch = next(self._batches)
        except BaseException:  # also Ctrl-C, which may have come between two halves of a batch
            self.close()
            raise
        self._cursor = self._stream.schedule.after(self._cursor)
        self._num_batches += 1
        return _tensors(batch)

    def state_dict(self) -> dict:
        """Where the loader stands, as plain JSON; batches read ahead but not delivered do not count."""
        return state_dict(self._stream, self._cursor, self._num_batches)

    def load_state_dict(self, state: dict) -> None:
        """Go on where another loader stood, under any number of ranks and workers.

        Raises:
            LoadError: no state of a loader, or one of another store, split, seed, rule or batch.
        """
        cursor, num_batches = read_state(state, self._stream)
        self.close()
        self._cursor, self._num_batches = cursor, num_batches

    def close(self) -> None:
        """End the workers. Iterating goes on all the same, with new ones."""
        if isinstance(self._batches, Workers):
            self._batches.close()
        self._batches = None

    def _start(self) -> Iterator[Batch]:
        if self._workers == 0:
            return self._stream.batches(self._cursor)
        return Workers(self._stream, self._cursor, self._workers, self._prefetch)


def _tensors(batch: Batch) -> dict[str, torch.Tensor | int]:
    """The same memory as tensors; only the borders are copied."""
    data = torch.from_numpy(batch.data)
    input_ids, labels, position_ids = data[: 3 * batch.num_tokens].view(3, -1)
    return {
        "input_ids": input_ids,
        "labels": labels,
        "position_ids": position_ids,
        "cu_seqlens": data[3 * batch.num_tokens :].to(torch.int32),
        "max_seqlen": batch.max_seqlen,
    }


def _samples(store: TokenStore, window: int | None, stride: int | None) -> PackedRows | FlatWindows:
    if window is None and stride is not None:
        wanted, hint = "no stride, or a window", "give a window as well, or leave the stride out"
        raise LoadError("rows have no stride", where="stride", got=stride, wanted=wanted, hint=hint)
    if store.num_tokens == 0:
        raise LoadError(
            "there is nothing to load: this split of the store has no tokens",
            where=store.root,
            got=f"{store.num_rows} rows, split {store.split!r}",
            wanted="a split with tokens",
            hint="`astrai inspect STORE` shows the splits; validation_fraction may be too large or too small",
        )
    return PackedRows(store) if window is None else FlatWindows(store, window, stride)


def _samples_per_batch(samples: PackedRows | FlatWindows, batch_tokens: int | None, rows_per_batch: int | None) -> int:
    if (batch_tokens is None) == (rows_per_batch is None):
        got = f"batch_tokens {batch_tokens}, rows_per_batch {rows_per_batch}"
        where, hint = "batch_tokens and rows_per_batch", "give batch_tokens, or rows_per_batch, and not both"
        raise LoadError("the size of a batch is given once", where=where, got=got, wanted="one of the two", hint=hint)
    _check_least(batch_tokens=(batch_tokens, 1), rows_per_batch=(rows_per_batch, 1))
    if rows_per_batch is not None:
        return rows_per_batch
    longest = samples.max_tokens()
    if batch_tokens < longest:
        raise LoadError(
            "a batch is too small for one sample",
            where="batch_tokens",
            got=batch_tokens,
            wanted=f"at least {longest}, which a row or window may have",
            hint="raise batch_tokens, or read windows of fewer tokens (`window`)",
        )
    return batch_tokens // longest


def _check_least(**settings: tuple[int | None, int]) -> None:
    for name, (value, least) in settings.items():
        if value is not None and value < least:
            hint = f"give {name}={least}, or leave it out"
            raise LoadError(f"{name} is too small", where=name, got=value, wanted=f"{least} or more", hint=hint)
