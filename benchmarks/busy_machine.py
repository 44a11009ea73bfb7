"""Whether torch's threads should wait asleep: short training runs with and without OMP_WAIT_POLICY=PASSIVE.

Run: python benchmarks/busy_machine.py [--rounds N] [--steps N]. By itself OpenMP lets a thread that has nothing to do
look for work for a while before it sleeps; beside other programs that takes cores from those who have something to do.
`nano` is trained with batches of 1,024 tokens on a store of Python's standard library, each run in a process of its
own; by turns on the machine as it is, and beside one process a core that loops without end. What counts is the time
of the steps, without start and the first two of them, and of the rounds the median of the ratios. What others did just
before is printed with each round: a ratio "as the machine is" means something only where they did nothing. Sleeping
threads were 1.3 times as fast beside others, sometimes 10 times, and a quarter slower on idle cores: no default.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from training import made_store

POLICY = "OMP_WAIT_POLICY"
WARM_UP = 2
TRAIN = """
import sys
from astrai_train.config import TrainConfig
from astrai_train.run import train
train(TrainConfig(data=sys.argv[1], model="nano", output_dir=sys.argv[2], max_steps=int(sys.argv[3]), window=128,
                  batch_tokens=1024, device="cpu", validate_every=0, checkpoint_every=0))
"""
LOOP = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    pass
"""


def step_seconds(store: Path, output: Path, steps: int, policy: str | None) -> float:
    """Of the steps of one run, without the first ones."""
    environment = {name: value for name, value in os.environ.items() if name != POLICY}
    environment |= {POLICY: policy} if policy else {}
    command = [sys.executable, "-c", TRAIN, str(store), str(output), str(WARM_UP + steps)]
    subprocess.run(command, env=environment, check=True)
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    shutil.rmtree(output)
    return lines[-1]["seconds"] - lines[WARM_UP - 1]["seconds"]


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """So many processes that keep a core busy each, and end with this one however it ends."""
    started = [subprocess.Popen([sys.executable, "-c", LOOP, str(os.getpid())]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def compare(store: Path, folder: Path, rounds: int, steps: int, count: int) -> float:
    """The median of default / passive: above 1 where waiting asleep is faster."""
    ratios = []
    for number in range(rounds):
        others = psutil.cpu_percent(1.0)
        order = [None, "PASSIVE"] if number % 2 == 0 else ["PASSIVE", None]
        with neighbours(count):
            took = {policy: step_seconds(store, folder / "run", steps, policy) for policy in order}
        ratios.append(took[None] / took["PASSIVE"])
        times = f"default {took[None]:5.1f} s   passive {took['PASSIVE']:5.1f} s"
        print(f"round {number + 1}, {count} beside: {times}   (others before: {others:.0f} % of the cores)", flush=True)
    return statistics.median(ratios)


def main() -> None:
    """Measure, and print the ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = made_store(folder)
        print(f"nano, {options.steps} steps of 1,024 tokens, {cores} cores", flush=True)
        idle, busy = (compare(store, folder, options.rounds, options.steps, count) for count in (0, cores))
    print(f"default / passive, as the machine is: {idle:.2f}; beside {cores} busy processes: {busy:.2f}")


if __name__ == "__main__":
    main()
