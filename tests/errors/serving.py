"""Serving: what a user gives the commands, the engine and its pages; and what a client asks over HTTP."""

import asyncio
import io
import socket

import torch
from safetensors.torch import save_file

from astrai_data.errors import TokenizerError
from astrai_data.tokenizer import Tokenizer
from astrai_serve.api.answers import Answers
from astrai_serve.cache import PagePool
from astrai_serve.engine import EngineOptions, Job, SamplingParams, load_engine
from astrai_serve.engine.loading import check_fit, load_tokenizer
from astrai_serve.errors import (
    EngineStoppedError,
    GenerationError,
    PortInUseError,
    QueueFullError,
    RequestError,
    ServeError,
)
from astrai_train.checkpoint.read import read_model_files
from astrai_train.models import ModelConfig
from astrai_train.models.safetensors_file import SafetensorsFile
from tests.data.toys import write_bpe_tokenizer
from tests.serve.serving import SIZES

from . import http_requests
from .http_requests import request
from .place import Place
from .row import NOT_THEIRS, Row

OURS = dict.fromkeys(("where", "got", "wanted"), NOT_THEIRS)


def generate(*options: object):
    """The command."""
    return lambda place: place.astrai("generate", place.model, "-p", "a", "--max-tokens", 1, *options)


def serve(*options: object):
    return lambda place: place.astrai("serve", place.model, "--port", 0, *options)


def full_disk(place: Place) -> None:
    place.stdout = io.TextIOWrapper(io.FileIO("/dev/full", "w"), write_through=True)
    generate()(place)


def without_template(place: Place) -> None:
    write_bpe_tokenizer(place.model, template=None)
    place.astrai("generate", place.model, "-p", "a", "--max-tokens", 1, "--chat")


def spoil_weights(place: Place) -> None:
    """A model whose weights are no numbers."""
    path = place.model / "model.safetensors"
    tensors = dict(SafetensorsFile(path).tensors())
    save_file({name: torch.full_like(tensor, torch.nan) for name, tensor in tensors.items()}, path)


def with_spoilt_weights(use):
    def fail(place: Place) -> None:
        spoil_weights(place)
        use(place)

    return fail


def generate_in_python(place: Place) -> None:
    with load_engine(place.model) as engine:
        engine.generate([[41]])


def post_to_spoilt_model(place: Place) -> None:
    with load_engine(place.model) as engine:
        place.post("/v1/completions", {"prompt": "a", "max_tokens": 1}, engine)


def shut_down_meanwhile(place: Place) -> None:
    async def ask(engine) -> None:
        answers = Answers(engine, [[41]], SamplingParams(ignore_eos=True), 1)
        engine.stop()
        await answers.collect()

    with load_engine(place.model) as engine:
        asyncio.run(ask(engine))


def stopped(place: Place) -> None:
    with load_engine(place.model) as engine:
        engine.shutdown()
        engine.generate([[41]])


def submit(*counts: int):
    """So many answers to each of some requests; one is worked on at a time, and one may wait."""

    def fail(place: Place) -> None:
        with load_engine(place.model, EngineOptions(max_batch_size=1, max_queue=1)) as engine:
            for count in counts:
                engine.submit([Job([41], SamplingParams(ignore_eos=True), lambda update: None)] * count)

    return fail


def prompt(*ids: int):
    return lambda place: place.engine.generate([list(ids)])


def used_port(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place.astrai("serve", place.model, "--port", server.getsockname()[1])


def no_tokenizer(place: Place) -> None:
    (place.model / "tokenizer.json").unlink(missing_ok=True)
    load_tokenizer(read_model_files(place.model))


def large_tokenizer(place: Place) -> None:
    check_fit(ModelConfig(**SIZES | {"vocab_size": 99}), Tokenizer.from_pretrained(place.tokenizer))


def date_of_another_kind(place: Place) -> None:
    place.edit(place.model / "tokenizer_config.json", template_date=20240726)
    generate("--chat")(place)


def mend_context(place: Place) -> None:
    most = place.told("wanted").removeprefix("at most ").split(",")[0]
    place.options = ["--max-seq-len", most]


def row(name, fail, *says, kind=ServeError, without=None, mend=None) -> Row:
    return Row(name, fail, kind, says, without or {}, mend)


ROWS = [
    *http_requests.ROWS,
    request("an empty prompt", prompt(), "no tokens", "at least one token"),
    request("an unknown id", prompt(41, 512), "got: 512", "0 to 511", "this model's tokenizer"),
    request("a setting", lambda p: SamplingParams(top_p=1.5), "top_p is out of range", "got: 1.5", "0 to 1"),
    request("a full queue", submit(2, 2), " with these", "at most 1", "--max-queue", kind=QueueFullError),
    request("too many answers", submit(3), "got: 3", "at most 2", "in several requests"),
    request("an engine that was stopped", stopped, "start the server again", kind=EngineStoppedError),
    row("a server that goes", shut_down_meanwhile, "shut down", "when it is", kind=EngineStoppedError, without=OURS),
    row(
        "weights that are no numbers, over HTTP",
        with_spoilt_weights(post_to_spoilt_model),
        "the server's log tells why",
        kind=GenerationError,
        without=OURS,
    ),
    row(
        "weights that are no numbers",
        with_spoilt_weights(generate_in_python),
        "prompt 0",
        "the model gave logits that are no numbers",
        kind=GenerationError,
    ),
    row(
        "the command on them",
        with_spoilt_weights(generate()),
        "got: the model gave logits",
        "float32",
        kind=GenerationError,
    ),
    row("a long context", generate("--max-seq-len", 999), "999 tokens", "at most 256", mend=mend_context),
    row("a small cache", serve("--cache-tokens", 50), "48 tokens", "256"),
    row("a cache of all memory", serve("--cache-tokens", 10**15), "1000000000000000 tokens", "at most "),
    row("an answer to a full disk", full_disk, "standard output", "No space left", "somewhere else"),
    row("a device", generate("--device", "cuda:99"), "got: cuda:99", "--device auto"),
    row("a dtype", generate("--dtype", "float8"), "got: float8", "auto, float32", "try: float"),
    row("no template", without_template, "the tokenizer has no chat template", "without --chat", kind=RequestError),
    row("a date", date_of_another_kind, "20240726", '"2024-07-26"', kind=TokenizerError),
    row("no tokenizer", no_tokenizer, "no tokenizer.json", "`astrai train` does so"),
    row("a tokenizer that is too large", large_tokenizer, "ids up to 452", "vocab_size = 99"),
    row("a used port", used_port, "127.0.0.1:", "--port 0 for any free one", kind=PortInUseError),
    row("an address of others", lambda p: p.astrai("serve", p.model, "--host", "203.0.113.1"), "203.0.113.1:8000"),
    row("no origin", serve("--allow-origin", "localhost:3000"), "'localhost:3000'", "scheme://host", "without a path"),
    row("no pages", lambda p: PagePool(0, 16), "0 pages of 16 tokens", "--cache-tokens"),
    row("too few pages", lambda p: PagePool(2, 16).allocate(3), "got: 2", "wanted: 3", "`num_free`"),
    row("a page twice", lambda p: PagePool(2, 16).free([1]), "got: 1", "free each page once"),
]
