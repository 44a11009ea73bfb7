"""`astrai serve` and `astrai generate` as processes: start, signals, ports, exit codes, broken directories."""

import json
import signal
import socket
import threading
import time

import httpx
import pytest

from tests.data.toys import TRAINING_TEXT, write_bpe_tokenizer
from tests.serve.serving import Server, near_ties, run_front, served, write_model


@pytest.fixture(scope="module")
def toy(models, tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("run") / "toy", models["trained"])


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """Has long answers in it: 4096 tokens of context."""
    from astrai_train.models import ModelConfig
    from tests.serve.serving import SIZES
    from tests.train.small_models import lively

    model = lively(ModelConfig(**SIZES | {"max_position_embeddings": 4096})).float()
    return write_model(tmp_path_factory.mktemp("slow") / "slow", model)


def test_generate(toy):
    done = run_front("generate", toy, "--prompt", "The quick", "--temperature", 0)
    assert (done.returncode, done.stdout) == (0, TRAINING_TEXT[0][9:] + "\n")


def test_generate_reads_standard_input_and_stops(toy):
    done = run_front("generate", toy, "-p", "-", "--temperature", 0, "--stop", "lazy", input="The quick")
    assert done.stdout == " brown fox jumps over the \n"


def test_generate_a_chat_with_a_seed(toy):
    arguments = ["generate", toy, "-p", "hi", "--chat", "--system", "be", "--seed", 4, "--max-tokens", 9]
    first, second = (run_front(*arguments) for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["-p", "word " * 300], 1, ["got:", "at most 255"]),
        (["-p", ""], 1, ["empty", "at least one token"]),
        (["-p", "x", "--system", "s"], 2, ["--chat"]),
        (["-p", "x", "--top-p", "2"], 2, ["top-p"]),
        (["-p", "x", "--device", "nowhere"], 1, ["nowhere", "--device"]),
        (["-p", "x", "--dtype", "fp8"], 1, ["fp8", "bfloat16"]),
        (["-p", "x", "--max-seq-len", "1000"], 1, ["1000", "256"]),
    ],
    ids=lambda value: str(value)[:30],
)
def test_generate_refuses(toy, arguments, code, words):
    done = run_front("generate", toy, *arguments)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert all(word in done.stderr for word in words), done.stderr


def broken_directories(root):
    """Name -> (directory, words of the message)."""
    (root / "empty").mkdir()
    no_tokenizer = write_model(root / "no tokenizer", near_ties())
    (no_tokenizer / "tokenizer.json").unlink()
    other = write_model(root / "other tokenizer", near_ties())
    write_bpe_tokenizer(other, 600)
    bad_template = write_model(root / "bad template", near_ties())
    config = json.loads((bad_template / "tokenizer_config.json").read_text()) | {"chat_template": "{% for %}"}
    (bad_template / "tokenizer_config.json").write_text(json.dumps(config))
    cut = write_model(root / "cut weights", near_ties())
    (cut / "model.safetensors").write_bytes((cut / "model.safetensors").read_bytes()[:1000])
    return {
        "nowhere": (root / "nowhere", ["nowhere", "config.json"]),
        "empty": (root / "empty", ["config.json"]),
        "no tokenizer": (no_tokenizer, ["tokenizer.json"]),
        "other tokenizer": (other, ["do not belong together", "vocab_size = 512"]),
        "bad template": (bad_template, ["chat template", "line 1"]),
        "cut weights": (cut, ["model.safetensors"]),
    }


NAMES = ["nowhere", "empty", "no tokenizer", "other tokenizer", "bad template", "cut weights"]


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    return broken_directories(tmp_path_factory.mktemp("broken"))


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_cannot_be_served(broken, name):
    directory, words = broken[name]
    done = run_front("serve", directory, "--port", 0)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert all(word in done.stderr for word in words), done.stderr


def test_a_port_in_use_is_told_at_once(toy):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_front("serve", toy, "--port", port)
    assert done.returncode == 1
    assert "the port is in use" in done.stderr
    assert f"127.0.0.1:{port}" in done.stderr
    assert f"--port {port + 1}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("host", ["203.0.113.1", "no.such.host.invalid"])
def test_an_address_that_is_not_ours(toy, host):
    done = run_front("serve", toy, "--host", host, "--port", 0)
    assert done.returncode == 1
    assert host in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_that_ended_leaves_its_port_usable(toy):
    with served(toy, "--port", 0) as server:
        port = httpx.URL(server.url).port
        assert server.post("completions", prompt="x", max_tokens=2).status_code == 200
    with served(toy, "--port", port, "--name", "mine/toy") as again:
        assert again.client.get("/v1/models/mine/toy").json()["id"] == "mine/toy"


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
@pytest.mark.parametrize("is_busy", [False, True])
def test_signals_end_it_within_seconds(slow, sent, code, is_busy):
    server = Server(slow, "--port", 0)
    events: list[str] = []

    def listen() -> None:
        body = {"prompt": "In 1987", "max_tokens": None, "ignore_eos": True, "stream": True, "n": 4}
        with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=60) as response:
            events.extend(line for line in response.iter_lines() if line)

    listener = threading.Thread(target=listen)
    if is_busy:
        listener.start()
        time.sleep(1)
    begun = time.monotonic()
    assert server.end(sent) == code
    assert time.monotonic() - begun < 8
    assert "Traceback" not in "".join(server.said)
    if is_busy:
        listener.join(10)
        assert not listener.is_alive()
        assert "being shut down" in events[-1]  # told, not cut off
        assert "[DONE]" not in events[-1]


def test_a_full_queue_is_429_and_health_stays_well(slow):
    with served(slow, "--port", 0, "--max-batch-size", 1, "--max-queue", 1) as server:
        body = {"prompt": "In 1987", "max_tokens": None, "ignore_eos": True, "n": 2}
        with httpx.stream("POST", f"{server.url}/v1/completions", json=body | {"stream": True}, timeout=60) as first:
            assert first.status_code == 200
            next(first.iter_lines())
            refused = server.post("completions", prompt="x")
            assert refused.status_code == 429
            assert refused.headers["retry-after"]
            assert refused.json()["error"]["code"] == "queue_full"
            assert server.client.get("/health").status_code == 200
        server.wait_until_idle()
        assert server.post("completions", prompt="x", max_tokens=1).status_code == 200


def test_no_chat_template(tmp_path):
    directory = write_model(tmp_path / "plain", near_ties())
    write_bpe_tokenizer(directory, template=None)
    with served(directory, "--port", 0) as server:
        error = server.post("chat/completions", messages=[{"role": "user", "content": "x"}])
        assert error.status_code == 400
        assert "/v1/completions" in error.json()["error"]["message"]
        assert server.post("completions", prompt="x", max_tokens=2).status_code == 200
