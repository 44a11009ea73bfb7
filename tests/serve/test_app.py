"""The application in this process: engines that fail, are stuck or dead."""

import asyncio
import json
import time

import httpx
import pytest

from astrai_data.tokenizer import Tokenizer
from astrai_serve.api import service as service_module
from astrai_serve.api.app import NUM_TOKENIZING, create_app
from astrai_serve.api.service import Service
from astrai_serve.errors import RequestError
from tests.data.toys import write_bpe_tokenizer
from tests.serve.serving import small_engine, wait_until

PROMPT = {"prompt": "In 1987", "temperature": 0, "max_tokens": 20, "ignore_eos": True}


@pytest.fixture
def service(models, tokenizer):
    with small_engine(models["near ties"], tokenizer) as engine:
        yield Service(engine, "toy")


def ask(service: Service, method: str, path: str, **body) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(service), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.request(method, path, json=body or None)

    return asyncio.run(send())


def fail_at_step(service: Service, number: int) -> None:
    forward, steps = service.engine.runner.forward, []

    def failing(chunks):
        steps.append(chunks)
        if len(steps) == number:
            raise RuntimeError("secret insides")
        return forward(chunks)

    service.engine.runner.forward = failing


def test_a_failure_in_a_stream_is_an_event_and_then_the_end(service):
    fail_at_step(service, 5)
    events = ask(service, "POST", "/v1/completions", **PROMPT, stream=True).text.removesuffix("\n\n").split("\n\n")
    error = json.loads(events[-1].removeprefix("data: "))["error"]
    assert error["type"] == "server_error"
    assert "secret" not in error["message"]
    assert len(events) <= 5
    assert not any('finish_reason":"' in event for event in events)
    again = ask(service, "POST", "/v1/completions", **PROMPT)
    assert again.status_code == 200


def test_a_failure_of_a_whole_answer_is_500(service):
    fail_at_step(service, 5)
    answer = ask(service, "POST", "/v1/completions", **PROMPT)
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")
    assert service.engine.pool.num_free == service.engine.pool.num_pages


def test_a_defect_tells_nothing_of_its_insides(service, monkeypatch):
    monkeypatch.setattr(Service, "text_ids", lambda self, text: 1 / 0)
    answer = ask(service, "POST", "/v1/completions", **PROMPT)
    assert answer.status_code == 500
    assert "division" not in answer.text
    assert ask(service, "GET", "/health").status_code == 200


def test_few_are_tokenized_at_a_time(service, monkeypatch):
    """Each thread that does takes turns with the event loop; /health is answered meanwhile."""
    at_work, most, text_ids = [], [], Service.text_ids

    def slow(self, text):
        at_work.append(text)
        most.append(len(at_work))
        time.sleep(0.05)
        at_work.pop()
        return text_ids(self, text)

    async def send() -> list[int]:
        transport = httpx.ASGITransport(create_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://x", timeout=60) as client:
            asked = [asyncio.create_task(client.post("/v1/completions", json=PROMPT)) for _ in range(12)]
            await asyncio.sleep(0.1)
            assert (await client.get("/health")).status_code == 200
            assert not all(task.done() for task in asked)
            return [answer.status_code for answer in await asyncio.gather(*asked)]

    monkeypatch.setattr(Service, "text_ids", slow)
    assert asyncio.run(send()) == [200] * 12
    assert max(most) == NUM_TOKENIZING


def test_a_dead_loop_is_503_everywhere(service):
    service.engine.shutdown()
    assert ask(service, "GET", "/health").status_code == 503
    answer = ask(service, "POST", "/v1/completions", **PROMPT)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_stopped")
    assert answer.headers["retry-after"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_crash_of_the_loop_itself_is_seen(service):
    service.engine.scheduler.schedule = lambda: 1 / 0
    wait_until(lambda: not service.engine.is_alive)
    assert ask(service, "GET", "/health").json()["status"] == "failing"


def test_a_stuck_loop_is_503(service, monkeypatch):
    monkeypatch.setattr(service_module, "STALE_AFTER_S", -1.0)
    assert ask(service, "GET", "/health").status_code == 503


def test_a_model_without_a_template_points_to_the_other_route(models, tmp_path):
    plain = Tokenizer.from_pretrained(write_bpe_tokenizer(tmp_path, template=None))
    with small_engine(models["near ties"], plain) as engine:
        service = Service(engine, "plain")
        with pytest.raises(RequestError) as raised:
            service.chat_ids([{"role": "user", "content": "x"}])
        assert (raised.value.param, raised.value.status) == ("messages", 400)
        assert "/v1/completions" in raised.value.hint
        assert ask(service, "POST", "/v1/completions", **PROMPT).status_code == 200


def test_a_template_that_refuses_is_400(models, tmp_path):
    template = "{% if messages[0].role != 'system' %}{{ raise_exception('no system') }}{% endif %}{{ messages }}"
    strict = Tokenizer.from_pretrained(write_bpe_tokenizer(tmp_path, template=template))
    with small_engine(models["near ties"], strict) as engine:
        answer = ask(Service(engine, "x"), "POST", "/v1/chat/completions", messages=[{"role": "user", "content": "hi"}])
        assert answer.status_code == 400
        assert "no system" in answer.json()["error"]["message"]
