"""Safetensors files: every dtype and shape comes back; nothing damaged is believed."""

import json
import struct

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from astrai_train.models import ModelError
from astrai_train.models.safetensors_file import SafetensorsFile, write_safetensors

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8": torch.float8_e4m3fn,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


def test_every_dtype_and_shape(tmp_path):
    tensors = {
        f"{name}.{len(shape)}": torch.randint(0, 2, shape).to(dtype)
        for name, dtype in DTYPES.items()
        for shape in [(), (3,), (0, 4), (2, 3, 5)]
    }
    write_safetensors(tmp_path / "a.safetensors", tensors, {"step": "3"})
    file = SafetensorsFile(tmp_path / "a.safetensors")
    assert file.metadata == {"step": "3"}
    assert file.names == sorted(tensors)
    for name, tensor in file.tensors():
        assert (tensor.dtype, tensor.shape) == (tensors[name].dtype, tensors[name].shape)
        assert torch.equal(tensor.to(torch.float64), tensors[name].to(torch.float64))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(min_size=1, max_size=8), hnp.arrays(np.float32, hnp.array_shapes(min_side=0))))
def test_what_is_written_is_read(tmp_path, arrays):
    arrays.pop("__metadata__", None)  # a name that the format keeps for itself
    path = tmp_path / "b.safetensors"
    write_safetensors(path, {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}, {})
    read = dict(SafetensorsFile(path).tensors())
    assert read.keys() == arrays.keys()
    assert all(read[name].numpy().tobytes() == array.tobytes() for name, array in arrays.items())


def test_strided_and_unaligned(tmp_path):
    tensor = torch.arange(12.0).view(3, 4)
    write_safetensors(tmp_path / "c.safetensors", {"t": tensor.T}, {})
    assert torch.equal(SafetensorsFile(tmp_path / "c.safetensors").tensor("t"), tensor.T)
    header = b'{"t":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}}'  # begins at a byte that is no multiple of 8
    assert len(header) % 8 != 0
    values = torch.tensor([1.5, -2.0], dtype=torch.float64)
    (tmp_path / "d.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + values.numpy().tobytes())
    assert torch.equal(SafetensorsFile(tmp_path / "d.safetensors").tensor("t"), values)


def test_a_tensor_is_a_copy_that_outlives_the_file(tmp_path):
    path = tmp_path / "e.safetensors"
    write_safetensors(path, {"t": torch.ones(4)}, {})
    tensor = SafetensorsFile(path).tensor("t")
    tensor.add_(1)
    assert SafetensorsFile(path).tensor("t").tolist() == [1] * 4
    path.write_bytes(b"")
    assert tensor.tolist() == [2] * 4


def file_of(header, data=b"\0" * 16):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype="F32", shape=(4,), offsets=(0, 16)):
    return {"t": {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}}


DAMAGED = {
    "empty": b"",
    "four bytes": b"1234",
    "huge header": struct.pack("<Q", 2**60) + b"{}",
    "no JSON": file_of(b"{nonsense"),
    "a list": file_of(b"[]"),
    "cut short": file_of(entry(), b"\0" * 8),
    "beyond the end": file_of(entry(offsets=(8, 32))),
    "negative offset": file_of(entry(offsets=(-8, 8))),
    "another shape": file_of(entry(shape=(5,))),
    "negative shape": file_of(entry(shape=(-4,))),
    "unknown dtype": file_of(entry(dtype="F31")),
    "no offsets": file_of({"t": {"dtype": "F32"}}),
    "no object": file_of({"t": 3}),
    "overflow": file_of(entry(shape=(2**40, 2**40))),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage(tmp_path, name):
    path = tmp_path / "f.safetensors"
    path.write_bytes(DAMAGED[name])
    with pytest.raises(ModelError, match="damaged") as caught:
        SafetensorsFile(path)
    assert str(path) in str(caught.value)


def test_a_dtype_that_the_format_does_not_know(tmp_path):
    with pytest.raises(ModelError, match="cannot hold"):
        write_safetensors(tmp_path / "g.safetensors", {"t": torch.ones(2, dtype=torch.complex128)}, {})
    assert not list(tmp_path.iterdir())
