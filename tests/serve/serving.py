"""Served models for tests: tiny directories, engines in this process, real servers in their own."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import torch

from astrai_data.tokenizer import Tokenizer
from astrai_serve.engine import Engine, EngineOptions, SamplingParams
from astrai_serve.engine.loading import build_engine
from astrai_train.models import ModelConfig, PackedAttention, Transformer, save_model
from tests.data.toys import TRAINING_TEXT, write_bpe_tokenizer
from tests.train.small_models import lively

SIZES = {
    "vocab_size": 512,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 256,
}
START_S = 60


def near_ties() -> Transformer:
    """Large random weights: many logits nearly equal, so that a different last bit soon is a different text."""
    return lively(ModelConfig(**SIZES), torch.float32)


def trained(tokenizer: Tokenizer, num_steps: int = 150) -> Transformer:
    """A model that has learnt the toy tokenizer's few lines nearly by heart."""
    torch.manual_seed(0)
    model = Transformer(ModelConfig(**SIZES))
    documents = [torch.tensor([tokenizer.bos_token_id, *tokenizer.encode(text)]) for text in TRAINING_TEXT]
    ids = torch.cat(documents)
    lengths = torch.tensor([0, *map(len, documents)])
    positions = torch.cat([torch.arange(len(document)) for document in documents])
    borders = lengths.cumsum(0).to(torch.int32)
    labels = ids.roll(-1)
    labels[borders[1:].long() - 1] = tokenizer.eos_token_id
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(num_steps):
        loss = torch.nn.functional.cross_entropy(model(ids, positions, PackedAttention(borders)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def write_model(directory: Path, model: Transformer | None = None) -> Path:
    """A model directory: weights, configuration, tokenizer."""
    write_bpe_tokenizer(directory)
    save_model(model or near_ties(), directory)
    return directory


def small_engine(model: Transformer, tokenizer: Tokenizer, **options) -> Engine:
    """An engine in this process."""
    return build_engine(model, tokenizer, EngineOptions(**options))


def greedy(**changes) -> SamplingParams:
    """Temperature 0, 24 tokens, no early end."""
    return SamplingParams(**{"temperature": 0, "max_tokens": 24, "ignore_eos": True} | changes)


def wait_until(is_so, timeout_s: float = 10) -> None:
    """Poll until it is so."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not come so"
        time.sleep(0.005)


def is_there(url: str) -> bool:
    """Whether the server answers at this address."""
    try:
        return httpx.get(url, timeout=START_S).status_code == 200  # it listens before the model is loaded
    except httpx.ConnectError:
        return False


class Server:
    """`astrai serve` in its own process; `url` once it is ready."""

    def __init__(self, *arguments: object) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "200"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.serve.front", "serve", *map(str, arguments)],
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        wait_until(lambda: self.url or self.process.poll() is not None, START_S)
        assert self.url, "".join(self.said)
        self.client = httpx.Client(base_url=self.url, timeout=60)

    def _read(self) -> None:
        self.said.extend(iter(self.process.stderr.readline, ""))

    @property
    def url(self) -> str | None:
        found = re.search(r"at (http://\S+)/v1", "".join(self.said))
        return found and found[1]

    def post(self, path: str, **body) -> httpx.Response:
        return self.client.post(f"/v1/{path}", json=body)

    def stream(self, path: str, **body) -> list[str]:
        """The data of every event, read as the standard has it: frames end with an empty line."""
        with self.client.stream("POST", f"/v1/{path}", json=body | {"stream": True}) as response:
            assert response.status_code == 200, response.read()
            assert response.headers["content-type"].startswith("text/event-stream")
            raw = b"".join(response.iter_bytes()).decode()
        assert raw.endswith("\n\n")
        frames = raw.removesuffix("\n\n").split("\n\n")
        assert all(frame.startswith("data: ") and "\n" not in frame for frame in frames)
        return [frame.removeprefix("data: ") for frame in frames]

    def health(self) -> dict:
        return self.client.get("/health").json()

    def wait_until_idle(self) -> None:
        """Nobody runs or waits, and every page is free."""

        def is_idle() -> bool:
            state = self.health()
            return state["running"] == state["waiting"] == 0 and state["free_pages"] == state["num_pages"]

        wait_until(is_idle)

    def end(self, sent: signal.Signals = signal.SIGTERM, timeout_s: float = 20) -> int:
        """Send a signal and wait; the exit code."""
        self.client.close()
        self.process.send_signal(sent)
        try:
            return self.process.wait(timeout_s)
        finally:
            self.process.kill()
            self._reader.join(5)
            self.process.stderr.close()


@contextlib.contextmanager
def served(*arguments: object):
    server = Server(*arguments)
    try:
        yield server
    finally:
        code = server.end()
    assert code == 0, "".join(server.said)


def run_front(*arguments: object, **options) -> subprocess.CompletedProcess:
    """A command of `astrai_serve.cli` as the front door runs it."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "tests.serve.front", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=90,
        env=environment,
        check=False,
        **options,
    )
