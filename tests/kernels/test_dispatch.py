"""Which path takes a call, and why."""

import logging
import subprocess
import sys

import pytest
import torch

from astrai_kernels import KernelArgumentError, KernelError, attention_varlen, dispatch, report
from tests.kernels.test_attention import borders_of, random_qkv

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.mark.parametrize(
    ("op", "shape", "dtype", "device", "words"),
    [
        ("attention_varlen", (4, 2, 64), torch.float32, "cpu", None),
        ("attention_varlen", (4, 2, 256), torch.bfloat16, "cpu", None),
        ("attention_varlen", (4, 2, 264), torch.float32, "cpu", "head_dim 264"),
        ("attention_varlen", (4, 2, 12), torch.float32, "cpu", "head_dim 12"),
        ("attention_varlen", (4, 2, 64), torch.float16, "cpu", "float16"),
        ("attention_varlen", (4, 2, 64), torch.float64, "cpu", "float64"),
        ("attention_varlen", (4, 2, 64), torch.float32, "meta", "on meta"),
        ("rotary", (4, 2, 12), torch.float32, "cpu", None),
        ("rotary", (4, 2, 12), torch.float16, "cpu", "float16"),
    ],
)
def test_capability(op, shape, dtype, device, words):
    x = torch.empty(shape, dtype=dtype, device=device)
    reason = dispatch.refusal(op, x)
    assert (reason is None) if words is None else (words in reason)
    if words is None:
        assert dispatch.choose(op, x, "cpu").backend == "cpu"
        return
    assert dispatch.choose(op, x, "auto") == dispatch.Choice("torch", reason)
    with pytest.raises(KernelError, match=words):
        dispatch.choose(op, x, "cpu")


@pytest.mark.parametrize(
    ("argument", "variable", "wanted"),
    [
        ("", None, "auto"),
        ("", "", "auto"),
        ("", " Torch ", "torch"),
        ("", "CPU", "cpu"),
        ("torch", "cpu", "torch"),
        ("auto", "torch", "auto"),
    ],
)
def test_the_argument_wins_over_the_environment(monkeypatch, argument, variable, wanted):
    monkeypatch.delenv(dispatch.VARIABLE, raising=False)
    if variable is not None:
        monkeypatch.setenv(dispatch.VARIABLE, variable)
    assert dispatch.requested(argument) == wanted


def test_unknown_names_are_errors(monkeypatch):
    with pytest.raises(KernelArgumentError, match="backend: got 'cuda', wanted one of auto, torch, cpu"):
        attention_varlen(*random_qkv(2, 1, 1, 8), borders_of([2]), 2, backend="cuda")
    monkeypatch.setenv(dispatch.VARIABLE, "yes")
    with pytest.raises(KernelArgumentError, match="ASTRAI_KERNELS: got 'yes'"):
        attention_varlen(*random_qkv(2, 1, 1, 8), borders_of([2]), 2)


def test_every_reason_is_logged_once(caplog):
    x = torch.empty(4, 2, 200 + 4)
    with caplog.at_level(logging.INFO, "astrai_kernels"):
        for _ in range(3):
            dispatch.choose("attention_varlen", x, "auto")
    (record,) = caplog.records
    assert "attention_varlen runs on torch: head_dim 204" in record.getMessage()


@pytest.mark.parametrize(("variable", "backend"), [("auto", "cpu"), ("torch", "torch")])
def test_report(monkeypatch, variable, backend):
    monkeypatch.setenv(dispatch.VARIABLE, variable)
    facts = report()
    assert (facts["requested"], facts["backend"]) == (variable, backend)
    assert facts["library"].endswith(".so")


def test_the_package_knows_nothing_of_ours():
    program = "import sys, astrai_kernels.cli; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    ours = {name.split(".")[0] for name in ran.stdout.split() if name.startswith("astrai")}
    assert ours == {"astrai_kernels"}
