"""Peak memory of a worker for a small and a large input, which should be the same.

    python benchmarks/memory.py [--small-mb 128] [--large-mb 384] [--kinds code short compressed]

Each input is run by `astrai_data.Pipeline` with the `pretrain` pipeline and one worker, which works inside the process:
so the peak is that of a worker and of the coordinator together. The worker has one tokenizer thread, as workers have
where there is one for each core, which is the default of `astrai preprocess`. The peak is the highest resident set
that the kernel saw (`VmHWM`), mapped files included. The kinds:

    code        Python's standard library, every line distinct, 20 KB a record
    short       records of 65 bytes
    compressed  `code` as one zstd file: one task, whatever its size (sizes are of the plain text)

No text repeats; of short records, all but the running number does.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import zstandard
from corpus import distinct_records, library_texts, train_tokenizer

PHRASE = "the licence applies to any work that a contributor may distribute under these terms and no other"

CHILD = """
import sys, time
from astrai_data import Pipeline, PipelineConfig
started = time.perf_counter()
Pipeline(PipelineConfig.from_file("pretrain"), [sys.argv[1]], sys.argv[2], sys.argv[3]).run(workers=1)
seconds = time.perf_counter() - started
try:
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024
except OSError:  # ru_maxrss may be the parent's on Linux; elsewhere it is all there is, in bytes
    import resource
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(peak / 1e6, seconds)
"""


def short_records() -> Iterator[bytes]:
    """JSONL lines of 65 bytes on average, without end."""
    words = PHRASE.split()
    phrases = [" ".join((words * 2)[begin : begin + 8]).encode() for begin in range(len(words))]
    for number in count():
        yield b'{"text": "%d %s"}\n' % (number, phrases[number % len(phrases)])


def write_input(folder: Path, kind: str, num_bytes: int) -> tuple[Path, int]:
    """(the input, its records)."""
    records = short_records() if kind == "short" else distinct_records(library_texts(), "m")
    path = folder / ("in.jsonl.zst" if kind == "compressed" else "in.jsonl")
    written = num_records = 0
    with path.open("wb") as raw:
        file = zstandard.ZstdCompressor(level=1).stream_writer(raw) if kind == "compressed" else raw
        while written < num_bytes:
            written += len(record := next(records))
            file.write(record)
            num_records += 1
        file.flush(*((zstandard.FLUSH_FRAME,) if kind == "compressed" else ()))
    return path, num_records


def measure(folder: Path, tokenizer: Path, kind: str, num_mb: int) -> float:
    """Peak MB of one run."""
    path, num_records = write_input(folder, kind, num_mb * 10**6)
    command = [sys.executable, "-c", CHILD, path, folder / "store", tokenizer]
    environment = os.environ | {"FASTOKENS_BPE_THREADS": "1", "RAYON_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    peak, seconds = map(float, done.stdout.split())
    shutil.rmtree(folder / "store")
    path.unlink()
    rate = f"{num_records / seconds:11,.0f} records/s"
    print(f"{kind:12} {num_mb:6,} MB {num_records:11,} records {seconds:8.1f} s {rate} {peak:7.0f} MB", flush=True)
    return peak


def main() -> None:
    arguments = parse_arguments()
    folder = Path(tempfile.mkdtemp(prefix="astrai-memory-", dir=arguments.folder))
    try:
        tokenizer = train_tokenizer(folder / "tokenizer")
        peaks = {
            kind: [measure(folder, tokenizer, kind, size) for size in (arguments.small_mb, arguments.large_mb)]
            for kind in arguments.kinds
        }
    finally:
        shutil.rmtree(folder)
    for kind, (small, large) in peaks.items():
        print(f"{kind:12} peak {small:.0f} MB -> {large:.0f} MB, {large / small - 1:+.1%}")


def parse_arguments() -> argparse.Namespace:
    kinds = ["code", "short", "compressed"]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small-mb", type=int, default=128)
    parser.add_argument("--large-mb", type=int, default=384)
    parser.add_argument("--kinds", nargs="+", choices=kinds, default=kinds)
    parser.add_argument("--folder", help="where inputs and stores are put meanwhile")
    return parser.parse_args()


if __name__ == "__main__":
    main()
