"""What the doctor measures: memory, matrix products, room on disks."""

from pathlib import Path

import numpy
import psutil
import pytest
import torch

from astrai_serve import machine
from astrai_serve.machine import Fact


def test_memory_copy():
    available = psutil.virtual_memory().available
    fact = machine._copy_rate(numpy, available)
    assert fact.value > 0
    assert "1 thread" in fact.note
    assert machine._copy_rate(numpy, 1000).value is None


@pytest.mark.parametrize(("float32", "bfloat16", "advised"), [(10, 5, True), (5, 10, False), (None, 5, False)])
def test_slow_bfloat16_is_told(float32, bfloat16, advised):
    fact = machine._with_verdict("cpu", Fact("float32", float32), Fact("bfloat16", bfloat16))
    assert fact.value == bfloat16
    assert bool(fact.advice) == advised


def test_a_dtype_the_device_lacks_is_not_measured():
    fact = machine._matmul_rate(torch, "meta", "float32")
    assert fact.value is None
    assert fact.note.startswith("not measured")


def test_room(tmp_path, monkeypatch):
    assert machine._room("here", lambda: tmp_path / "not" / "yet").unit == "GiB free"
    monkeypatch.setattr(machine, "LITTLE_ROOM_BYTES", 2**80)
    assert "MiB are free" in machine._room("here", lambda: tmp_path).advice

    def gone() -> Path:
        raise FileNotFoundError(2, "No such file or directory")

    assert machine._room("here", gone).advice == "the here cannot be used"
