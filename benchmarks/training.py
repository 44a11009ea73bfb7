"""The trainer against a bare torch loop over the same model and the same packed batches, side by side in one run.

Run: python benchmarks/training.py [--store STORE] [--rounds N] [--steps N] [--threads N]. Without a store one of
Python's standard library is made. The bare loop has its batches in memory, computes `functional.cross_entropy` over
whole logits, clips and steps AdamW with the same groups; it looks at no loss and writes nothing. The trainer reads
from the store, counts labels, checks for numbers that are none, and writes metrics. Both run in turns, so that a busy
machine slows both; what counts is the median of the rounds' ratios. Then one checkpoint: its size, and the time to
write and to read it.
"""

import argparse
import math
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import torch
from corpus import train_tokenizer, write_jsonl
from torch.nn import functional

from astrai_data import Pipeline, PipelineConfig
from astrai_data.load import PackedLoader
from astrai_train.callbacks import MetricsFile
from astrai_train.checkpoint.resume import read_saved
from astrai_train.config import TrainConfig
from astrai_train.models import PackedAttention, Transformer
from astrai_train.optim import build_adamw
from astrai_train.plan import Plan, make_plan
from astrai_train.trainer import Trainer

WANTED = 0.95


def bare_steps(model: Transformer, optimizer: torch.optim.Optimizer, batches: list[dict]) -> None:
    """A training loop as one would write it."""
    for batch in batches:
        attention = PackedAttention(batch["cu_seqlens"], batch["max_seqlen"])
        logits = model(batch["input_ids"], batch["position_ids"], attention)
        functional.cross_entropy(logits, batch["labels"]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def timed(work, *arguments) -> float:
    begin = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - begin


def trainer_steps(trainer: Trainer, steps: int) -> None:
    """Some steps of the trainer's own loop, metrics and all."""
    for _ in range(steps):
        trainer.next_step()


def compare(plan: Plan, rounds: int, steps: int) -> float:
    """The ratio of tokens/s, trainer to bare loop."""
    trainer = Trainer(plan, [MetricsFile(Path(plan.config.output_dir))])
    trainer.callbacks[0].on_train_begin(trainer)
    model = plan.model.build(plan.config.seed, plan.precision.device)
    optimizer = build_adamw(model, lr=plan.lr, weight_decay=plan.config.weight_decay)
    ratios = []
    loader = PackedLoader(plan.store, seed=plan.config.seed, **plan.batch_size)
    for number in range(rounds + 1):
        batches = [next(loader) for _ in range(steps)]
        tokens = sum(len(batch["input_ids"]) for batch in batches)
        bare = tokens / timed(bare_steps, model, optimizer, batches)
        own = tokens / timed(trainer_steps, trainer, steps)
        if number:  # the first round warms up
            ratios.append(own / bare)
            print(f"round {number}: trainer {own:8,.0f} tokens/s   bare loop {bare:8,.0f} tokens/s", flush=True)
    apart = distance(trainer.model, model)
    ratio = statistics.median(ratios)
    print(f"trainer / bare loop: {ratio:.3f} (wanted: {WANTED}); the weights of both differ by {apart:.1e}")
    checkpoint_cost(trainer)
    return ratio


def distance(mine: Transformer, theirs: Transformer) -> float:
    """Relative, over all weights together: both did the same, so it is rounding."""
    one, other = (torch.cat([p.detach().flatten() for p in model.parameters()]) for model in (mine, theirs))
    return ((one - other).norm() / other.norm()).item()


def checkpoint_cost(trainer: Trainer) -> None:
    seconds = timed(trainer.save)
    path = trainer.newest
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    reading = timed(lambda: read_saved(path).optimizer())
    print(f"checkpoint of {size / 1e6:.1f} MB: written in {seconds:.2f} s, checked and read in {reading:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--store")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    folder = Path(tempfile.mkdtemp())
    try:
        store = options.store or str(made_store(folder))
        config = TrainConfig(
            data=store, model="nano", output_dir=str(folder / "run"), batch_tokens=4096, device="cpu",
            validate_every=0, checkpoint_every=0, max_steps=10**6, warmup=0, min_lr_ratio=1,
        )  # fmt: skip
        Path(config.output_dir).mkdir()
        print(f"nano, batches of 4,096 tokens, {torch.get_num_threads()} threads, float32, {Path(store).name}")
        ratio = compare(make_plan(config), options.rounds, options.steps)
    finally:
        shutil.rmtree(folder)
    if math.isnan(ratio) or ratio < WANTED:
        raise SystemExit(f"the trainer is too slow: {ratio:.3f}")


def made_store(folder: Path) -> Path:
    """Python's standard library in rows of 1,024, a vocabulary of 8,192."""
    train_tokenizer(folder / "tokenizer", 8192)
    write_jsonl(folder / "in.jsonl", 4_000_000, "t")
    sections = {"sections": [{"field": "text", "action": "train"}]}
    config = {"version": 2, "input": sections, "preprocessing": {"max_packed_len": 1024}}
    inputs = [str(folder / "in.jsonl")]
    Pipeline(PipelineConfig.from_dict(config), inputs, str(folder / "store"), str(folder / "tokenizer")).run(workers=1)
    return folder / "store"


if __name__ == "__main__":
    main()
