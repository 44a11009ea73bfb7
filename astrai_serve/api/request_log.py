"""A line for each request when it has ended, on standard error: never a prompt, a key or a query.

    2026-11-30T21:47:42+00:00 POST /v1/completions 200 seconds=2.310 prompt_tokens=34 generated_tokens=120
    tokens_per_s=51.9 finish=stop

(one line). A thread writes, for a terminal that is stopped or a pipe that nobody reads must not hold up the answers;
what is more than `MAX_WAITING` lines behind is left out.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from queue import SimpleQueue
from urllib.parse import quote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from astrai_serve.api.answers import CLIENT_GONE, Answers

STDERR = 2
MAX_WAITING = 1000
MAX_PATH = 200
PROBES = ("/health", "/stats")


class RequestLog:
    """ASGI middleware; what a route generates it finds as `answers` in the request's state.

    Args:
        app: what it stands in front of.
        write: takes a line; must not block.
        with_probes: tell those who look at `/health` and `/stats` and find all well, too.
    """

    def __init__(self, app: ASGIApp, write: Callable[[str], None], *, with_probes: bool) -> None:
        self.app, self._write, self._with_probes = app, write, with_probes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        begun, status = time.perf_counter(), CLIENT_GONE
        state = scope.setdefault("state", {})

        async def noted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, noted)
        finally:
            if self._with_probes or scope["path"] not in PROBES or status >= 400:
                self._write(" ".join(_words(scope, status, time.perf_counter() - begun, state.get("answers"))))


def _words(scope: Scope, status: int, seconds: float, answers: Answers | None) -> Iterator[str]:
    yield datetime.now().astimezone().isoformat(timespec="seconds")
    yield f"{scope['method']} {quote(scope['path'])[:MAX_PATH]} {status} seconds={seconds:.3f}"
    if answers is not None:
        generated = sum(sequence.num_generated for sequence in answers.sequences)
        yield f"prompt_tokens={answers.num_prompt_tokens} generated_tokens={generated}"
        yield f"tokens_per_s={generated / seconds:.1f} finish={answers.finish}"


class LineWriter:
    """Writes lines on a thread of its own, until it is closed.

    Args:
        descriptor: an open file's.
    """

    def __init__(self, descriptor: int = STDERR) -> None:
        self._descriptor = descriptor
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, name="astrai-request-log", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        """Have a line written; returns at once."""
        if self._lines.qsize() < MAX_WAITING:
            self._lines.put(line)

    def close(self, timeout_s: float = 1.0) -> None:
        """Wait until what was given is written, or nobody takes it."""
        self._lines.put(None)
        self._thread.join(timeout_s)

    def _write_all(self) -> None:
        for line in iter(self._lines.get, None):
            try:
                os.write(self._descriptor, f"{line}\n".encode())
            except OSError:  # the terminal or the reader has gone; those who ask have nothing to do with it
                return
