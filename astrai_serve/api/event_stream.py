"""Server-sent events (WHATWG HTML, section 9.2): each frame ends with an empty line."""

import logging
from collections.abc import AsyncIterator
from typing import Any

import orjson
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from astrai_data.errors import AstraiError
from astrai_serve.api.answers import Answers
from astrai_serve.api.errors import error_body

DONE = b"data: [DONE]\n\n"


class EventStream(StreamingResponse):
    """An answer in pieces. However it ends, and even if it never began, the work behind it ends too.

    Args:
        chunks: objects to send.
        answers: the work.
    """

    def __init__(self, chunks: AsyncIterator[dict[str, Any]], answers: Answers) -> None:
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(_frames(chunks), media_type="text/event-stream", headers=headers)
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._answers.cancel()


async def _frames(chunks: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    try:
        async for chunk in chunks:
            yield frame(chunk)
        yield DONE
    except Exception as error:  # the status is sent: all that is left is to say so and close
        if not isinstance(error, AstraiError):
            logging.getLogger("astrai.serve").exception("a stream failed")
        yield frame(error_body(error))


def frame(chunk: dict[str, Any]) -> bytes:
    """One event."""
    return b"data: " + orjson.dumps(chunk) + b"\n\n"
