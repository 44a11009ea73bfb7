"""What an engine does not do: the errors of a prompt, of a full queue, and of a generation that failed."""

from collections.abc import Sequence

from astrai_serve.errors import ContextLengthError, EngineStoppedError, GenerationError, QueueFullError, RequestError


def check_prompt(prompt_ids: Sequence[int], context_length: int, vocab_size: int) -> None:
    """Look whether a prompt can be answered.

    Raises:
        ContextLengthError: it leaves no room for an answer.
        RequestError: it is empty, or has an id for which the model has no embedding.
    """
    if not prompt_ids:
        raise _empty_prompt()
    if len(prompt_ids) >= context_length:
        raise _too_long(len(prompt_ids), context_length)
    if not 0 <= min(prompt_ids) <= max(prompt_ids) < vocab_size:
        raise _unknown_id(prompt_ids, vocab_size)


def _empty_prompt() -> RequestError:
    wanted, hint = "at least one token", "write something into it"
    return RequestError("the prompt is empty", param="prompt", got="no tokens", wanted=wanted, hint=hint)


def _too_long(length: int, context_length: int) -> ContextLengthError:
    return ContextLengthError(
        "the prompt is longer than the context",
        param="prompt",
        got=f"{length} tokens",
        wanted=f"at most {context_length - 1}, to leave room for an answer in {context_length}",
        hint="shorten it, or leave out the oldest messages",
    )


def _unknown_id(prompt_ids: Sequence[int], vocab_size: int) -> RequestError:
    return RequestError(
        "an id of the prompt is unknown",
        param="prompt",
        got=next(token_id for token_id in prompt_ids if not 0 <= token_id < vocab_size),
        wanted=f"0 to {vocab_size - 1}",
        hint="encode the text with this model's tokenizer, or send the text itself",
    )


def queue_full(num_waiting: int, max_queue: int) -> QueueFullError:
    """More would wait than may."""
    return QueueFullError(
        "too many requests are waiting",
        where="the queue",
        got=f"{num_waiting} with these",
        wanted=f"at most {max_queue}",
        hint="ask again in a second, or start the server with a larger --max-queue",
    )


def too_many(count: int, most: int) -> RequestError:
    """One request asks for more answers than ever have room."""
    return RequestError(
        "a request asks for too many answers",
        param="n",
        got=f"{count}: prompts x n",
        wanted=f"at most {most}",
        hint="ask in several requests, or start the server with a larger --max-queue",
    )


def stopped() -> EngineStoppedError:
    """The engine takes no more work."""
    return EngineStoppedError(
        "the engine does not run any more",
        where="the engine",
        got="shut down, or its loop has ended",
        wanted="a running engine",
        hint="start the server again",
    )


def failed(where: str, error: str) -> GenerationError:
    """An answer that broke off."""
    return GenerationError(
        "the generation failed",
        where=where,
        got=error,
        wanted="an answer",
        hint="the log tells more; --dtype float32 helps against numbers that overflow",
    )


def not_finite() -> GenerationError:
    """Nothing can be drawn from such logits."""
    return GenerationError(
        "the model gave logits that are no numbers",
        where="the model",
        got="inf or nan",
        wanted="finite numbers",
        hint="--dtype float32, or look whether the weights are whole",
    )
