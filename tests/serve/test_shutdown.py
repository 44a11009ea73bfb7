"""The end of a server: its clients are told or see a clean close, it leaves within seconds, and the port is free."""

import contextlib
import json
import signal
import socket
import threading
import time

import httpx
import pytest
import torch

from astrai_serve.api.server import bind
from astrai_train.models import ModelConfig
from tests.serve.serving import SIZES, Server, wait_until, write_model
from tests.train.small_models import lively

NUM_STREAMS = 8
BODY = {"prompt": "In 1987", "max_tokens": None, "ignore_eos": True}
SECONDS = 8  # the server's own limit is three, and the machine may be busy


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """Has long answers in it: 4096 tokens of context."""
    model = lively(ModelConfig(**SIZES | {"max_position_embeddings": 4096}), torch.float32)
    return write_model(tmp_path_factory.mktemp("slow") / "slow", model)


class Asking(threading.Thread):
    """A client; `status` and `last` line of its answer, and whether it was `cut` off."""

    def __init__(self, url: str, stream: bool) -> None:
        super().__init__()
        self._url, self._body = f"{url}/v1/completions", BODY | {"stream": stream}
        self.status, self.last, self.headers, self.cut = 0, "", {}, False
        self.start()

    def run(self) -> None:
        try:
            with httpx.stream("POST", self._url, json=self._body, timeout=60) as answer:
                self.status, self.headers = answer.status_code, answer.headers
                for line in answer.iter_lines():
                    self.last = line or self.last
        except httpx.RemoteProtocolError:
            self.cut = True


@contextlib.contextmanager
def busy(directory):
    """A server, eight streams of it and one answer in one piece."""
    server = Server(directory, "--port", 0)
    clients = [Asking(server.url, stream=number > 0) for number in range(NUM_STREAMS + 1)]
    wait_until(lambda: server.health()["running"] == len(clients))
    yield server, clients
    for client in clients:
        client.join(10)
    said = "".join(server.said)
    assert "Traceback" not in said
    assert said.count("finish=shutdown") == len(clients), said
    bind("127.0.0.1", httpx.URL(server.url).port).close()  # the next one can have the port at once


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_it_and_everybody_is_told(slow, sent, code):
    with busy(slow) as (server, clients):
        begun = time.monotonic()
        assert server.end(sent) == code
        assert time.monotonic() - begun < SECONDS
    for client in clients:
        check_told(client)


def check_told(client: Asking) -> None:
    error = json.loads(client.last.removeprefix("data: "))["error"]
    assert (error["type"], error["code"]) == ("server_error", "engine_stopped")
    assert "being shut down" in error["message"]
    assert "retry-after" in client.headers or client.status == 200


def test_short_answers_still_come_to_their_end(slow):
    server = Server(slow, "--port", 0)
    with server.client.stream("POST", "/v1/completions", json=BODY | {"max_tokens": 30, "stream": True}) as answer:
        lines = answer.iter_lines()
        next(lines)
        server.process.send_signal(signal.SIGTERM)
        assert [line for line in lines if line][-1] == "data: [DONE]"
    assert server.process.wait(SECONDS) == 0
    assert server.end() == 0


def test_a_second_ctrl_c_waits_for_nobody(slow):
    with busy(slow) as (server, clients):
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.3)  # two at once would count as one
        begun = time.monotonic()
        assert server.end(signal.SIGINT) == 130
        assert time.monotonic() - begun < SECONDS
    whole, *streams = clients
    check_told(whole)
    assert all(client.cut for client in streams)


def test_clients_that_do_not_read_hold_nothing_up(slow):
    server = Server(slow, "--port", 0)
    url, raw = httpx.URL(server.url), json.dumps(BODY | {"stream": True, "n": 64}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(raw)}"
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect((url.host, url.port))
        sock.sendall(head.encode() + b"\r\n\r\n" + raw)
        wait_until(lambda: server.health()["running"] == 16)
        time.sleep(2)  # meanwhile the buffers fill
        begun = time.monotonic()
        assert server.end() == 0
        assert time.monotonic() - begun < SECONDS
    assert "Traceback" not in "".join(server.said)
