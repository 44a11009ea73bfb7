"""Requests that cannot be served: a status, OpenAI's shape, the field at fault, and a server that goes on."""

import json

import pytest

CHAT, TEXT = "chat/completions", "completions"
TEXT_PART = {"type": "text", "text": "a"}
QUESTION = [{"role": "user", "content": "Wer ist über allen Gipfeln?"}]
BAD = [
    (CHAT, {}, 400, "messages"),
    (CHAT, {"messages": []}, 400, "messages"),
    (CHAT, {"messages": "hi"}, 400, "messages"),
    (CHAT, {"messages": [{"role": "user"}]}, 400, "messages"),
    (CHAT, {"messages": [{"content": "x"}]}, 400, "messages"),
    (CHAT, {"messages": [{"role": "user", "content": "\ud800"}]}, 400, "messages"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "messages.0.content.0"),
    (CHAT, {"messages": [*QUESTION, {"role": "user", "content": [TEXT_PART, "b"]}]}, 400, "messages.1.content.1"),
    (CHAT, {"messages": [{"role": "user", "content": [TEXT_PART | {"text": None}]}]}, 400, "messages.0.content.0"),
    (CHAT, {"messages": QUESTION, "temperature": 2.1}, 400, "temperature"),
    (CHAT, {"messages": QUESTION, "temperature": "1"}, 400, "temperature"),
    (CHAT, {"messages": QUESTION, "top_k": 0}, 400, "top_k"),
    (CHAT, {"messages": QUESTION, "max_tokens": 0}, 400, "max_tokens"),
    (CHAT, {"messages": QUESTION, "n": 0}, 400, "n"),
    (CHAT, {"messages": QUESTION, "stop": 3}, 400, "stop"),
    (CHAT, {"messages": QUESTION, "stop": ["a", 3]}, 400, "stop"),
    (CHAT, {"messages": QUESTION, "seed": -1}, 400, "seed"),
    (CHAT, {"messages": QUESTION, "stream": "yes"}, 400, "stream"),
    (CHAT, {"messages": QUESTION, "stream_options": {"include_usage": True}}, 400, "stream_options"),
    (CHAT, {"messages": QUESTION, "tools": [{"type": "function"}]}, 400, "tools"),
    (CHAT, {"messages": QUESTION, "tool_choice": "required"}, 400, "tool_choice"),
    (CHAT, {"messages": QUESTION, "response_format": {"type": "json_object"}}, 400, "response_format"),
    (CHAT, {"messages": QUESTION, "logprobs": True}, 400, "logprobs"),
    (CHAT, {"messages": QUESTION, "logit_bias": {"1": 1}}, 400, "logit_bias"),
    (CHAT, {"messages": QUESTION, "temprature": 1}, 400, "temprature"),
    (CHAT, {"messages": QUESTION, "model": "other"}, 404, "model"),
    (CHAT, {"messages": [{"role": "user", "content": "word " * 300}]}, 400, "messages"),
    (TEXT, {"prompt": ""}, 400, "prompt"),
    (TEXT, {"prompt": []}, 400, "prompt"),
    (TEXT, {"prompt": 3}, 400, "prompt"),
    (TEXT, {"prompt": ["a", 3]}, 400, "prompt"),
    (TEXT, {"prompt": [5, 100_000]}, 400, "prompt"),
    (TEXT, {"prompt": [5, -1]}, 400, "prompt"),
    (TEXT, {"prompt": "word " * 300}, 400, "prompt"),
    (TEXT, {"prompt": "x", "echo": True}, 400, "echo"),
    (TEXT, {"prompt": "x", "logprobs": 2}, 400, "logprobs"),
    (TEXT, {"prompt": "x", "best_of": 2}, 400, "best_of"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body", "status", "param"), BAD, ids=lambda value: str(value)[:60])
def test_bad_requests_name_the_field(one, path, body, status, param, stream):
    body = {"stream": True} | body if stream and "stream_options" not in body else body
    raw = json.dumps(body).encode()
    answer = one.client.post(f"/v1/{path}", content=raw, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert error["message"]


def test_the_context_error_says_got_and_wanted(one):
    error = one.post(TEXT, prompt=[300] * 256).json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert "256 tokens" in error["message"]
    assert "at most 255" in error["message"]


@pytest.mark.parametrize(
    ("raw", "status", "words"),
    [
        (b"", 400, "body"),
        (b'{"prompt": ', 400, "not JSON"),
        (b'{"prompt": "x", "temperature": NaN}', 400, "temperature"),
        (b"[" * 100_000, 400, ""),
        (b"\xff\xfe", 400, ""),
        (b'"x"', 400, "body"),
        (b'{"prompt": "' + b"x" * 17 * 2**20 + b'"}', 413, "at most"),
    ],
    ids=["empty", "cut", "nan", "deep", "no utf-8", "no object", "large"],
)
def test_bodies_that_are_no_requests(one, raw, status, words):
    answer = one.client.post("/v1/completions", content=raw, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert words in answer.json()["error"]["message"]
