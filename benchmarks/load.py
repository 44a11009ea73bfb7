"""What the loader alone can deliver: tokens/s of one rank, by workers, samples and batch.

Run: python benchmarks/load.py [FOLDER]. The store is one part of 2^24 uint16 tokens in rows of 2,048 with four
segments each, warm. For each way, tokens/s over SECONDS seconds after the first batches, and the CPU time of this
process (the trainer's) for a million tokens. Then what a worker costs to start, and what reading costs when every row
lies in another part that has to be opened first.
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from store import make_part, make_store

from astrai_data.load import Order, PackedLoader
from astrai_data.store import TokenStore

SECONDS = 2.0


def rate(loader: PackedLoader) -> tuple[float, float]:
    """(tokens/s, CPU seconds of this process for a million tokens)."""
    for _ in range(8):
        next(loader)
    tokens, begin, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - begin < SECONDS:
        tokens += len(next(loader)["input_ids"])
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    loader.close()
    return tokens / seconds, cpu / tokens * 1e6


def compare(store: TokenStore) -> None:
    for name, options in (
        ("rows, 16k batch", {"batch_tokens": 1 << 14}),
        ("rows, 2k batch", {"batch_tokens": 1 << 11}),
        ("rows, 16k batch, 4 blocks", {"batch_tokens": 1 << 14, "window_blocks": 4}),
        ("windows of 2,048, 16k batch", {"batch_tokens": 1 << 14, "window": 2048}),
        ("windows of 256, 16k batch", {"batch_tokens": 1 << 14, "window": 256}),
    ):
        for workers in (0, 1, 2):
            tokens, cpu = rate(PackedLoader(store, seed=0, workers=workers, **options))
            print(f"{name:28} {workers} workers  {tokens / 1e6:7.1f} M tokens/s   {cpu * 1e3:5.1f} ms CPU here a M")


def order_cost() -> None:
    for window_blocks in (None, 4):
        order = Order(10_000_000, 0, 0, window_blocks=window_blocks)
        for count in (8, 512):
            positions, begin = np.arange(count), time.perf_counter()
            for _ in range(200):
                order(positions)
            micros = (time.perf_counter() - begin) / 200 * 1e6
            print(f"order of {count:3} of 10 M rows, {window_blocks or 'all'} blocks a window: {micros:.0f} us")


def start_and_open(root: Path) -> None:
    store = TokenStore.open(root)
    begin = time.perf_counter()
    loader = PackedLoader(store, seed=0, batch_tokens=1 << 14, workers=2)
    next(loader)
    print(f"first batch of 2 workers after {time.perf_counter() - begin:.2f} s")
    loader.close()
    begin = time.perf_counter()
    for row in range(200):
        store.rows(np.array([row]))
        store._part.cache_clear()
    print(f"one row of a part that is not open: {(time.perf_counter() - begin) / 200 * 1e3:.2f} ms")


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(dir=sys.argv[1] if len(sys.argv) > 1 else None))
    try:
        make_store(folder / "store", *make_part())
        compare(TokenStore.open(folder / "store"))
        order_cost()
        start_and_open(folder / "store")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
