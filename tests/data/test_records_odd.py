"""Odd inputs that once went wrong: URLs with escapes, times beyond Python's, names that are nothing."""

import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from astrai_data import Pipeline, PipelineConfig, TokenStore
from astrai_data.errors import AstraiError, InputError

from .running import write_jsonl
from .toys import write_toy_tokenizer

CONFIG = {"version": 2, "input": {"sections": [{"field": "text", "action": "train"}]}}


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return write_toy_tokenizer(tmp_path_factory.mktemp("toy"))


def run(root, toy, source, config=CONFIG):
    Pipeline(PipelineConfig.from_dict(config), [source], root / "store", toy).run()
    return TokenStore.open(root / "store")


@pytest.mark.parametrize("form", ["file://{}", "file://localhost{}"])
def test_file_urls_with_escapes(tmp_path, toy, form):
    write_jsonl(tmp_path / "a b" / "ü.jsonl", [{"text": "ab"}])
    url = form.format(f"{tmp_path}/a%20b/%C3%BC.jsonl")
    assert run(tmp_path, toy, url).num_documents == 1


def test_file_url_of_another_machine(tmp_path, toy):
    with pytest.raises(InputError, match="another machine"):
        run(tmp_path, toy, "file://host/a.jsonl")


def test_no_name_at_all(tmp_path, toy):
    with pytest.raises(AstraiError):
        run(tmp_path, toy, "")


def test_times_beyond_python(tmp_path, toy):
    columns = {
        "text": ["a", "b"],
        "ns": pa.array([1, 2**62], pa.timestamp("ns")),
        "far": pa.array([2**55, -(2**55)], pa.timestamp("ms")),
        "duration": pa.array([1, 2**60], pa.duration("ns")),
    }
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    store = run(tmp_path, toy, tmp_path / "t.parquet", CONFIG | {"data": {"keep_fields": ["ns", "far", "duration"]}})
    meta = store.documents()["meta"].to_pylist()
    assert json.loads(meta[0]["ns"]).endswith("00.000000001")
    assert int(json.loads(meta[1]["duration"])) == 2**60
    assert all(value is not None for entry in meta for value in entry.values())
