"""Text to store: the whole pipeline against a floor and against peers, in one run.

    python benchmarks/preprocess.py                       # 128 and 256 MB, 16 MB for the pool
    python benchmarks/preprocess.py --mb 512 1024         # the sizes docs/performance.md quotes
    python benchmarks/preprocess.py --datatrove PYTHON    # also datatrove, from an environment of its own

Ours is `astrai preprocess -c pretrain` as a user runs it: backend check, tokens, packing, checksums, documents,
ledger, commit. The floor is a bare loop in as many processes: read, parse, tokenize with fastokens, write int32 ids.
Rates are slopes between two sizes of the same kind of text (benchmarks/corpus.py: nothing repeats), so that start-up
is not counted; what a run costs beside the slope is printed for 1 MB. The pool is the usual preparation script: one
`tokenizers` call a document in a process pool, ids appended to one file by the parent; its start-up is not counted.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from corpus import train_tokenizer, write_jsonl
from tokenizer_pool import pool_rate

HERE = Path(__file__).parent


def our_seconds(source: Path, tokenizer: Path, target: Path, workers: int, backend: str = "auto") -> float:
    """Wall seconds of one whole `astrai preprocess`."""
    config = target.with_suffix(".json")
    config.write_text(
        '{"version": 2, "input": {"sections": [{"field": "text", "action": "train"}]}, '
        f'"tokenizer": {{"path": "{tokenizer}", "backend": "{backend}"}}}}'
    )
    command = [sys.executable, "-m", "astrai", "preprocess", source, "-o", target, "-q", "-c", config]
    started = time.perf_counter()
    subprocess.run([*command, "--workers", str(workers)], check=True)
    seconds = time.perf_counter() - started
    shutil.rmtree(target)
    return seconds


def floor_seconds(source: Path, tokenizer: Path, target: Path, workers: int) -> float:
    """Wall seconds of the bare loop, in a fresh interpreter."""
    command = [sys.executable, HERE / "bare_loop.py", source, tokenizer / "tokenizer.json", target, str(workers)]
    started = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - started


def datatrove_seconds(python: Path, source: Path, tokenizer: Path, target: Path, workers: int) -> float:
    """Wall seconds of datatrove's local executor over one file a worker."""
    parts = target / "parts"
    parts.mkdir(parents=True)
    with source.open("rb") as lines:
        files = [(parts / f"{number}.jsonl").open("wb") for number in range(workers)]
        for number, line in enumerate(lines):
            files[number % workers].write(line)
    for file in files:
        file.close()
    command = [python, HERE / "peer_datatrove.py", parts, tokenizer / "tokenizer.json", target / "out", str(workers)]
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = time.perf_counter() - started
    shutil.rmtree(target)
    return seconds


def slope(name: str, sizes_mb: list[float], measure, repeats: int) -> float:
    """MB/s between the two sizes, medians of `repeats` runs each."""
    seconds = [statistics.median(measure(number) for _ in range(repeats)) for number in range(2)]
    rate = (sizes_mb[1] - sizes_mb[0]) / (seconds[1] - seconds[0])
    times = ", ".join(f"{size:.0f} MB in {s:.2f} s" for size, s in zip(sizes_mb, seconds, strict=True))
    print(f"{name:<22}{rate:8.1f} MB/s   ({times})", flush=True)
    return rate


def compare(folder: Path, arguments: argparse.Namespace) -> None:
    tokenizer = train_tokenizer(folder / "tokenizer")
    workers, repeats, target = arguments.workers, arguments.repeats, folder / "target"
    sources = [folder / f"{salt}.jsonl" for salt in "ab"]
    sizes = [write_jsonl(s, mb * 10**6, s.stem) / 1e6 for s, mb in zip(sources, arguments.mb, strict=True)]
    ours = slope("astrai preprocess", sizes, lambda i: our_seconds(sources[i], tokenizer, target, workers), repeats)
    floor = slope("bare loop", sizes, lambda i: floor_seconds(sources[i], tokenizer, target, workers), repeats)
    print(f"{'share of the floor':<22}{ours / floor:8.2f}")
    compare_start(folder, tokenizer, workers)
    write_jsonl(folder / "pool.jsonl", arguments.pool_mb * 10**6, "p")
    pool = pool_rate(folder / "pool.jsonl", tokenizer / "tokenizer.json", target, workers)
    print(f"{'tokenizers pool':<22}{pool:8.1f} MB/s   ({arguments.pool_mb} MB)")
    print(f"{'times the pool':<22}{ours / pool:8.1f}")
    if arguments.datatrove:
        compare_datatrove(folder, tokenizer, arguments)


def compare_start(folder: Path, tokenizer: Path, workers: int) -> None:
    """What 1 MB costs: ours and the floor, medians of five."""
    source = folder / "one.jsonl"
    write_jsonl(source, 10**6, "o")
    ours = statistics.median(our_seconds(source, tokenizer, folder / "target", workers) for _ in range(5))
    floor = statistics.median(floor_seconds(source, tokenizer, folder / "target", workers) for _ in range(5))
    print(f"{'1 MB, whole run':<22}{ours:8.2f} s      (bare loop {floor:.2f} s)")


def compare_datatrove(folder: Path, tokenizer: Path, arguments: argparse.Namespace) -> None:
    """Both sides with the `tokenizers` library, at two smaller sizes."""
    sources = [folder / f"{salt}.jsonl" for salt in ("da", "db")]
    sizes = [write_jsonl(s, mb * 10**6, s.stem) / 1e6 for s, mb in zip(sources, arguments.datatrove_mb, strict=True)]
    workers, target = arguments.workers, folder / "target"
    ours = slope(
        "astrai, tokenizers", sizes, lambda i: our_seconds(sources[i], tokenizer, target, workers, "tokenizers"), 1
    )
    python = arguments.datatrove
    peer = slope("datatrove", sizes, lambda i: datatrove_seconds(python, sources[i], tokenizer, target, workers), 1)
    print(f"{'times datatrove':<22}{ours / peer:8.2f}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=int, nargs=2, default=[128, 256], help="the two sizes of the slope")
    parser.add_argument("--pool-mb", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--datatrove", type=Path, help="python of an environment with datatrove[io,processing]")
    parser.add_argument("--datatrove-mb", type=int, nargs=2, default=[64, 128])
    return parser.parse_args()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="astrai-bench-") as folder:
        compare(Path(folder), parse_arguments())
