"""The OpenAI routes against a real server: one text however it is asked for, honest errors, nobody's pages kept."""

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from astrai_data.tokenizer import Tokenizer
from astrai_serve.api.service import chat_prompt_ids
from tests.data.toys import TRAINING_TEXT
from tests.serve.serving import wait_until

CHAT, TEXT = "chat/completions", "completions"
QUESTION = [{"role": "user", "content": "Wer ist über allen Gipfeln?"}]


def requests(count: int = 8) -> list[tuple[str, dict]]:
    """Greedy requests on both routes, of different lengths."""
    settings = {"temperature": 0, "max_tokens": 30, "ignore_eos": True}
    chats = [
        (CHAT, {"messages": [{"role": "user", "content": text[: 10 * i]}]}) for i, text in enumerate(TRAINING_TEXT)
    ]
    texts = [(TEXT, {"prompt": text[: 5 + i]}) for i, text in enumerate(TRAINING_TEXT)]
    return [(path, body | settings) for path, body in (chats + texts)[:count]]


def text_of(path: str, body: dict) -> str:
    choice = body["choices"][0]
    return choice["message"]["content"] if path == CHAT else choice["text"]


def joined(path: str, events: list[str]) -> str:
    chunks = [json.loads(event) for event in events[:-1]]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    return "".join(choice["delta"].get("content", "") if path == CHAT else choice["text"] for choice in choices)


@pytest.mark.parametrize("name", ["near", "learnt"])
def test_streamed_or_not_alone_or_among_eight_it_is_the_same_text(name, request):
    server = request.getfixturevalue(name)
    asked = requests()
    alone = [text_of(path, server.post(path, **body).json()) for path, body in asked]
    streamed = [joined(path, server.stream(path, **body)) for path, body in asked]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda one: text_of(one[0], server.post(one[0], **one[1]).json()), asked))
        both = list(pool.map(lambda one: joined(one[0], server.stream(one[0], **one[1])), asked))
    assert all(alone)
    assert alone == streamed == together == both
    server.wait_until_idle()


def test_whole_chat(one):
    body = one.post(CHAT, messages=QUESTION, temperature=0, max_tokens=5, ignore_eos=True, model="mine/toy").json()
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    assert abs(body["created"] - time.time()) < 60
    assert body["model"] == "mine/toy"
    [choice] = body["choices"]
    assert (choice["index"], choice["finish_reason"], choice["message"]["role"]) == (0, "length", "assistant")
    ids = chat_prompt_ids(Tokenizer.from_pretrained(one.directory), QUESTION, "2024-07-26")
    count = len(ids)
    assert body["usage"] == {"prompt_tokens": count, "completion_tokens": 5, "total_tokens": count + 5}


def test_streamed_chat_in_its_order(one):
    options = {"messages": QUESTION, "temperature": 0, "max_tokens": 5, "ignore_eos": True, "n": 2}
    *chunks, usage, done = one.stream(CHAT, **options, stream_options={"include_usage": True})
    assert done == "[DONE]"
    usage = json.loads(usage)
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 10
    chunks = [json.loads(chunk) for chunk in chunks]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    assert all(chunk["usage"] is None for chunk in chunks)
    for index in range(2):
        choices = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
        assert choices[0]["delta"] == {"role": "assistant", "content": ""}
        assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["length"]
        assert choices[-1]["delta"] == {}


def test_no_usage_unless_asked_for(one):
    chunks = [json.loads(event) for event in one.stream(TEXT, prompt="In 1987", max_tokens=2)[:-1]]
    assert not any("usage" in chunk for chunk in chunks)
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}


def test_several_prompts_and_choices_have_stable_indices(one):
    settings = {"max_tokens": 8, "seed": 3, "ignore_eos": True}
    prompts = ["In 1987", "def add"]
    body = one.post(TEXT, prompt=prompts, n=3, **settings).json()
    assert [choice["index"] for choice in body["choices"]] == list(range(6))
    texts = [choice["text"] for choice in body["choices"]]
    assert len(set(texts)) > 3
    again = [one.post(TEXT, prompt=prompt, n=3, **settings).json()["choices"] for prompt in prompts]
    assert [choice["text"] for choices in again for choice in choices] == texts
    assert body["usage"]["completion_tokens"] == 48


def test_prompts_may_be_ids_and_a_chat_is_its_ids(one):
    tokenizer = Tokenizer.from_pretrained(one.directory)
    ids = chat_prompt_ids(tokenizer, QUESTION, "2024-07-26")
    settings = {"temperature": 0, "max_tokens": 20, "ignore_eos": True}
    by_chat = one.post(CHAT, messages=QUESTION, **settings).json()
    by_ids = one.post(TEXT, prompt=ids, **settings).json()
    parts = [{"role": "user", "content": [{"type": "text", "text": QUESTION[0]["content"]}]}]
    by_parts = one.post(CHAT, messages=parts, **settings).json()
    assert text_of(CHAT, by_chat) == text_of(TEXT, by_ids) == text_of(CHAT, by_parts)
    assert by_chat["usage"] == by_ids["usage"] == by_parts["usage"]
    both = one.post(TEXT, prompt=[ids, tokenizer.encode("In 1987")], **settings).json()
    assert both["choices"][0]["text"] == text_of(TEXT, by_ids)


def test_null_is_absent(one):
    names = ["temperature", "top_p", "top_k", "min_p", "stop", "n", "seed", "stream", "stream_options", "tools", "user"]
    names += ["tool_choice", "logit_bias", "response_format", "logprobs", "frequency_penalty", "presence_penalty"]
    settings = {"messages": QUESTION, "seed": 1, "max_tokens": 5}
    nulls = dict.fromkeys(names) | settings
    assert text_of(CHAT, one.post(CHAT, **nulls).json()) == text_of(CHAT, one.post(CHAT, **settings).json())


def test_max_tokens_null_is_the_rest_of_the_context(one):
    body = one.post(TEXT, prompt="In 1987", temperature=0, max_tokens=None, ignore_eos=True).json()
    assert body["usage"]["total_tokens"] == 256
    assert body["choices"][0]["finish_reason"] == "length"


def test_stop_strings(learnt):
    prompt = {"prompt": "<|bos|>The quick", "temperature": 0, "max_tokens": 60}
    whole = learnt.post(TEXT, **prompt).json()
    assert (text_of(TEXT, whole), whole["choices"][0]["finish_reason"]) == (TRAINING_TEXT[0][9:], "stop")
    for stop, wanted in [("mps ov", " brown fox ju"), (["zzz", "lazy", "over"], " brown fox jumps "), ("all.", None)]:
        body = learnt.post(TEXT, **prompt, stop=stop).json()
        wanted = TRAINING_TEXT[0][9:-4] if wanted is None else wanted
        assert text_of(TEXT, body) == wanted == joined(TEXT, learnt.stream(TEXT, **prompt, stop=stop))
        assert body["choices"][0]["finish_reason"] == "stop"


def test_models_and_health(one):
    [card] = one.client.get("/v1/models").json()["data"]
    assert (card["id"], card["object"], card["context_length"]) == ("mine/toy", "model", 256)
    assert one.client.get("/v1/models/mine/toy").json() == card
    health = one.client.get("/health")
    assert health.status_code == 200
    assert health.json()["status"] == "ok"
    assert health.json()["answers_independent_of_batch"]
    assert set(one.client.get("/stats").json()) == {"total_tasks", "total_tokens", "active_tasks", "waiting_queue"}


LONG = {"temperature": 0, "max_tokens": None, "ignore_eos": True}


def leave(server, body: dict, after_bytes: int) -> None:
    """Send a request over a bare socket, read a little, and close; what is not streamed must have begun by then."""
    raw = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(raw)}"
    url = httpx.URL(server.url)
    with socket.create_connection((url.host, url.port)) as sock:
        sock.sendall(head.encode() + b"\r\n\r\n" + raw)
        if not body["stream"]:
            wait_until(lambda: server.health()["running"])
        while after_bytes > 0:
            after_bytes -= len(sock.recv(after_bytes))


@pytest.mark.parametrize(
    ("stream", "after_bytes"),
    [(True, 0), (True, 1), (True, 5000), (False, 0)],
    ids=["at once", "head", "some", "whole"],
)
def test_a_client_that_leaves_keeps_nothing(one, stream, after_bytes):
    before = one.client.get("/stats").json()["total_tokens"]
    leave(one, {"prompt": "In 1987", "stream": stream, "n": 20, **LONG}, after_bytes)
    one.wait_until_idle()
    assert one.client.get("/stats").json()["total_tokens"] - before < 20 * 250  # it did not run to its end
    assert one.post(TEXT, prompt="x", max_tokens=2).status_code == 200


def test_twenty_streams_all_go_on(one):
    def last_line(number: int) -> str:
        body = {"prompt": f"In {number}", "stream": True, **LONG}
        with (
            httpx.Client(base_url=one.url, timeout=60) as client,
            client.stream("POST", "/v1/completions", json=body) as response,
        ):
            return [line for line in response.iter_lines() if line][-1]

    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(last_line, range(20))) == ["data: [DONE]"] * 20
