"""Many clients at once, some of them rude: nobody waits for ever, and afterwards nothing is kept."""

import asyncio
import random
import threading
import time
from collections import Counter

import httpx
import psutil
import pytest

from astrai_serve.api.body_limit import MAX_BODY_BYTES
from tests.serve.serving import Server, served

PATH, JSON = "/v1/completions", {"content-type": "application/json"}
NUM_CLIENTS = 64
HEALTH_S = 1.0
CACHE_TOKENS = 4 * 256  # four contexts; 16 answers run at a time, so some are computed again
MAX_GROWTH_BYTES = 16 * 2**20
STEPS = {"all": 10, "leave": 5, "give up": 2, "bad": 2, "large": 1}
"""What a client does next, and how often."""


async def step(client: httpx.AsyncClient, chance: random.Random) -> str:
    """One request; what became of it."""
    what = chance.choices(list(STEPS), STEPS.values())[0]
    body = {"prompt": [300] * chance.randint(1, 200), "max_tokens": chance.randint(1, 100), "seed": 1}
    if what == "bad":
        answer = await client.post(PATH, content=b'{"prompt": ', headers=JSON)
        return f"{what} {answer.status_code}"
    if what == "large":
        answer = await client.post(PATH, content=b"x" * (MAX_BODY_BYTES + 1), headers=JSON)
        return f"{what} {answer.status_code}"
    if what == "give up":
        try:
            answer = await client.post(PATH, json=body | {"n": 2}, timeout=httpx.Timeout(60, read=chance.random()))
            return f"all {answer.status_code}"
        except httpx.ReadTimeout:
            return what
    async with client.stream("POST", PATH, json=body | {"stream": True}) as answer:
        num_left = chance.randint(0, 20) if what == "leave" else -1
        last = ""
        async for line in answer.aiter_lines():
            last, num_left = line or last, num_left - 1
            if num_left == 0:
                return what
    return "all 200" if last == "data: [DONE]" else last


async def load(url: str, seconds: float) -> Counter[str]:
    """How often each thing became of a request."""
    deadline, found = time.monotonic() + seconds, Counter()
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as client:

        async def work(number: int) -> None:
            chance = random.Random(number)
            while time.monotonic() < deadline:
                found[await step(client, chance)] += 1

        await asyncio.gather(*map(work, range(NUM_CLIENTS)))
    return found


class Watch:
    """Asks for the health ten times a second: which `states` it was told, how slowly, and the server's `memory`."""

    def __init__(self, server: Server) -> None:
        self._server, self._process = server, psutil.Process(server.process.pid)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.states: set[str] = set()
        self.slowest_s, self.memory = 0.0, []

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        with httpx.Client(base_url=self._server.url, timeout=20) as client:
            while not self._over.wait(0.1):
                begun = time.monotonic()
                try:
                    self.states.add(client.get("/health").json()["status"])
                except httpx.HTTPError as error:
                    self.states.add(repr(error))
                self.slowest_s = max(self.slowest_s, time.monotonic() - begun)
                self.memory.append(self._process.memory_info().rss)


@pytest.mark.parametrize("seconds", [5, pytest.param(60, marks=pytest.mark.slow)])
def test_many_rude_clients(near, seconds):
    with served(near.directory, "--port", 0, "--cache-tokens", CACHE_TOKENS) as server:
        asyncio.run(load(server.url, 1))  # what is made once is made
        with Watch(server) as watch:
            found = asyncio.run(load(server.url, seconds))
        server.wait_until_idle()
    assert set(found) == {"all 200", "leave", "give up", "bad 400", "large 413"}
    assert watch.states == {"ok"}
    assert watch.slowest_s < HEALTH_S
    assert max(watch.memory[-5:]) - max(watch.memory[: len(watch.memory) // 5]) < MAX_GROWTH_BYTES
    assert "Traceback" not in "".join(server.said)
