"""Paths, methods and web pages that nobody has planned for: OpenAI's error as JSON, and nothing else."""

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from astrai_serve.api.cross_origin import CrossOrigin, check_origins
from astrai_serve.errors import ServeError
from tests.serve.serving import served

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HEADERS = {"content-type": "application/json"}
PAGE = "http://localhost:3000"
PREFLIGHT = {
    "origin": PAGE,
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-lang",
}
UNKNOWN = {
    ("GET", "/"): "/v1/chat/completions",
    ("GET", "/docs"): "nothing is served",
    ("GET", "/redoc"): "nothing is served",
    ("GET", "/V1/models"): "did you mean /v1/models?",
    ("GET", "/v1/models/"): "did you mean /v1/models?",
    ("GET", "/models"): "did you mean /v1/models?",
    ("POST", f"{CHAT}/"): f"did you mean {CHAT}?",
    ("POST", f"/{CHAT}"): f"did you mean {CHAT}?",
    ("POST", "/chat/completions"): f"did you mean {CHAT}?",
    ("POST", "/v1/embeddings"): "try: a client's base URL",
    ("GET", "/" + "x" * 5000): "...",
}
WRONG = {
    ("GET", CHAT): "POST",
    ("HEAD", TEXT): "POST",
    ("OPTIONS", TEXT): "POST",
    ("POST", "/v1/models"): "GET, HEAD",
    ("DELETE", "/v1/models/mine/toy"): "GET, HEAD",
    ("TRACE", "/health"): "GET, HEAD",
    ("BREW", "/health"): "GET, HEAD",
}


def ask(server, method: str, path: str, headers: dict | None = None) -> httpx.Response:
    """With a body that a redirect would lose; a path goes as it is."""
    url = httpx.URL(server.url).copy_with(raw_path=path.encode())
    return server.client.request(method, url, content=b'{"prompt": "x"}', headers=HEADERS | (headers or {}))


def check_error(answer: httpx.Response, status: int) -> str:
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json")
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert all(f"; {name}: " in error["message"] for name in ("where", "got", "wanted", "try"))
    assert len(error["message"]) < 600
    return error["message"]


@pytest.mark.parametrize(("method", "path"), UNKNOWN, ids=lambda value: value[:30])
def test_a_path_that_is_not_served(one, method, path):
    assert UNKNOWN[method, path] in check_error(ask(one, method, path), 404)


@pytest.mark.parametrize(("method", "path"), WRONG, ids=lambda value: value[:30])
def test_a_method_that_a_path_does_not_take(one, method, path):
    answer = ask(one, method, path)
    assert answer.headers["allow"] == WRONG[method, path]
    if method == "HEAD":
        assert (answer.status_code, answer.content) == (405, b"")
    else:
        assert f"wanted: {WRONG[method, path]}" in check_error(answer, 405)


@pytest.mark.parametrize("path", ["/health", "/stats", "/v1/models", "/v1/models/mine/toy", "/v1/models/mine%2Ftoy"])
def test_what_can_be_read_can_be_looked_for(one, path):
    answer = one.client.head(path)
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) == len(one.client.get(path).content)


def test_the_schema_tells_no_error_that_is_not_ours(one):
    schema = one.client.get("/openapi.json")
    assert schema.json()["paths"].keys() >= {CHAT, TEXT, "/health"}
    assert "422" not in schema.text
    assert "UserWarning" not in "".join(one.said)


def test_no_web_page_may_ask(one):
    message = check_error(ask(one, "OPTIONS", CHAT, PREFLIGHT), 403)
    assert f"--allow-origin {PAGE}" in message
    answer = ask(one, "POST", TEXT, {"origin": PAGE})
    assert answer.status_code == 200
    assert not any(name.startswith("access-control-allow") for name in answer.headers)


def test_a_web_page_that_may_ask(near):
    with served(near.directory, "--port", 0, "--allow-origin", "http://a.example", "--allow-origin", PAGE) as server:
        asked = ask(server, "OPTIONS", CHAT, PREFLIGHT)
        assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (200, PAGE)
        assert "POST" in asked.headers["access-control-allow-methods"]
        assert "authorization" in asked.headers["access-control-allow-headers"]
        for path, status in [(TEXT, 200), (CHAT, 400), ("/nothing", 404)]:  # a page must be able to read errors too
            answer = ask(server, "POST", path, {"origin": PAGE})
            assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (status, PAGE)
        check_error(ask(server, "OPTIONS", CHAT, PREFLIGHT | {"origin": "http://b.example"}), 403)


def test_every_web_page_may_ask():
    client = TestClient(CrossOrigin(PlainTextResponse("hello"), ["*"]))
    for answer in (client.options("/", headers=PREFLIGHT), client.get("/", headers={"origin": PAGE})):
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "*")


@pytest.mark.parametrize(
    "origin", ["localhost:3000", "http://a.example/", "http://A.example", "", "http://", "a b://c"]
)
def test_what_would_match_no_page_is_no_origin(origin):
    check_origins(["*", "null", "http://a.example", "https://[::1]:80", "app://x"])
    with pytest.raises(ServeError, match="no origin"):
        check_origins(["*", origin])
