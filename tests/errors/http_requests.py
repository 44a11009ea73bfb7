"""What a client asks over HTTP, a web page among them."""

from starlette.testclient import TestClient

from astrai_serve.api.app import create_app
from astrai_serve.api.body_limit import MAX_BODY_BYTES
from astrai_serve.api.cross_origin import CrossOrigin
from astrai_serve.api.service import Service
from astrai_serve.errors import (
    BodyTooLargeError,
    ContextLengthError,
    OriginError,
    RequestError,
    UnknownModelError,
    UnknownRouteError,
    WrongMethodError,
)

from .place import Place
from .row import Row

HELLO = [{"role": "user", "content": "hello"}]
PARTS = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a.png"}}]}]
TEXT = "/v1/completions"


def chat(**body):
    return lambda place: place.post("/v1/chat/completions", {"messages": HELLO, "max_tokens": 1} | body)


def complete(**body):
    """A completion; `settings` of the place win, null takes a field out."""

    def fail(place: Place) -> None:
        given = {"prompt": "a", "max_tokens": 1} | body | place.settings
        place.post(TEXT, {name: value for name, value in given.items() if value is not None})

    return fail


def send(method: str, path: str, body: bytes | str = "", **headers: str):
    """A request as it is, to a server that web pages of http://a.example may ask."""

    def fail(place: Place) -> None:
        client = TestClient(CrossOrigin(create_app(Service(place.engine, "mine")), ["http://a.example"]))
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = client.request(method, path, content=body, headers=given)
        place.screen = answer.json()["error"]["message"]

    return fail


def mend_stop(place: Place) -> None:
    """The answer says: "such as ['END']"."""
    assert "try: such as ['END']" in place.message
    place.settings = {"stop": ["END"]}


def mend_stream_options(place: Place) -> None:
    assert "try: leave it out" in place.message
    place.settings = {"stream_options": None}


def mend_temperature(place: Place) -> None:
    place.settings = {"temperature": float(place.message.partition("at most ")[2].partition(";")[0])}


def request(name, fail, *says, kind=RequestError, mend=None) -> Row:
    return Row(name, fail, kind, says, mend=mend)


PAGE = {"origin": "http://b.example", "access_control_request_method": "POST"}

ROWS = [
    request("another model", complete(model="gpt"), "'gpt'", "wanted: mine", kind=UnknownModelError),
    request("a model's card", lambda p: p.get("/v1/models/gpt"), "'gpt'", "wanted: mine", kind=UnknownModelError),
    request("a field of later", chat(logprobs=True), "where: logprobs", "got: True", "null or false", "leave it out"),
    request("options of a stream", complete(stream_options={}), "stream: true", mend=mend_stream_options),
    request("a prompt of the wrong kind", complete(prompt={"a": 1}), "{'a': 1}", "a list of ids", "Once upon a time"),
    request("a stop of the wrong kind", complete(stop=5), "got: 5", "a list of at most 16", mend=mend_stop),
    request("a picture", chat(messages=PARTS), "messages.0.content.0", "'image_url'", '"type": "text"'),
    request("no conversation", chat(messages=[{"role": "user"}]), "not_a_conversation", "mend the conversation"),
    request("half a character", complete(prompt="\ud83d"), "where: prompt", "lone surrogates"),
    request("a long prompt", complete(prompt=[41] * 256), "256 tokens", "at most 255", kind=ContextLengthError),
    request("a path", lambda p: p.get("/models"), "got: GET /models", "mean /v1/models?", kind=UnknownRouteError),
    request("a method", lambda p: p.get(TEXT), f"where: {TEXT}", "wanted: POST", "with POST", kind=WrongMethodError),
    request("a page", send("OPTIONS", TEXT, **PAGE), "got: http://b.ex", "--allow-origin http://b.", kind=OriginError),
    request("a large body", complete(prompt="a" * MAX_BODY_BYTES), "at most 16777216", kind=BodyTooLargeError),
    request("no JSON", send("POST", TEXT, "{", content_type="application/json"), "at character 1", "a JSON library"),
    request("bytes", send("POST", TEXT, b"\xff", content_type="application/json"), "codec can't", "in UTF-8"),
    request("a form", send("POST", TEXT, "a=b", content_type="text/plain"), "got: content-type: text/plain", "curl"),
    request("no body", send("POST", TEXT), "the body is empty", "where: the body", "got: nothing", "fields into {...}"),
    request("a list", send("POST", TEXT, "[]", content_type="application/json"), "got: []", "fields into {...}"),
    request("an unknown field", complete(temprature=1), "where: temprature", "did you mean 'temperature'?"),
    request("a missing field", complete(prompt=None), "got: no prompt", '"prompt": "Once upon a time"'),
    request("a setting of a request", complete(temperature=9), "got: 9", "at most 2.0", mend=mend_temperature),
]
