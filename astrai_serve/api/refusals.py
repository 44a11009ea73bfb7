"""What the server does not do: the errors of paths, methods, web pages and large bodies."""

import difflib
from collections.abc import Collection

from astrai_serve.errors import BodyTooLargeError, NotHttpError, OriginError, UnknownRouteError, WrongMethodError

MAX_SHOWN = 80
NEAR = 0.8
"""Of difflib's ratio: `/models` is near to `/v1/models`, `/v1/responses` is not."""
_BASE_URL = "a client's base URL is this server's address and /v1"


def unknown_route(method: str, path: str, paths: Collection[str]) -> UnknownRouteError:
    """Nothing is served at this path; `paths` are those where something is."""
    near = next(iter(difflib.get_close_matches(path[:MAX_SHOWN], paths, n=1, cutoff=NEAR)), None)
    return UnknownRouteError(
        "nothing is served at this path",
        where="the request line",
        got=_short(f"{method} {path}"),
        wanted=", ".join(paths),
        hint=f"did you mean {near}? {_BASE_URL}" if near else _BASE_URL,
    )


def wrong_method(method: str, path: str, allowed: str) -> WrongMethodError:
    """The path is served, but not so."""
    what, hint = "this path does not take this method", f"ask with {allowed.split(', ')[0]}"
    return WrongMethodError(what, where=_short(path), got=_short(method), wanted=allowed, hint=hint)


def not_http(reason: str, status: int) -> NotHttpError:
    """What came over the connection cannot be read, or not by this server; h11 says why, and with which status."""
    wanted = "a request of HTTP/1.1, its headers 64 KiB at most"
    hint = "write it with an HTTP library, and the address with http://, not https://"
    error = NotHttpError("this is no HTTP request", where="the request", got=_short(reason), wanted=wanted, hint=hint)
    error.status = status
    return error


def foreign_page(origin: str, allowed: Collection[str]) -> OriginError:
    """A browser asks for a page of an origin that nobody has allowed."""
    return OriginError(
        "web pages of this origin may not ask",
        where="the header origin",
        got=_short(origin),
        wanted=", ".join(allowed) or "no web page at all",
        hint=f"start the server with --allow-origin {_short(origin)}",
    )


def too_large(num_bytes: int, max_bytes: int) -> BodyTooLargeError:
    """The body is too large, or says that it will be."""
    got, wanted, hint = f"{num_bytes} bytes", f"at most {max_bytes}", "ask in several requests"
    return BodyTooLargeError("the body is too large", where="the body", got=got, wanted=wanted, hint=hint)


def _short(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."
