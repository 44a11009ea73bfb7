"""A folder to do things wrong in, with copies of good tokenizers, stores and models, each of which is made once."""

import contextlib
import io
import json
import shutil
import signal
import sys
from functools import cached_property
from pathlib import Path

import astrai
from astrai_data import Pipeline, PipelineConfig, TokenStore
from tests.data.running import write_jsonl
from tests.data.toys import write_bpe_tokenizer

TEXTS = [{"text": f"document {number} turns text into numbers " * (1 + number % 7)} for number in range(40)]
CONFIG = {
    "version": 2,
    "tokenizer": {"backend": "tokenizers"},
    "input": {"sections": [{"field": "text", "action": "train"}]},
    "preprocessing": {"max_packed_len": 64},
    "run": {"validation_fraction": 0.2},
}
CHAT = CONFIG | {
    "input": {"sections": [{"field": "messages", "action": "$role", "template": True}]},
    "mask": {"assistant": "train"},
    "run": {},
}


class Stock:
    """Good things, made when they are first asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def tokenizer(self) -> Path:
        return write_bpe_tokenizer(self.root / "tokenizer")

    @cached_property
    def texts(self) -> Path:
        return write_jsonl(self.root / "texts.jsonl", TEXTS)

    @cached_property
    def store(self) -> Path:
        config = PipelineConfig.from_dict(CONFIG)
        Pipeline(config, [self.texts], self.root / "store", self.tokenizer).run()
        return self.root / "store"

    @cached_property
    def model(self) -> Path:
        from tests.serve.serving import write_model

        return write_model(self.root / "model")

    @cached_property
    def engine(self):
        from astrai_serve.engine import load_engine

        return load_engine(self.model)

    def close(self) -> None:
        """End the engine, if there is one."""
        if "engine" in self.__dict__:
            self.engine.shutdown()


class Place:
    """One row's folder. `screen` is what the user last saw of a command or an answer; None: nothing went wrong.

    `message` is what the row told when it failed, for those who mend; they add `options` to commands and `settings` to
    calls.
    """

    def __init__(self, root: Path, stock: Stock) -> None:
        self.root, self._stock = root, stock
        self.screen: str | None = None
        self.message = ""
        self.stdout: io.TextIOBase | None = None
        self.options: list[str] = []
        self.settings: dict[str, object] = {}

    def __truediv__(self, name: str) -> Path:
        return self.root / name

    def write(self, name: str, content: str | bytes | dict | list) -> Path:
        """A file in the folder; objects as JSON."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = content if isinstance(content, str | bytes) else json.dumps(content)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def once(self, name: str, content: str | bytes | dict | list) -> Path:
        """`write`, unless the file is there: what was mended stays mended."""
        path = self.root / name
        return path if path.exists() else self.write(name, content)

    def _copy(self, kind: str) -> Path:
        source, copy = getattr(self._stock, kind), self.root / kind
        if not copy.exists():
            (shutil.copytree if source.is_dir() else shutil.copy)(source, copy)
        return copy

    @property
    def tokenizer(self) -> Path:
        """A byte-level tokenizer with a chat template."""
        return self._copy("tokenizer")

    @property
    def texts(self) -> Path:
        """JSON lines."""
        return shutil.copy(self._stock.texts, self.root / "texts.jsonl")

    @property
    def store(self) -> Path:
        """A store of two splits, made of `texts`."""
        return self._copy("store")

    @property
    def model(self) -> Path:
        """A model directory of random weights, with its tokenizer."""
        return self._copy("model")

    def open(self, split: str | None = None) -> TokenStore:
        """The store."""
        return TokenStore.open(self.store, split)

    @property
    def engine(self):
        """A running engine over the model."""
        return self._stock.engine

    def post(self, path: str, body: dict, engine=None) -> None:
        """A request as a client sends it; `screen` is the message of the answer if it is an error."""
        self._ask("POST", path, engine or self.engine, json.dumps(body))

    def get(self, path: str) -> None:
        """As `post`."""
        self._ask("GET", path, self.engine, None)

    def _ask(self, method: str, path: str, engine, body: str | None) -> None:
        from starlette.testclient import TestClient

        from astrai_serve.api.app import create_app
        from astrai_serve.api.service import Service

        client = TestClient(create_app(Service(engine, "mine")), raise_server_exceptions=False)
        answer = client.request(method, path, content=body, headers={"content-type": "application/json"})
        if answer.is_error:
            self.screen = answer.json()["error"]["message"]

    def file(self, pattern: str) -> Path:
        """The first file of the folder that matches."""
        return next(iter(sorted(self.root.glob(pattern))))

    def edit(self, path: Path, **changes: object) -> Path:
        """Change keys of a JSON file; None takes a key out."""
        content = json.loads(path.read_bytes()) | changes
        path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
        return path

    def pipeline(self, config: dict | None = None, inputs: list | None = None, out: str = "out", **run: object):
        """Run a pipeline in this process."""
        inputs = [self.texts] if inputs is None else inputs
        return Pipeline(PipelineConfig.from_dict(config or CONFIG), inputs, self / out, self.tokenizer).run(**run)

    def astrai(self, *arguments: object) -> None:
        """The command as a user gives it, in this process; `screen` is what it printed if it failed."""
        out, err = self.stdout or io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        before, sys.argv = sys.argv, ["astrai", *map(str, arguments), *self.options]
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                astrai.main()
        except SystemExit as end:
            if end.code:
                self.screen = err.getvalue()
        finally:
            sys.argv = before
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def told(self, name: str) -> str:
        """A field of the message that the user has read."""
        return next(line for line in self.message.splitlines() if line.startswith(f"  {name}: ")).split(": ", 1)[1]
