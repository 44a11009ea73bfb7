"""`astrai serve` and `astrai generate`: answers, exit codes, ports, signals, broken directories."""

import json
import socket
import sys

import httpx
import pytest
import torch

from astrai_serve.api.server import bind
from astrai_train.models import ModelConfig
from tests.data.toys import TRAINING_TEXT
from tests.serve import front
from tests.serve.serving import SIZES, near_ties, run_front, served, write_model
from tests.train.small_models import lively


@pytest.fixture(scope="module")
def toy(models, tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("run") / "toy", models["trained"])


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """Has long answers in it: 4096 tokens of context."""
    model = lively(ModelConfig(**SIZES | {"max_position_embeddings": 4096}), torch.float32)
    return write_model(tmp_path_factory.mktemp("slow") / "slow", model)


@pytest.fixture
def run_here(monkeypatch, capsys):
    """A command in this process: (exit code, standard output, standard error)."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setattr(sys, "argv", ["astrai", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            front.main()
        return ended.value.code or 0, *capsys.readouterr()

    return run


def test_generate(toy):
    done = run_front("generate", toy, "--prompt", "-", "--temperature", 0, input="The quick")
    assert (done.returncode, done.stdout) == (0, TRAINING_TEXT[0][9:] + "\n"), done.stderr


def test_generate_until_a_stop(toy, run_here):
    code, said, _ = run_here("generate", toy, "-p", "The quick", "--temperature", 0, "--stop", "lazy")
    assert (code, said) == (0, " brown fox jumps over the \n")


def test_generate_a_chat_with_a_seed(toy, run_here):
    arguments = ["generate", toy, "-p", "hi", "--chat", "--system", "be", "--seed", 4, "--max-tokens", 9]
    assert run_here(*arguments) == run_here(*arguments)


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
def test_generate_refuses(toy, run_here, arguments, code, words):
    found, _, said = run_here("generate", toy, *arguments)
    assert found == code
    assert all(word in said for word in words), said


def broken_directories(root):
    """Name -> (directory, words of the message)."""
    (root / "empty").mkdir()
    no_tokenizer = write_model(root / "no tokenizer", near_ties())
    (no_tokenizer / "tokenizer.json").unlink()
    small = lively(ModelConfig(**SIZES | {"vocab_size": 100}), torch.float32)
    bad_template = write_model(root / "bad template", near_ties())
    config = json.loads((bad_template / "tokenizer_config.json").read_text()) | {"chat_template": "{% for %}"}
    (bad_template / "tokenizer_config.json").write_text(json.dumps(config))
    cut = write_model(root / "cut weights", near_ties())
    (cut / "model.safetensors").write_bytes((cut / "model.safetensors").read_bytes()[:1000])
    return {
        "nowhere": (root / "nowhere", ["nowhere", "config.json"]),
        "empty": (root / "empty", ["config.json"]),
        "no tokenizer": (no_tokenizer, ["tokenizer.json"]),
        "other tokenizer": (write_model(root / "other", small), ["do not belong together", "vocab_size = 100"]),
        "bad template": (bad_template, ["chat template", "line 1"]),
        "cut weights": (cut, ["model.safetensors"]),
    }


NAMES = ["nowhere", "empty", "no tokenizer", "other tokenizer", "bad template", "cut weights"]


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    return broken_directories(tmp_path_factory.mktemp("broken"))


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_cannot_be_served(broken, run_here, name):
    directory, words = broken[name]
    code, _, said = run_here("serve", directory, "--port", 0)
    assert code == 1
    assert all(word in said for word in words), said


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
def test_an_address_that_is_not_ours(toy, run_here, host):
    code, _, said = run_here("serve", toy, "--host", host, "--port", 0)
    assert code == 1
    assert host in said


def test_two_servers_cannot_begin_on_one_port():
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(Exception, match="in use"):
            bind("127.0.0.1", port)


def test_a_full_queue_is_429_and_health_stays_well(slow):
    with served(slow, "--port", 0, "--max-batch-size", 1, "--max-queue", 1) as server:
        body = {"prompt": "In 1987", "max_tokens": None, "ignore_eos": True, "n": 2, "stream": True}
        with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=60) as first:
            assert first.status_code == 200
            lines = first.iter_lines()  # dropped, it would close the connection
            next(lines)
            refused = server.post("completions", prompt="x")
            assert refused.status_code == 429
            assert refused.headers["retry-after"]
            assert refused.json()["error"]["code"] == "queue_full"
            assert server.client.get("/health").status_code == 200
        server.wait_until_idle()
        assert server.post("completions", prompt="x", max_tokens=1).status_code == 200
