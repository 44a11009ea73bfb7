"""Every error as OpenAI's object: {"error": {"message", "type", "param", "code"}}."""

import logging
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from astrai_data.config.problems import nearest
from astrai_data.errors import AstraiError
from astrai_serve.api.answers import ClientGoneError
from astrai_serve.api.fields import ChatRequest, CompletionRequest
from astrai_serve.errors import RequestError

MAX_SHOWN = 80
RETRY_AFTER_S = 1
CLIENT_GONE = 499
"""nginx's number; nobody reads it but a log."""
BODIES = {"/v1/chat/completions": ChatRequest, "/v1/completions": CompletionRequest}


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
    first = error.errors()[0]
    if isinstance(ours := first.get("ctx", {}).get("error"), AstraiError):
        return _on_ours(request, ours)
    param = ".".join(str(part) for part in first["loc"][1:]) or None
    message = f"{param or 'the body'}: {first['msg']}"
    if first["type"] == "json_invalid":
        message = f"the body is not JSON: {first['ctx']['error']} at character {first['loc'][-1]}"
        param = None
    elif isinstance(first.get("input"), bytes):
        got = request.headers.get("content-type", "none")
        message = f"the body is not taken for JSON; got: content-type {got}; wanted: content-type application/json"
    elif first["type"] == "extra_forbidden":
        message = f"unknown field {param!r}"
        known = BODIES[request.url.path].model_fields if request.url.path in BODIES else {}
        message += f"; did you mean {near!r}?" if (near := nearest(param, known)) else ""
    elif first["type"] != "missing":
        message += f"; got: {repr(first.get('input'))[:MAX_SHOWN]}"
    return answer(shaped(message, 400, param, "invalid_request"), 400)


def _on_http(request: Request, error: HTTPException) -> Response:
    cause = error.__cause__  # of FastAPI's "There was an error parsing the body"
    detail = f"the body cannot be read: {cause}" if isinstance(cause, ValueError | RecursionError) else error.detail
    message = f"{request.method} {request.url.path}: {detail}"
    response = answer(shaped(message, error.status_code), error.status_code)
    response.headers.update(error.headers or {})
    return response


def _on_defect(request: Request, error: Exception) -> Response:
    logging.getLogger("astrai.serve").error("%s %s failed", request.method, request.url.path, exc_info=error)
    return answer(error_body(error), 500)
