"""Web pages of other origins (CORS, WHATWG Fetch section 3.3): none may ask unless the server was told so.

A page that somebody visits could else use the model of their own machine, and read what it says.
"""

import re
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from astrai_serve.api import refusals
from astrai_serve.api.errors import answer, error_body
from astrai_serve.errors import ServeError

ANY = "*"
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@A-Z]+|null|\*")


def check_origins(origins: Sequence[str]) -> None:
    """Raise `ServeError` unless each is an origin as a browser writes it, or `*`: another would match no page."""
    for origin in origins:
        if not ORIGIN.fullmatch(origin):
            what, wanted = "this is no origin of a web page", "scheme://host or scheme://host:port, in small letters"
            hint = "such as http://localhost:3000, without a path; * for all pages"
            raise ServeError(what, where="--allow-origin", got=repr(origin), wanted=wanted, hint=hint)


class CrossOrigin(CORSMiddleware):
    """ASGI middleware.

    Args:
        app: what it stands in front of.
        origins: whose pages may ask; `*` lets in all.
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        every = (ANY,)
        super().__init__(app, origins, allow_methods=every, allow_headers=every, expose_headers=("retry-after",))

    def preflight_response(self, request_headers: Headers) -> Response:
        """What a browser is told that asks whether a page may ask."""
        origin = request_headers["origin"]
        if self.is_allowed_origin(origin):
            return super().preflight_response(request_headers)
        error = refusals.foreign_page(origin, self.allow_origins)
        return answer(error_body(error), error.status)
