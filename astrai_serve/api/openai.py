"""OpenAI's two routes: requests to prompts, answers to their JSON.

A streamed chat is, for each choice: the role, pieces of content, exactly one chunk with the finish reason; then, if
asked for, the usage; then [DONE]. The pieces joined are the content of the answer in one.
"""

import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from astrai_serve.api.answers import Answers

Choice = dict[str, Any]


@dataclass(frozen=True)
class Form:
    """How a route writes its answers.

    Attributes:
        prefix: of an answer's id.
        whole, piece: names of the objects.
        choice: (text, finish reason) of a whole answer.
        first: what comes before the first piece of a choice, if anything.
        part: a piece.
        last: the chunk with the finish reason.
    """

    prefix: str
    whole: str
    piece: str
    choice: Callable[[str, str], Choice]
    first: Choice | None
    part: Callable[[str], Choice]
    last: Callable[[str], Choice]


CHAT = Form(
    prefix="chatcmpl-",
    whole="chat.completion",
    piece="chat.completion.chunk",
    choice=lambda text, reason: {"message": {"role": "assistant", "content": text}, "finish_reason": reason},
    first={"delta": {"role": "assistant", "content": ""}, "finish_reason": None},
    part=lambda text: {"delta": {"content": text}, "finish_reason": None},
    last=lambda reason: {"delta": {}, "finish_reason": reason},
)
COMPLETION = Form(
    prefix="cmpl-",
    whole="text_completion",
    piece="text_completion",
    choice=lambda text, reason: {"text": text, "finish_reason": reason},
    first=None,
    part=lambda text: {"text": text, "finish_reason": None},
    last=lambda reason: {"text": "", "finish_reason": reason},
)


class Writer:
    """Writes one answer, whole or in pieces.

    Args:
        form: of the route.
        model: the name to tell.
        answers: the work.
    """

    def __init__(self, form: Form, model: str, answers: Answers) -> None:
        self._form, self._answers = form, answers
        self._head = {"id": form.prefix + secrets.token_hex(12), "created": int(time.time()), "model": model}

    async def whole(self) -> dict[str, Any]:
        """The answer as one object."""
        found = await self._answers.collect()
        choices = [self._choice(index, self._form.choice(*one)) for index, one in enumerate(found)]
        return self._object(self._form.whole, choices) | {"usage": self._answers.usage}

    async def pieces(self, include_usage: bool) -> AsyncIterator[dict[str, Any]]:
        """The answer as chunks."""
        usage = {"usage": None} if include_usage else {}
        async for index, choice in self._choices():
            yield self._object(self._form.piece, [self._choice(index, choice)]) | usage
        if include_usage:
            yield self._object(self._form.piece, []) | {"usage": self._answers.usage}

    async def _choices(self) -> AsyncIterator[tuple[int, Choice]]:
        form = self._form
        if form.first is not None:
            for index in range(len(self._answers.sequences)):
                yield index, form.first
        async for index, update in self._answers.updates():
            if update.text:
                yield index, form.part(update.text)
            if update.finish_reason is not None:
                yield index, form.last(update.finish_reason)

    def _object(self, name: str, choices: list[Choice]) -> dict[str, Any]:
        return {"id": self._head["id"], "object": name, **self._head, "choices": choices}

    def _choice(self, index: int, choice: Choice) -> Choice:
        return {"index": index, **choice, "logprobs": None}
