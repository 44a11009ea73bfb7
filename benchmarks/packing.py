"""How fast packing is: planning from lengths, gathering tokens and masks by the plan, writing them.

Run: python benchmarks/packing.py [--documents 200000 2000000] [--capacity 2048 8192] [--tokens 16777216]

Document lengths are log-normal, exp(N(6.2, 1.1)) + 1 tokens, clipped at the capacity: mean about 880. Every work
runs once before it is timed, since on virtual machines the first touch of new memory costs far more than the work
(0.4 GB/s against 6 GB/s) and a run of many windows pays for it once; of `--repeat` timed runs the fastest counts,
stage by stage, the works taking turns. The floor of the last table is a plain copy: the same bytes copied in memory
and written to the same file. All write the same number of bytes, so the fastest write of any counts for all.
"""

import argparse
import tempfile
import time
from bisect import bisect_left, insort
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from astrai_data.pack import Plan, Segments, gather, plan, plan_bfd
from astrai_data.pack.radix import stable_argsort
from astrai_data.ragged import Ragged

WINDOW_CAPACITY = {"bfd": 65_536, "bfd_split": 2048, "concat": 2048}


def log_normal_lengths(rng: np.random.Generator, num_documents: int, capacity: int) -> np.ndarray:
    return np.minimum(np.exp(rng.normal(6.2, 1.1, num_documents)).astype(np.int64) + 1, capacity)


def timed(works: dict[str, list[Callable]], repeat: int) -> dict[str, list[float]]:
    """Seconds of every stage of every work; a stage takes what the stage before it returned."""
    best: dict[str, list[float]] = {}
    for turn in range(repeat + 1):
        for name, stages in works.items():
            times, handed = [], None
            for stage in stages:
                begin = time.perf_counter()
                handed = stage(handed)
                times.append(time.perf_counter() - begin)
            if turn:
                best[name] = [min(pair) for pair in zip(times, best.get(name, times), strict=True)]
    return best


def classic(lengths: np.ndarray, capacity: int) -> int:
    """Best-fit decreasing as in a textbook: every bin is looked at for every document. Returns bins."""
    rooms: list[int] = []
    for size in np.sort(lengths)[::-1].tolist():
        fitting = [(room, number) for number, room in enumerate(rooms) if room >= size]
        if fitting:
            rooms[min(fitting)[1]] -= size
        else:
            rooms.append(capacity - size)
    return len(rooms)


def ordered_set(lengths: np.ndarray, capacity: int) -> int:
    """The same with a sorted list of (room, bin): one search a document. Returns bins."""
    pairs: list[tuple[int, int]] = []
    count = 0
    for size in np.sort(lengths)[::-1].tolist():
        at = bisect_left(pairs, (size, -1))
        room, number = pairs.pop(at) if at < len(pairs) else (capacity, count)
        count = max(count, number + 1)
        insort(pairs, (room - size, number))
    return count


def histogram(lengths: np.ndarray, capacity: int) -> int:
    return len(plan_bfd(lengths, capacity))


def planning(args: argparse.Namespace, rng: np.random.Generator) -> Table:
    table = Table("planner", "documents", "capacity", "seconds", "million/s", "bins", "fill", title="Planning")
    most = {classic: 5_000, ordered_set: 50_000, histogram: max(args.documents)}
    for capacity in args.capacity:
        for count in sorted({5_000, 50_000, *args.documents}):
            lengths = log_normal_lengths(rng, count, capacity)
            for planner in (planner for planner, limit in most.items() if count <= limit):
                stages = [lambda _, p=planner, n=lengths, c=capacity: p(n, c)]
                (seconds,) = timed({"": stages}, args.repeat)[""]
                bins = planner(lengths, capacity)
                numbers = (
                    f"{count:,}",
                    f"{capacity:,}",
                    f"{seconds:.4f}",
                    f"{count / seconds / 1e6:.2f}",
                    f"{bins:,}",
                )
                table.add_row(planner.__name__, *numbers, f"{lengths.sum() / (bins * capacity):.2%}")
    return table


def pieces(args: argparse.Namespace, rng: np.random.Generator) -> Table:
    """The two tools that planning and gathering rest on, beside the obvious way."""
    column = Window(rng, args.tokens, 1).tokens
    order = rng.permutation(len(column))
    rows = list(column)
    keys = rng.integers(0, 220_000, 2_000_000)
    works = {
        "gather rows: Ragged.take": lambda _: column.take(order),
        "gather rows: numpy.concatenate": lambda _: np.concatenate([rows[i] for i in order.tolist()]),
        "gather rows: large_list take": lambda _: column.to_arrow().take(pa.array(order)),
        "sort 2 M bin numbers: stable_argsort": lambda _: stable_argsort(keys),
        "sort 2 M bin numbers: numpy stable": lambda _: np.argsort(keys, kind="stable"),
    }
    table = Table("work", "ms", "GB/s", title=f"Tools; {len(column):,} rows, {column.values.nbytes / 1e6:.0f} MB")
    for name, (seconds,) in timed({name: [work] for name, work in works.items()}, args.repeat).items():
        size = column.values.nbytes if name.startswith("gather") else keys.nbytes
        table.add_row(name, f"{seconds * 1e3:.1f}", f"{size / seconds / 1e9:.2f}")
    return table


class Window:
    """One pack window of about `num_tokens` uint16 tokens with `num_runs` mask runs a document."""

    def __init__(self, rng: np.random.Generator, num_tokens: int, num_runs: int) -> None:
        lengths = log_normal_lengths(rng, num_tokens // 500, 65_536)
        lengths = lengths[: int(np.searchsorted(np.cumsum(lengths), num_tokens))]
        count = len(lengths)
        run_lengths = np.repeat((lengths // num_runs)[:, None], num_runs, axis=1)
        run_lengths[:, -1] += lengths % num_runs
        rules = np.tile(np.arange(num_runs, dtype=np.uint16) % 2, count)
        self.tokens = Ragged.from_lengths(rng.integers(0, 50_000, lengths.sum(), np.uint16), lengths)
        self.run_lengths = Ragged.from_lengths(run_lengths.reshape(-1).astype(np.int32), np.full(count, num_runs))
        self.run_rules = Ragged(rules, self.run_lengths.offsets)
        self.places = np.zeros(count, np.int64), np.arange(count, dtype=np.int32), np.zeros(count, np.uint8)

    def gather(self, made: Plan) -> tuple[Ragged, Segments]:
        """Rows and segments of the whole window."""
        return gather(self.tokens, self.run_lengths, self.run_rules, *self.places, made)


def windows(args: argparse.Namespace, rng: np.random.Generator) -> Table:
    """Plan, gather and write one window, beside a plain copy and write of its tokens."""
    headers = ("work", "mask runs", "plan ms", "gather ms", "write ms", "total ms", "GB/s", "of plain")
    table = Table(*headers, title="One pack window")
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        path = Path(folder, "tokens.bin")
        for num_runs in (1, 10):
            window = Window(rng, args.tokens, num_runs)
            best = timed(_works(window, path), args.repeat)
            fastest_write = min(write for *_, write in best.values())
            for name, (planned, copied, _) in best.items():
                times = (planned, copied, fastest_write)
                if name == "plain copy":
                    plain = sum(times)
                shown = [f"{seconds * 1e3:.1f}" for seconds in (*times, sum(times))]
                rate = f"{window.tokens.values.nbytes / sum(times) / 1e9:.2f}"
                runs = f"{len(window.run_lengths.values):,}"
                table.add_row(name, runs, *shown, rate, f"{plain / sum(times):.0%}")
            table.add_section()
    return table


def _works(window: Window, path: Path) -> dict[str, list[Callable]]:
    values, lengths = window.tokens.values, window.tokens.lengths
    works = {"plain copy": [lambda _: None, lambda _: values.copy(), lambda copied: path.write_bytes(copied)]}
    for strategy, capacity in WINDOW_CAPACITY.items():
        works[f"{strategy} at {capacity:,}"] = [
            lambda _, s=strategy, c=capacity: plan(s, lengths, c),
            lambda made: window.gather(made),
            lambda gathered: path.write_bytes(gathered[0].flat),
        ]
    return works


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, nargs="+", default=[200_000])
    parser.add_argument("--capacity", type=int, nargs="+", default=[8192])
    parser.add_argument("--tokens", type=int, default=2**24, help="tokens of the pack window")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dir", help="folder to write in; default: the temporary folder")
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    console = Console(width=110)
    for part in (planning, pieces, windows):
        console.print(part(args, rng))


if __name__ == "__main__":
    main()
