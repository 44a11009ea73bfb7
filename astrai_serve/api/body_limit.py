"""Refuses bodies that are too large, before they are read or while they arrive in chunks."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from astrai_serve.api import refusals

MAX_BODY_BYTES = 16 * 2**20


class BodyLimit:
    """ASGI middleware.

    Args:
        app: what it stands in front of.
        max_bytes: of a body.
    """

    def __init__(self, app: ASGIApp, max_bytes: int = MAX_BODY_BYTES) -> None:
        self.app, self.max_bytes = app, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        stated = dict(scope.get("headers", ())).get(b"content-length", b"")
        num_bytes = 0

        async def counted() -> Message:
            nonlocal num_bytes
            self._check(int(stated) if stated.isdigit() else 0)
            message = await receive()
            num_bytes += len(message.get("body", b""))
            self._check(num_bytes)
            return message

        await self.app(scope, counted, send)

    def _check(self, num_bytes: int) -> None:
        if num_bytes > self.max_bytes:
            raise refusals.too_large(num_bytes, self.max_bytes)
