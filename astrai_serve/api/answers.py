"""The bridge between the engine's thread and asyncio: several answers as one stream of updates."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from fastapi import Request

from astrai_serve.engine import Engine, Job, SamplingParams, Sequence, Update
from astrai_serve.errors import EngineStoppedError, GenerationError, RequestError

T = TypeVar("T")
CLIENT_GONE = 499
"""nginx's status for a client that left before it was answered; nobody reads it but a log."""
BROKEN = {"error": "error", "abort": "shutdown"}
"""Finish reasons of an engine that gave up, and what they are to those who ask."""


class ClientGoneError(Exception):
    """The client has closed the connection; nobody is left to answer."""


class Answers:
    """Answers in the making; work begins at once, and ends with `cancel` at the latest.

    Args:
        engine: to work.
        prompts: ids.
        params: for all of them.
        prompt_field: what the request calls its prompt.
        num_choices: answers to each prompt; the answer at prompt p and choice c has index p * num_choices + c.

    Raises:
        RequestError: as `Engine.submit`.
    """

    def __init__(
        self,
        engine: Engine,
        prompts: list[list[int]],
        params: SamplingParams,
        num_choices: int,
        prompt_field: str = "prompt",
    ) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._updates: asyncio.Queue[tuple[int, Update]] = asyncio.Queue()
        self.num_prompt_tokens = sum(map(len, prompts))
        self.num_generated = 0
        self._reasons: set[str] = set()
        self._num_left = len(prompts) * num_choices
        jobs = [
            Job(prompt, params, partial(self._receive, index * num_choices + choice), choice)
            for index, prompt in enumerate(prompts)
            for choice in range(num_choices)
        ]
        self.sequences: list[Sequence] = _submit(engine, jobs, prompt_field)

    def _receive(self, index: int, update: Update) -> None:
        with suppress(RuntimeError):  # the loop is closed, at a second Ctrl-C: nobody is left to tell
            self._loop.call_soon_threadsafe(self._updates.put_nowait, (index, update))

    def cancel(self) -> None:
        """Stop working on those that have not ended; their pages are free after the present step."""
        self._engine.cancel(self.sequences)

    async def updates(self) -> AsyncIterator[tuple[int, Update]]:
        """(index, update) as they come, until all have ended.

        Raises:
            GenerationError: one of them failed.
            EngineStoppedError: the engine was shut down.
        """
        while self._num_left:
            index, update = await self._updates.get()
            if update.finish_reason is not None:
                self._num_left -= 1
                self._reasons.add(update.finish_reason)
            if update.finish_reason in BROKEN:
                if update.error:
                    raise GenerationError("the generation failed", hint="the server's log tells why; ask again")
                raise _going_down()
            self.num_generated += update.num_tokens
            yield index, update

    async def collect(self) -> list[tuple[str, str]]:
        """(text, finish reason) of every answer, when all have ended."""
        found = [("", "")] * len(self.sequences)
        async for index, update in self.updates():
            found[index] = (found[index][0] + update.text, update.finish_reason or "")
        return found

    @property
    def finish(self) -> str:
        """How they ended, for a log: `stop`, `length` or both; `error`, `shutdown`, or `client_left` before the end."""
        if broken := self._reasons & BROKEN.keys():
            return BROKEN[broken.pop()]
        if self._num_left:
            return "client_left" if self._engine.is_alive else "shutdown"
        return ",".join(sorted(self._reasons))

    @property
    def usage(self) -> dict[str, int]:
        """OpenAI's counts: prompts once each, every generated token, the one that ended an answer included."""
        prompt, generated = self.num_prompt_tokens, self.num_generated
        return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}


def _submit(engine: Engine, jobs: list[Job], prompt_field: str) -> list[Sequence]:
    try:
        return engine.submit(jobs)
    except RequestError as error:
        if error.param == "prompt":
            error.param = error.where = prompt_field
        raise


def _going_down() -> EngineStoppedError:
    return EngineStoppedError("the server is being shut down", hint="ask again when it is back")


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """The result of `work`, which is given up when the client goes.

    Raises:
        ClientGoneError: it has gone.
        EngineStoppedError: the server has, at a second Ctrl-C.
    """
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(_wait_until_gone(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGoneError
        return working.result()
    except asyncio.CancelledError:
        raise _going_down() from None
    finally:
        for task in (working, gone):
            task.cancel()


async def _wait_until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
