"""`astrai serve` answers over HTTP; `astrai generate` answers one prompt on standard output."""

import logging
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

Model = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="A model directory, a checkpoint, or a run's folder.", show_default=False),
]
Device = Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda, cuda:1, mps.")]
Dtype = Annotated[str, typer.Option(metavar="NAME", help="auto, float32, bfloat16, float16.")]
Context = Annotated[
    int | None, typer.Option(min=2, metavar="N", help="Tokens of prompt and answer; by default all the model knows.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]


def serve(
    model: Model,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    name: Annotated[str | None, typer.Option(help="The model's name in requests; by default its folder's.")] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    max_seq_len: Context = None,
    max_batch_size: Annotated[int, typer.Option(min=1, max=1024, help="Answers worked on at a time.")] = 16,
    max_queue: Annotated[int, typer.Option(min=0, help="Answers that may wait for their turn.")] = 256,
    cache_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens that the cache holds.")] = None,
    page_size: Annotated[int, typer.Option(min=1, max=4096, help="Tokens a page of the cache.")] = 16,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="Web pages from there may ask; * lets in all; may be repeated."),
    ] = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Answer over HTTP, as OpenAI's API does: /v1/chat/completions, /v1/completions, /v1/models, and /health.

    Each request is told on standard error: its status, tokens and seconds, none of its text.
    """
    from astrai_serve.engine import EngineOptions
    from astrai_train.checkpoint.read import find_model_files

    _set_up_log(verbose, quiet)
    directory = find_model_files(model).directory
    options = EngineOptions(device, dtype, max_seq_len, max_batch_size, page_size, cache_tokens, max_queue)
    server = _import_server()  # and with it torch, for which a wrong path need not wait
    server_options = server.ServerOptions(tuple(allow_origin or ()), quiet, verbose)
    with server.bind(host, port) as sock:  # before the model is loaded: a port in use is told at once
        from astrai_serve.engine import load_engine

        engine = load_engine(directory, options)
        service = _service(engine, directory, name or _name_of(Path(model)))
        server.run_server(service, sock, lambda url: _announce(url, service.name, quiet), server_options)


def generate(
    model: Model,
    prompt: Annotated[str, typer.Option("--prompt", "-p", metavar="TEXT|-", help="- reads it from standard input.")],
    chat: Annotated[bool, typer.Option("--chat", help="The prompt is a user's message, not a text to go on.")] = False,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="A system message before it; with --chat.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Without it, as many as the context holds.")] = None,
    temperature: Annotated[float, typer.Option(min=0, help="0 takes the most probable token.")] = 0.8,
    top_p: Annotated[float, typer.Option(min=0, max=1, help="Keep the most probable tokens up to this sum.")] = 0.95,
    top_k: Annotated[int, typer.Option(min=0, help="Keep this many tokens; 0: all.")] = 50,
    min_p: Annotated[float, typer.Option(min=0, max=1, help="Keep tokens this probable beside the best.")] = 0.0,
    repetition_penalty: Annotated[float, typer.Option(min=0.01, help="1: none.")] = 1.0,
    frequency_penalty: Annotated[float, typer.Option(min=-2, max=2)] = 0.0,
    presence_penalty: Annotated[float, typer.Option(min=-2, max=2)] = 0.0,
    seed: Annotated[int | None, typer.Option(min=0, help="Makes the answer repeatable.")] = None,
    stop: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="Ends the answer; may be repeated.")] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    max_seq_len: Context = None,
    verbose: Verbose = False,
) -> None:
    """Write what a model has to say to a prompt, as it comes."""
    from astrai_serve.engine import EngineOptions, SamplingParams
    from astrai_train.checkpoint.read import find_model_files

    if system is not None and not chat:
        raise typer.BadParameter("it belongs to --chat", param_hint="--system")
    _set_up_log(verbose, quiet=not verbose)
    directory = find_model_files(model).directory
    options = EngineOptions(device, dtype, max_seq_len, max_batch_size=1)
    params = SamplingParams(
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        frequency_penalty=frequency_penalty,
        presence_penalty=presence_penalty,
        seed=seed,
        max_tokens=max_tokens,
        stop=tuple(stop or ()),
    )
    text = sys.stdin.read() if prompt == "-" else prompt
    from astrai_serve.engine import load_engine  # and with it torch, for which a wrong path need not wait

    with load_engine(directory, options) as engine:
        service = _service(engine, directory, "")
        ids = service.chat_ids(_conversation(system, text)) if chat else service.text_ids(text)
        _write_answer(engine.stream([ids], params))


def _import_server() -> ModuleType:
    from astrai_serve.errors import ServeError

    try:
        from astrai_serve.api import server
    except ModuleNotFoundError as error:
        hint = "pip install 'astrai[serve]'"
        what, wanted = "a package is missing that the server needs", "the packages of the extra `serve`"
        raise ServeError(what, where="this Python", got=f"no {error.name}", wanted=wanted, hint=hint) from None
    return server


def _service(engine, directory: Path, name: str):
    from astrai_serve.api.service import Service, template_date_of

    return Service(engine, name, template_date_of(directory))


def _conversation(system: str | None, text: str) -> list[dict[str, str]]:
    start = [] if system is None else [{"role": "system", "content": system}]
    return [*start, {"role": "user", "content": text}]


def _write_answer(updates) -> None:
    from astrai_serve.engine.refusals import failed

    sys.stdout.reconfigure(errors="backslashreplace")  # a narrow encoding is no reason to lose an answer
    for _, update, _ in updates:
        if update.error is not None:
            raise failed("the model", update.error)
        _say(update.text)
    _say("\n")


def _say(text: str) -> None:
    from astrai_serve.errors import ServeError

    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # the front door's affair: whoever reads has had enough
        raise
    except OSError as error:
        sys.stdout = None  # what it still holds would fail once more at the end
        what, wanted, hint = "the answer cannot be written", "a place with room", "write it somewhere else"
        raise ServeError(what, where="standard output", got=error.strerror, wanted=wanted, hint=hint) from None


def _name_of(model: Path) -> str:
    return model.resolve().name


def _announce(url: str, name: str, quiet: bool) -> None:
    if not quiet:
        print(f"{name} is served at {url}/v1 (ends with Ctrl-C)", file=sys.stderr, flush=True)


def _set_up_log(verbose: bool, quiet: bool) -> None:
    logging.basicConfig(format="%(message)s")
    level = logging.INFO if verbose else logging.ERROR if quiet else logging.WARNING
    for package in ("astrai", "astrai_serve", "astrai_train", "uvicorn"):
        logging.getLogger(package).setLevel(level)
