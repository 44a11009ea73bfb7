"""Small stores and training runs: real pipelines, a model of hidden size 32, seconds at most."""

import json
import signal
import sys
from pathlib import Path

import torch

from astrai_data import Pipeline, PipelineConfig
from astrai_train.config import TrainConfig
from astrai_train.models import ModelConfig, Transformer, load_model, save_model
from astrai_train.models.finding import list_checkpoints
from astrai_train.models.safetensors_file import SafetensorsFile
from astrai_train.run import train
from tests.data.running import TEXT_CONFIG, write_jsonl
from tests.data.toys import CHATML_GENERATION_TEMPLATE, TRAINING_TEXT, write_bpe_tokenizer
from tests.train.small_models import SMALL

VOCAB_SIZE = 512
TRAIN = [
    sys.executable,
    "-c",
    "import astrai\nastrai.COMMANDS.setdefault('train', ('astrai_train.cli', 'command', 'Train.'))\nastrai.main()",
    "train",
]
"""The command line of `astrai train`."""
QUIET = {"checkpoint_every": 0, "validate_every": 0}


def make_text_store(root: Path, num_records: int = 60, validation: float = 0.2) -> Path:
    """Rows of up to 64 tokens, every token trained."""
    texts = [{"text": f"{TRAINING_TEXT[i % 5][: 20 + 7 * (i % 11)]} {i}"} for i in range(num_records)]
    config = TEXT_CONFIG | {"run": {"validation_fraction": validation}}
    return make_store(root, config, texts)


def make_chat_store(root: Path) -> Path:
    """Conversations of which the answers are trained."""
    config = {
        "version": 2,
        "input": {"sections": [{"field": "messages", "action": "$role", "template": True}]},
        "mask": {"assistant": "train"},
        "preprocessing": {"max_packed_len": 96},
    }
    turns = [("user", "add {0} and {0}"), ("assistant", "that is {1}, a number")]
    records = [
        {"messages": [{"role": role, "content": text.format(i, 2 * i)} for role, text in turns]} for i in range(24)
    ]
    return make_store(root, config, records)


def make_store(root: Path, config: dict, records: list[dict]) -> Path:
    """A store by a pipeline, and its tokenizer beside it."""
    source = write_jsonl(root.parent / "in.jsonl", records)
    tokenizer = write_bpe_tokenizer(root.parent / "tokenizer", VOCAB_SIZE, CHATML_GENERATION_TEMPLATE)
    Pipeline(PipelineConfig.from_dict(config), [str(source)], str(root), str(tokenizer)).run(workers=1)
    return root


def model_config(**changes) -> ModelConfig:
    """Two layers of 32."""
    return ModelConfig(**SMALL | {"vocab_size": VOCAB_SIZE} | changes)


def write_model_config(path: Path, **changes) -> Path:
    """A configuration file, for fresh weights."""
    model_config(**changes).to_file(path)
    return path


def write_model(directory: Path, seed: int = 0, **changes) -> Path:
    """A model directory without a tokenizer."""
    save_model(Transformer(model_config(**changes), generator=torch.Generator().manual_seed(seed)), directory)
    return directory


def settings(folder: Path, store: Path, **changes) -> dict:
    """Settings of a run in `folder/run` with fresh weights."""
    if "model" not in changes:
        changes["model"] = str(write_model_config(folder / "model.json"))
    base = {"data": str(store), "output_dir": str(folder / "run"), "batch_tokens": 128, "lr": 1e-2}
    return base | {"device": "cpu"} | QUIET | changes


def run(folder: Path, store: Path, *, resume: bool = False, callbacks=(), **changes):
    """Train in this process; the outcome."""
    config = TrainConfig(**settings(folder, store, **changes))
    return train(config, resume=resume, callbacks=callbacks)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Of the newest checkpoint of a run."""
    return load_model(list_checkpoints(folder / "run")[-1].path).state_dict()


def bits(folder: Path) -> dict[str, torch.Tensor]:
    """Weights and optimizer state of the newest checkpoint of a run."""
    state = SafetensorsFile(list_checkpoints(folder / "run")[-1].path / "training/optimizer.safetensors")
    return weights(folder) | dict(state.tensors())


def losses(folder: Path) -> list[tuple]:
    """What training decided in each step, without times."""
    return [(line["step"], line["loss"], line["lr"], line["grad_norm"]) for line in metrics(folder)]


def names(folder: Path) -> list[str]:
    """Of the checkpoints of a run, oldest first."""
    return [checkpoint.path.name for checkpoint in list_checkpoints(folder / "run")]


def metrics(folder: Path) -> list[dict]:
    """The lines of metrics.jsonl."""
    return [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]


def same_bits(mine: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


class StopAfter:
    """Asks for a stop as Ctrl-C does, after some step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, trainer, report) -> None:
        if report.step == self.step:
            signal.raise_signal(signal.SIGINT)
