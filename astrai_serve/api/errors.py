"""Every error as OpenAI's object: {"error": {"message", "type", "param", "code"}}."""

import logging
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from astrai_data.errors import AstraiError
from astrai_serve.api import refusals
from astrai_serve.api.answers import CLIENT_GONE, ClientGoneError
from astrai_serve.api.validation import body_error, not_json
from astrai_serve.errors import RequestError, UnknownRouteError, WrongMethodError

RETRY_AFTER_S = 1


def add_error_handlers(app: FastAPI) -> None:
    """Let no other shape of error leave the application."""
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(AstraiError, _on_ours)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(ClientGoneError, lambda request, error: Response(status_code=CLIENT_GONE))
    app.add_exception_handler(Exception, _on_defect)


def error_body(error: Exception) -> dict[str, Any]:
    """The object for an exception; a defect of ours tells nothing of its insides."""
    if not isinstance(error, AstraiError):
        return shaped("internal error; the server's log tells more", 500)
    parts = (("where", error.where), ("got", error.got), ("wanted", error.wanted), ("try", error.hint))
    message = "; ".join([error.what, *(f"{name}: {value}" for name, value in parts if value is not None)])
    if isinstance(error, RequestError):
        return shaped(message, error.status, error.param, error.code)
    return shaped(message, 500)


def shaped(message: str, status: int, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """OpenAI's object."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def answer(body: dict[str, Any], status: int = 200) -> Response:
    """JSON, non-ASCII text as it is."""
    return Response(orjson.dumps(body), status, media_type="application/json")


def _on_ours(request: Request, error: AstraiError) -> Response:
    response = answer(error_body(error), getattr(error, "status", 500))
    if response.status_code in (429, 503):
        response.headers["retry-after"] = str(RETRY_AFTER_S)
    return response


def _on_validation(request: Request, error: RequestValidationError) -> Response:
    content_type = request.headers.get("content-type", "none")
    return _on_ours(request, body_error(error.errors()[0], request.url.path, content_type))


def _on_http(request: Request, error: HTTPException) -> Response:
    if isinstance(error.__cause__, ClientDisconnect):
        return Response(status_code=CLIENT_GONE)
    ours = _of_http(request, error)
    response = _on_ours(request, ours)
    if isinstance(ours, WrongMethodError):
        response.headers["allow"] = ours.wanted
    return response


def _of_http(request: Request, error: HTTPException) -> AstraiError:
    """FastAPI's errors are those of the router, and "There was an error parsing the body", whose cause tells more."""
    cause = error.__cause__
    if isinstance(cause, AstraiError):
        return cause
    method, path = request.method, request.url.path
    if error.status_code == WrongMethodError.status:
        return refusals.wrong_method(method, path, _allowed(request))
    if error.status_code == UnknownRouteError.status:
        paths = [route.path.replace(":path", "") for route in request.app.routes if route.include_in_schema]
        return refusals.unknown_route(method, path, paths)
    return not_json(cause if isinstance(cause, ValueError | RecursionError) else error.detail)


def _allowed(request: Request) -> str:
    """The methods of all routes at this path; the router's own header has those of the first."""
    here = (route.methods for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE)
    return ", ".join(sorted(set().union(*here)))


def _on_defect(request: Request, error: Exception) -> Response:
    logging.getLogger("astrai.serve").error("%s %s failed", request.method, request.url.path, exc_info=error)
    return answer(error_body(error), 500)
