"""From a model directory to a running engine: device, dtype, and how large the cache is."""

import logging
import math
from pathlib import Path

import psutil
import torch

from astrai_data.tokenizer import Tokenizer
from astrai_serve.cache import KeyValueStorage, PagePool, bytes_per_token
from astrai_serve.engine.engine import Engine
from astrai_serve.engine.model_runner import ModelRunner
from astrai_serve.engine.options import EngineOptions
from astrai_serve.engine.row_counts import find_row_counts
from astrai_serve.errors import ServeError
from astrai_train.checkpoint.read import ModelFiles, read_model_files
from astrai_train.models import ModelConfig, Transformer, load_model

STEP_TOKENS = {"cpu": 256}
OTHER_STEP_TOKENS = 2048
"""Tokens a step: on a CPU a step is to stay short, elsewhere it has to be long enough to be worth the launches."""
MEMORY_SHARE = 0.5
"""Of the memory that is free, for keys and values at most."""


def load_engine(directory: str | Path, options: EngineOptions | None = None) -> Engine:
    """The engine for a model directory, a checkpoint, or a run (its newest checkpoint), started.

    Raises:
        ModelError, TokenizerError: the directory is not right.
        ServeError: the options and the model do not fit.
    """
    options = options or EngineOptions()
    files = read_model_files(directory)
    tokenizer = load_tokenizer(files)
    device = _device(options.device)
    model = load_model(files.directory, dtype=_dtype(options.dtype, device), device=device)
    return build_engine(model, tokenizer, options)


def build_engine(model: Transformer, tokenizer: Tokenizer, options: EngineOptions) -> Engine:
    """The engine for a model and its tokenizer, started."""
    check_fit(model.config, tokenizer)
    weight = model.head_weight
    largest = _power_of_two(max(STEP_TOKENS.get(weight.device.type, OTHER_STEP_TOKENS), options.max_batch_size))
    context_length, num_pages = _sizes(model.config, weight, options)
    pool = PagePool(num_pages, options.page_size)
    storage = KeyValueStorage(model.config, pool.num_tokens, device=weight.device, dtype=weight.dtype)
    row_counts = find_row_counts(model.eval(), largest)
    runner = ModelRunner(model, storage, options.page_size, row_counts, tokenizer.max_id + 1)
    logging.getLogger("astrai.serve").info(
        "%s on %s, context %d, cache %d tokens (%.0f MB)",
        weight.dtype,
        weight.device,
        context_length,
        pool.num_tokens,
        pool.num_tokens * bytes_per_token(model.config, weight.dtype) / 1e6,
    )
    return Engine(
        runner,
        tokenizer,
        pool,
        context_length=context_length,
        max_batch_size=options.max_batch_size,
        max_queue=options.max_queue,
    )


def load_tokenizer(files: ModelFiles) -> Tokenizer:
    """The tokenizer of a model, its chat template compiled.

    Raises:
        ServeError: the directory has none.
        TokenizerError: it cannot be used.
    """
    if files.tokenizer is None:
        wanted = "tokenizer.json and tokenizer_config.json beside the weights"
        what, got = "the model directory has no tokenizer", "no tokenizer.json"
        hint = "copy the tokenizer's files beside the weights; `astrai train` does so"
        raise ServeError(what, where=files.directory, got=got, wanted=wanted, hint=hint)
    tokenizer = Tokenizer.from_pretrained(files.tokenizer)
    if tokenizer.chat_template is not None:
        tokenizer.chat_template.compile()
    return tokenizer


def check_fit(config: ModelConfig, tokenizer: Tokenizer) -> None:
    """Raise `ServeError` unless the model knows every id of the tokenizer."""
    if tokenizer.max_id >= config.vocab_size:
        raise ServeError(
            "tokenizer and model do not belong together",
            where="tokenizer.json and config.json",
            got=f"ids up to {tokenizer.max_id}",
            wanted=f"ids below vocab_size = {config.vocab_size}",
            hint="put the tokenizer that the model was trained with beside the weights",
        )


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    try:
        return torch.empty(0, device=name).new_zeros(1).cpu().new_empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # NotImplementedError of the device `meta` among them
        reason = str(error).splitlines()[0]
        wanted, hint = "auto, cpu, cuda, cuda:N or mps, if this machine has it", "--device auto takes the best"
        what, got = "this device cannot be used", f"{name}: {reason}"
        raise ServeError(what, where="--device", got=got, wanted=wanted, hint=hint) from None


def _dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    return getattr(torch, name)


def _sizes(config: ModelConfig, weight: torch.Tensor, options: EngineOptions) -> tuple[int, int]:
    """Context length and number of pages; the pages hold at least one full context."""
    known = config.num_positions
    context_length = options.context_length or known
    if context_length > known:
        got, wanted = f"{context_length} tokens", f"at most {known}, the positions the model knows"
        what, hint = "the context is longer than the model's", "leave it out for all that the model knows"
        raise ServeError(what, where="--max-seq-len", got=got, wanted=wanted, hint=hint)
    page_size = options.page_size
    most = context_length * options.max_batch_size
    fits = _free_bytes(weight.device) // bytes_per_token(config, weight.dtype)
    num_tokens = min(most, math.floor(fits * MEMORY_SHARE)) if options.cache_tokens is None else options.cache_tokens
    if num_tokens > fits:
        what, wanted, hint = "the cache does not fit into memory", f"at most {fits}", "leave it out for what fits well"
        raise ServeError(what, where="--cache-tokens", got=f"{num_tokens} tokens", wanted=wanted, hint=hint)
    num_pages = num_tokens // page_size if options.cache_tokens is not None else -(-num_tokens // page_size)
    if num_pages * page_size < context_length:
        raise ServeError(
            "the cache cannot hold one full context",
            where="--cache-tokens",
            got=f"{num_pages * page_size} tokens",
            wanted=f"at least {context_length}",
            hint="a smaller --max-seq-len, or a larger --cache-tokens",
        )
    return context_length, num_pages


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return psutil.virtual_memory().available


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()
