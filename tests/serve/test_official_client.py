"""OpenAI's own Python client against a real server: what it asks, and what it makes of the answers."""

import asyncio

import openai
import pytest

QUESTION = [{"role": "user", "content": "Wer ist über allen Gipfeln?"}]
ASKED = {"model": "toy", "messages": QUESTION, "temperature": 0, "max_tokens": 20}
ENDLESS = {"model": "mine/toy", "prompt": "In 1987", "max_tokens": 4000, "extra_body": {"ignore_eos": True}}


def client_of(server, **options) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, **options)


@pytest.fixture
def client(learnt) -> openai.OpenAI:
    return client_of(learnt)


def test_models(client, one):
    assert [model.id for model in client.models.list()] == ["toy"]
    slashed = client_of(one).models.retrieve("mine/toy")
    assert (slashed.id, slashed.object, slashed.owned_by) == ("mine/toy", "model", "astrai")
    with pytest.raises(openai.NotFoundError) as raised:
        client.models.retrieve("mine/other")
    assert (raised.value.code, raised.value.param) == ("model_not_found", "model")


def test_a_chat_whole_and_streamed(client):
    whole = client.chat.completions.create(**ASKED)
    options = {"include_usage": True, "include_obfuscation": False}
    chunks = list(client.chat.completions.create(**ASKED, stream=True, stream_options=options))
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces) == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage
    plain = list(client.chat.completions.create(**ASKED, stream=True))
    assert all(chunk.usage is None and chunk.choices for chunk in plain)


def test_the_helper_that_puts_a_stream_together(client):
    asked = {**ASKED, "max_tokens": 200, "stop": "."}
    whole = client.chat.completions.create(**asked).choices[0]
    with client.chat.completions.stream(**asked) as stream:
        found = stream.get_final_completion().choices[0]
    assert (found.message.content, found.finish_reason) == (whole.message.content, "stop")


def test_choices_seeds_and_stops(client):
    asked = {"model": "toy", "prompt": "In 1987", "max_tokens": 12, "n": 3, "seed": 5, "temperature": 2}
    first, again = (client.completions.create(**asked) for _ in range(2))
    texts = [choice.text for choice in first.choices]
    assert texts == [choice.text for choice in again.choices]
    assert len(set(texts)) > 1
    assert first.usage.completion_tokens <= 36
    stop = texts[0][3:5]
    [cut] = client.completions.create(**asked | {"n": 1}, stop=[stop]).choices
    assert (cut.text, cut.finish_reason) == (texts[0].partition(stop)[0], "stop")


def test_labels_change_nothing(client):
    labels = {"user": "u", "metadata": {"a": "b"}, "safety_identifier": "s", "prompt_cache_key": "k", "store": False}
    plain, labelled = client.chat.completions.create(**ASKED), client.chat.completions.create(**ASKED, **labels)
    assert labelled.choices == plain.choices


REFUSED = [
    {"logit_bias": {"5": 1}},
    {"logprobs": True, "top_logprobs": 2},
    {"tools": [{"type": "function", "function": {"name": "f"}}]},
    {"response_format": {"type": "json_object"}},
    {"prompt_cache_retention": "24h"},
]


@pytest.mark.parametrize("more", REFUSED, ids=lambda value: next(iter(value)))
def test_what_cannot_be_done_is_refused_by_name(client, more):
    with pytest.raises(openai.BadRequestError, match="not supported yet") as raised:
        client.chat.completions.create(**ASKED, **more)
    assert raised.value.param == next(iter(more))


def test_errors_have_the_class_that_the_client_knows(client, learnt):
    with pytest.raises(openai.NotFoundError, match="try: name that one"):
        client.chat.completions.create(**ASKED | {"model": "other"})
    with pytest.raises(openai.BadRequestError) as raised:
        client.completions.create(model="toy", prompt="word " * 300)
    assert raised.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError, match="base URL"):
        client.responses.create(model="toy", input="hi")
    with pytest.raises(openai.NotFoundError, match="did you mean /v1/chat/completions"):
        client.with_options(base_url=learnt.url).chat.completions.create(**ASKED)


def test_a_timeout_ends_the_work(one):
    with pytest.raises(openai.APITimeoutError):
        client_of(one, timeout=0.2).completions.create(**ENDLESS, n=64)
    one.wait_until_idle()


def test_a_stream_that_is_left(one):
    with client_of(one).completions.create(**ENDLESS, stream=True) as stream:
        for _ in range(5):
            next(stream)
    one.wait_until_idle()


def test_a_task_that_is_cancelled(one):
    async def ask() -> None:
        client = openai.AsyncOpenAI(base_url=f"{one.url}/v1", api_key="none", max_retries=0)
        tasks = [asyncio.create_task(client.completions.create(**ENDLESS, n=4)) for _ in range(8)]
        await asyncio.sleep(0.5)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert any(isinstance(end, asyncio.CancelledError) for end in ended)
        await client.close()

    asyncio.run(ask())
    one.wait_until_idle()
