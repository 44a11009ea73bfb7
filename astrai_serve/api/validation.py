"""What is wrong with a body, in words of ours: bytes that are no JSON, and the first thing that pydantic finds."""

from typing import Any

from pydantic import BaseModel

from astrai_data.config.problems import WANTED, nearest
from astrai_serve.api.fields import ChatRequest, CompletionRequest
from astrai_serve.errors import RequestError

MAX_SHOWN = 80
BODIES: dict[str, type[BaseModel]] = {"/v1/chat/completions": ChatRequest, "/v1/completions": CompletionRequest}
BODY = "the body"
HOW = {
    BODY: "put the fields into {...}",
    "messages": 'such as "messages": [{"role": "user", "content": "Hello"}]',
    "prompt": 'such as "prompt": "Once upon a time"',
}
ALSO_WANTED = {
    "list_type": "a list",
    "too_long": "at most {max_length} entries",
    "too_short": "at least {min_length} entry",
    "literal_error": "{expected}",
}


def not_json(reason: object) -> RequestError:
    """The bytes are no JSON text."""
    what, wanted, hint = "the body is not JSON", "one JSON object in UTF-8", "write it with a JSON library"
    return RequestError(what, where=BODY, got=str(reason)[:MAX_SHOWN], wanted=wanted, hint=hint)


def body_error(finding: dict[str, Any], path: str, content_type: str) -> RequestError:
    """The error for one of `RequestValidationError.errors()`; one that we raised ourselves comes out as it was."""
    if isinstance(ours := finding.get("ctx", {}).get("error"), RequestError):
        return ours
    kind, location = finding["type"], [str(part) for part in finding["loc"][1:]]
    if kind == "json_invalid":
        return not_json(f"{finding['ctx']['error']} at character {finding['loc'][-1]}")
    if isinstance(finding.get("input"), bytes):
        return _not_taken_for_json(content_type)
    if kind == "extra_forbidden":
        return _unknown(location, BODIES[path])
    if kind == "missing":
        return _missing(location[-1]) if location else _empty()
    return _wrong(".".join(location) or None, finding)


def _not_taken_for_json(content_type: str) -> RequestError:
    what, wanted = "the body is not taken for JSON", "content-type: application/json"
    hint = "send that header; curl wants -H 'content-type: application/json'"
    return RequestError(what, where="the headers", got=f"content-type: {content_type}", wanted=wanted, hint=hint)


def _unknown(location: list[str], body: type[BaseModel]) -> RequestError:
    *parents, name = location
    near = None if parents else nearest(name, body.model_fields)
    what, wanted = "unknown field", f"a field of {'.'.join(parents) or 'this route'}"
    hint = f"did you mean {near!r}?" if near else "leave it out"
    return RequestError(what, param=".".join(location), got=repr(name), wanted=wanted, hint=hint)


def _missing(name: str) -> RequestError:
    return RequestError("a field is missing", param=name, got=f"no {name}", wanted="this field", hint=HOW[name])


def _empty() -> RequestError:
    what, got, wanted = "the body is empty", "nothing", "one JSON object"
    return RequestError(what, where=BODY, got=got, wanted=wanted, hint=HOW[BODY])


def _wrong(param: str | None, finding: dict[str, Any]) -> RequestError:
    name = param or BODY
    got = repr(finding.get("input"))[:MAX_SHOWN]
    wanted = (WANTED | ALSO_WANTED).get(finding["type"], finding["msg"]).format(**finding.get("ctx", {}))
    hint = HOW.get(name, f"mend {name}, or leave it out")
    return RequestError(f"{name} is wrong", param=param, where=name, got=got, wanted=wanted, hint=hint)
