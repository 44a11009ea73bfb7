"""Bytes that are no request: OpenAI's object all the same, a closed connection, and a server that goes on."""

import json
import socket
from urllib.parse import urlsplit

import pytest

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\n"
WRONG = {
    "no request line": (b"hello\r\n\r\n", 400, "illegal request line"),
    "TLS": (bytes.fromhex("16030100b6010000b2") + b"\r\n\r\n", 400, "illegal request line"),
    "a header without a name": (b"GET / HTTP/1.1\r\n: x\r\n\r\n", 400, "illegal header line"),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400, "Host"),
    "a length that is no number": (HEAD + b"content-length: many\r\n\r\n", 400, "Content-Length"),
    "two lengths": (HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\n", 400, "Content-Length"),
    "an unknown coding": (HEAD + b"transfer-encoding: gzip\r\n\r\n", 501, "Transfer-Encoding"),
    "large headers": (b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"x" * 100_000, 431, "buffer"),
}


def answer(url: str, raw: bytes) -> tuple[bytes, bytes]:
    """Head and body of what comes back until the server closes."""
    with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), timeout=20) as sock:
        sock.sendall(raw)
        head, _, body = b"".join(iter(lambda: sock.recv(65536), b"")).partition(b"\r\n\r\n")
    return head.lower(), body


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_request_is_told_as_all_errors_are(one, case):
    raw, status, words = WRONG[case]
    head, body = answer(one.url, raw)
    assert head.startswith(f"http/1.1 {status} ".encode())
    assert b"content-type: application/json" in head
    assert b"connection: close" in head
    error = json.loads(body)["error"]
    assert error["code"] == "invalid_http"
    assert error["type"] == ("invalid_request_error" if status < 500 else "server_error")
    assert words in error["message"]
    assert all(f"; {part}: " in error["message"] for part in ("where", "got", "wanted", "try"))
    assert one.client.get("/health").status_code == 200


def test_nonsense_behind_an_answer_closes_the_connection(one):
    """The first is answered, the second refused; nothing hangs."""
    head, body = answer(one.url, b"GET /health HTTP/1.1\r\nhost: a\r\n\r\nnonsense\r\n\r\n")
    assert head.startswith(b"http/1.1 200")
    assert b"invalid_http" in body


def test_a_body_that_breaks_off_into_nonsense(one):
    """The answer is not begun: the body is still awaited."""
    raw = HEAD + b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"
    head, body = answer(one.url, raw)
    assert head.startswith(b"http/1.1 400")
    assert json.loads(body)["error"]["code"] == "invalid_http"
    one.wait_until_idle()
