"""What a hostile user tries with `astrai serve` and `astrai generate`: words instead of a traceback or a hang."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest
import torch

from astrai_train.models import load_model, save_model
from tests.serve.serving import START_S, is_there, near_ties, run_front, wait_until, write_model

CHAT, TEXT = "chat/completions", "completions"
QUESTION = [{"role": "user", "content": "Hello"}]
JSON = {"content-type": "application/json"}
STARTS = {
    "a device without data": (["--device", "meta"], ["--device", "meta"]),
    "a cache of petabytes": (["--cache-tokens", 10**13], ["--cache-tokens", "does not fit into memory"]),
    "a cache beyond 64 bits": (["--cache-tokens", 10**25], ["--cache-tokens", "does not fit into memory"]),
    "a name no host can have": (["--host", "a..b"], ["a..b", "cannot listen"]),
    "a label too long": (["--host", "a" * 70 + ".invalid"], ["cannot listen"]),
}


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("trouble") / "toy", near_ties())


@pytest.mark.parametrize("case", STARTS)
def test_a_server_that_cannot_start(toy, case):
    options, words = STARTS[case]
    done = run_front("serve", toy, "--port", 0, *options)
    assert done.returncode == 1, done.stderr
    assert all(word in done.stderr for word in words), done.stderr
    assert "Traceback" not in done.stderr


def test_a_billion_layers_are_a_slip_of_the_pen(toy, tmp_path):
    config = json.loads((toy / "config.json").read_text()) | {"num_hidden_layers": 10**9}
    write_model(tmp_path, near_ties())
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = run_front("generate", tmp_path, "-p", "x")
    assert done.returncode == 1
    assert "num_hidden_layers" in done.stderr
    assert "Traceback" not in done.stderr


def test_weights_that_are_no_numbers(toy, tmp_path):
    write_model(tmp_path, near_ties())
    model = load_model(tmp_path)
    with torch.no_grad():
        model.model.norm.weight[:] = torch.nan
    save_model(model, tmp_path)
    done = run_front("generate", tmp_path, "-p", "x")
    assert done.returncode == 1
    assert "no numbers" in done.stderr
    assert "Traceback" not in done.stderr


def generate(toy, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "tests.serve.front", "generate", str(toy), "-p", "x", "--seed", "1"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | options.pop("env", {})
    return subprocess.run(
        [*command, "--max-tokens", "60"], stderr=subprocess.PIPE, timeout=90, env=environment, check=False, **options
    )


@pytest.mark.slow
def test_a_terminal_of_few_letters_loses_nothing(toy):
    narrow = generate(toy, stdout=subprocess.PIPE, env={"PYTHONIOENCODING": "ascii"})
    wide = generate(toy, stdout=subprocess.PIPE, env={"PYTHONIOENCODING": "utf-8"})
    assert (narrow.returncode, wide.returncode) == (0, 0), narrow.stderr.decode()
    text = wide.stdout.decode()
    assert not text.isascii()
    assert narrow.stdout == text.encode("ascii", "backslashreplace")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_an_answer_for_which_there_is_no_room(toy):
    with open("/dev/full", "w") as full:
        done = generate(toy, stdout=full)
    said = done.stderr.decode()
    assert done.returncode == 1
    assert "the answer cannot be written" in said
    assert "Traceback" not in said


TOO_MUCH = {
    "many texts": (TEXT, {"prompt": ["x"] * 1_000_000}, "n"),
    "many ids": (TEXT, {"prompt": [[5]] * 20_000, "n": 128}, "n"),
    "more than ever fit": (TEXT, {"prompt": ["x"] * 300}, "n"),
    "many stop ids": (CHAT, {"messages": QUESTION, "stop_token_ids": list(range(200_000)), "n": 64}, "stop_token_ids"),
}


@pytest.mark.parametrize("case", TOO_MUCH)
def test_too_much_is_refused_before_it_costs_anything(one, case):
    """Each of these once held the server for half a minute and took gigabytes; a later try could not succeed either."""
    path, body, param = TOO_MUCH[case]
    begun = time.monotonic()
    answer = one.post(path, **body)
    assert time.monotonic() - begun < 15
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text[:300]


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        ('{"prompt": "ü"}'.encode("latin-1"), "utf-8"),
        (b'{"prompt": "x", "max_tokens": ' + b"9" * 5000 + b"}", "digits"),
        (b'{"prompt": ' + b"[" * 100_000, "recursion"),
    ],
    ids=["latin-1", "digits", "deep"],
)
def test_a_body_that_cannot_be_read_says_why(one, raw, word):
    answer = one.client.post(f"/v1/{TEXT}", content=raw, headers=JSON)
    assert answer.status_code == 400
    assert word in answer.json()["error"]["message"]


def test_readers_that_do_not_read_hold_nothing(one):
    """Twenty streams whose clients never read: all run to their end, and their pages come back meanwhile."""
    body = {"prompt": "In 1987", "max_tokens": None, "ignore_eos": True, "stream": True}
    with httpx.Client(base_url=one.url, timeout=60) as client:
        requests = [client.build_request("POST", f"/v1/{TEXT}", json=body) for _ in range(20)]
        answers = [client.send(request, stream=True) for request in requests]
        wait_until(lambda: one.health()["free_pages"] == one.health()["num_pages"], 60)
        assert [answer.status_code for answer in answers] == [200] * 20
        for answer in answers:
            answer.close()


def close_some() -> None:
    """As `<&- 2>&-` in a shell."""
    os.close(0)
    os.close(2)


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="no /proc")
def test_a_server_whose_error_output_is_closed(toy):
    """Its socket must not become descriptor 2, which the log of requests and every library write to."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = [sys.executable, "-m", "tests.serve.front", "serve", str(toy), "--port", str(port)]
    process = subprocess.Popen(command, preexec_fn=close_some)
    try:
        wait_until(lambda: is_there(f"http://127.0.0.1:{port}/v1/models"), START_S)
        assert [os.readlink(f"/proc/{process.pid}/fd/{closed}") for closed in (0, 2)] == [os.devnull] * 2
        assert httpx.get(f"http://127.0.0.1:{port}/health", timeout=20).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def test_a_prompt_from_a_closed_input(toy):
    done = run_front("generate", toy, "-p", "-", "--max-tokens", 1, preexec_fn=lambda: os.close(0))
    assert done.returncode == 1
    assert "error: the prompt is empty" in done.stderr
