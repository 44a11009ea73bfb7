"""Text to store, against a pool of `tokenizers` processes that does no more than tokenize and write.

    python benchmarks/preprocess.py [--small-mb 128] [--large-mb 256] [--peer-mb 16] [--workers 2]

Both sides read the same kind of JSONL (benchmarks/corpus.py) with the same number of processes. Ours is the whole
`astrai preprocess -c pretrain`: checked backend, packing, checksums, documents, ledger, commit; its rate is the slope
between two sizes, so that start-up is not counted. The peer is the usual preparation script: a process pool, one
`tokenizers` call a document, ids appended to one file by the parent; its start-up is not counted either.
"""

import argparse
import json
import multiprocessing
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from corpus import train_tokenizer, write_jsonl
from tokenizers import Tokenizer as HubTokenizer


class Encoder:
    """A pool worker's state: the tokenizer, opened once a process."""

    tokenizer: HubTokenizer

    @classmethod
    def open(cls, path: str) -> None:
        cls.tokenizer = HubTokenizer.from_file(path)

    @classmethod
    def encode(cls, line: str) -> list[int]:
        return cls.tokenizer.encode(json.loads(line)["text"], add_special_tokens=False).ids


def peer_rate(source: Path, tokenizer: Path, target: Path, workers: int) -> float:
    """MB/s of JSONL through the pool."""
    with multiprocessing.Pool(workers, Encoder.open, (str(tokenizer / "tokenizer.json"),)) as pool:
        pool.map(Encoder.encode, ['{"text": "warm"}'] * workers)
        started = time.perf_counter()
        with source.open(encoding="utf-8") as lines, target.open("wb") as out:
            for ids in pool.imap(Encoder.encode, lines, chunksize=32):
                out.write(np.array(ids, np.int32).tobytes())
        return source.stat().st_size / 1e6 / (time.perf_counter() - started)


def our_seconds(source: Path, tokenizer: Path, target: Path, workers: int) -> float:
    """Wall seconds of one whole `astrai preprocess`."""
    command = [sys.executable, "-m", "astrai", "preprocess", str(source), "-o", str(target), "-q"]
    started = time.perf_counter()
    subprocess.run([*command, "-c", "pretrain", "--tokenizer", str(tokenizer), "--workers", str(workers)], check=True)
    return time.perf_counter() - started


def main() -> None:
    arguments = parse_arguments()
    folder = Path(tempfile.mkdtemp(prefix="astrai-bench-"))
    try:
        tokenizer = train_tokenizer(folder / "tokenizer")
        seconds, sizes = [], []
        for salt, size in (("a", arguments.small_mb), ("b", arguments.large_mb)):
            source = folder / f"{salt}.jsonl"
            sizes.append(write_jsonl(source, size * 10**6, salt) / 1e6)
            seconds.append(our_seconds(source, tokenizer, folder / f"store-{salt}", arguments.workers))
            print(f"astrai preprocess   {sizes[-1]:8.1f} MB  {seconds[-1]:7.2f} s", flush=True)
        ours = (sizes[1] - sizes[0]) / (seconds[1] - seconds[0])
        write_jsonl(folder / "peer.jsonl", arguments.peer_mb * 10**6, "p")
        peer = peer_rate(folder / "peer.jsonl", tokenizer, folder / "peer.bin", arguments.workers)
    finally:
        shutil.rmtree(folder)
    print(f"text to store       {ours:8.1f} MB/s (slope, {arguments.workers} workers)")
    print(f"tokenizers pool     {peer:8.1f} MB/s ({arguments.peer_mb} MB, {arguments.workers} processes)")
    print(f"ratio               {ours / peer:8.1f}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small-mb", type=int, default=128)
    parser.add_argument("--large-mb", type=int, default=256)
    parser.add_argument("--peer-mb", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
