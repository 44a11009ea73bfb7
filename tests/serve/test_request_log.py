"""The log of requests: a line each, its numbers right, nothing that a client said, and no answer held up by it."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import httpx
import pytest

from astrai_serve.api.request_log import MAX_WAITING, LineWriter
from tests.serve.serving import START_S, Server, is_there, served, wait_until

CHAT, TEXT = "chat/completions", "completions"
SERVE = [sys.executable, "-m", "tests.serve.front", "serve"]
LONG = {"prompt": "In 1987", "max_tokens": None, "ignore_eos": True, "stream": True}


class Log:
    """What a server has told since now."""

    def __init__(self, server: Server) -> None:
        self._server, self._begin = server, len(server.said)

    @property
    def text(self) -> str:
        return "".join(self._server.said[self._begin :])

    def line(self, words: str) -> dict[str, str]:
        """The only line with these words, when it has come: its named numbers, and `when`."""
        wait_until(lambda: words in self.text)
        [line] = [line for line in self.text.splitlines() if words in line]
        return {"when": line.split()[0]} | dict(word.split("=") for word in line.split()[4:])


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_and_its_numbers(one, stream):
    log, begun = Log(one), time.perf_counter()
    body = {"messages": [{"role": "user", "content": "Hello"}], "n": 2, "max_tokens": 7, "ignore_eos": True}
    if stream:
        one.stream(CHAT, **body)
    else:
        usage = one.post(CHAT, **body).json()["usage"]
    found = log.line(f"POST /v1/{CHAT} 200")
    assert abs(datetime.fromisoformat(found["when"]) - datetime.now().astimezone()) < timedelta(seconds=60)
    assert (found["generated_tokens"], found["finish"]) == ("14", "length")
    assert stream or int(found["prompt_tokens"]) == usage["prompt_tokens"]
    assert 0 < (seconds := float(found["seconds"])) < time.perf_counter() - begun
    assert float(found["tokens_per_s"]) == pytest.approx(14 / seconds, rel=0.1)


def test_an_answer_that_stopped(learnt):
    log = Log(learnt)
    learnt.post(TEXT, prompt="<|bos|>The quick", temperature=0, max_tokens=60)
    assert log.line("POST")["finish"] == "stop"


def test_refusals_have_their_status(one):
    log = Log(one)
    one.post(TEXT, prompt="")
    one.client.get("/nothing?api_key=sk-secret")
    assert set(log.line(f"POST /v1/{TEXT} 400")) == {"when", "seconds"}
    assert set(log.line("GET /nothing 404")) == {"when", "seconds"}


def test_a_client_that_leaves(one):
    log = Log(one)
    with httpx.stream("POST", f"{one.url}/v1/{TEXT}", json=LONG | {"n": 9}, timeout=60) as answer:
        next(answer.iter_lines())
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{one.url}/v1/{TEXT}", json=LONG | {"stream": False, "n": 64}, timeout=0.3)
    for status in (200, 499):
        assert log.line(f"POST /v1/{TEXT} {status}")["finish"] == "client_left"


def test_nothing_that_a_client_said(one):
    log = Log(one)
    headers = {"authorization": "Bearer sk-secret", "x-api-key": "sk-secret"}
    for prompt in ("sk-secret", {"sk-secret": 1}):
        one.client.post(f"/v1/{TEXT}?key=sk-secret", json={"prompt": prompt, "user": "sk-secret"}, headers=headers)
    one.client.get("/a%0ab%1b[31m" + "x" * 1000)
    line = log.line("GET /a%0Ab%1B%5B31mxxx")
    assert set(line) == {"when", "seconds"}
    assert "secret" not in log.text
    assert all(len(line) < 300 for line in log.text.splitlines())


def test_looking_whether_all_is_well_is_told_only_when_asked_for(near):
    with served(near.directory, "--port", 0, "--verbose") as server:
        log = Log(server)
        server.health()
        log.line("GET /health 200")
    quiet = Log(near)
    near.health()
    near.client.get("/v1/models")
    quiet.line("GET /v1/models 200")
    assert "/health" not in quiet.text


@contextlib.contextmanager
def running(*arguments: object, stderr: int):
    """A server in its own process, which is ended however the test ends."""
    process = subprocess.Popen([*SERVE, *map(str, arguments)], stderr=stderr)
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def test_quiet_is_quiet(near, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with open(tmp_path / "said", "wb") as said, running(near.directory, "--port", port, "-q", stderr=said):
        wait_until(lambda: is_there(f"http://127.0.0.1:{port}/v1/models"), START_S)
    assert (tmp_path / "said").read_bytes() == b""


def fill(pipe: int) -> None:
    """Until not one line more goes in."""
    os.set_blocking(pipe, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe, b"x" * 512)
    os.set_blocking(pipe, True)


def test_a_log_that_nobody_reads_holds_nobody_up(near):
    reading, writing = os.pipe()
    with open(reading, "rb", 0) as told, running(near.directory, "--port", 0, stderr=writing):
        url = re.search(rb"http://\S+(?=/v1)", told.readline())[0].decode()
        fill(writing)
        with httpx.Client(base_url=url, timeout=20) as client:
            for _ in range(50):
                assert client.get("/v1/models").status_code == 200
    os.close(writing)


def test_lines_come_in_order_and_those_too_many_are_left_out():
    reading, writing = os.pipe()
    fill(writing)
    writer = LineWriter(writing)
    for number in range(MAX_WAITING + 50):
        writer.write(f"line {number:04}")
    with ThreadPoolExecutor(1) as pool, open(reading, "rb") as file:
        taken = pool.submit(file.read)
        writer.close(10)
        os.close(writing)
        lines = taken.result().lstrip(b"x").decode().splitlines()
    assert lines == [f"line {number:04}" for number in range(len(lines))]
    assert MAX_WAITING <= len(lines) <= MAX_WAITING + 1  # one was in the writer's hand


def test_a_reader_that_has_gone_is_no_matter():
    reading, writing = os.pipe()
    os.close(reading)
    writer = LineWriter(writing)
    writer.write("line")
    writer.close()
    os.close(writing)
