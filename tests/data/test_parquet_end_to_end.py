"""Parquet from end to end: dictionaries, nesting, nulls, other types than wanted, strings that are not UTF-8."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from astrai_data import TokenStore
from astrai_data.errors import RunError

from .fates import CHAT, TEXT
from .fates import run_files as run
from .toys import write_bpe_tokenizer

GOOD = b'{"text":"good"}\n'


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return write_bpe_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def write_parquet(path: Path, columns: dict, **options) -> None:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)


def test_parquet_with_dictionary_nested_and_null_columns(tmp_path, tokenizer):
    texts = ["one", None, "two", "one", " "]
    write_parquet(
        tmp_path / "in" / "a.parquet",
        {
            "text": pa.array(texts).dictionary_encode(),
            "licence": pa.array(["MIT", "MIT", None, "0BSD", "MIT"]).dictionary_encode(),
            "nested": [{"score": 0.5, "tags": ["a", "b"]}, None, {"score": None, "tags": []}, None, None],
            "nothing": pa.nulls(5),
            "source": pa.array(["web", "web", "book", None, "web"]).dictionary_encode(),
        },
        row_group_size=2,
    )
    write_parquet(tmp_path / "in" / "b.parquet", {"text": pa.array([], pa.string())})
    config = TEXT | {
        "data": {"keep_fields": ["licence", "nested", "nothing"]},
        "output": {"domain_key": "source"},
    }
    found = run(tmp_path, tokenizer, {}, config)
    assert found.texts == {("a.parquet", 0): "one", ("a.parquet", 2): "two", ("a.parquet", 3): "one"}
    assert dict(found.filtered) == {"missing_field": 1, "empty_text": 1}
    documents = TokenStore.open(tmp_path / "store").documents()
    assert documents["domain"].to_pylist() == ["web", "book", None]
    assert documents["meta"].to_pylist() == [
        {"licence": "MIT", "nested": '{"score":0.5,"tags":["a","b"]}', "nothing": None},
        {"licence": None, "nested": '{"score":null,"tags":[]}', "nothing": None},
        {"licence": "0BSD", "nested": None, "nothing": None},
    ]


def test_parquet_conversations(tmp_path, tokenizer):
    user, assistant = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}
    conversations = [[user, assistant], None, [], [user, {"role": "assistant", "content": None}], [user, assistant]]
    write_parquet(tmp_path / "in" / "a.parquet", {"messages": conversations})
    found = run(tmp_path, tokenizer, {}, CHAT)
    assert [position for _, position in found.texts] == [0, 4]
    assert "hello<|im_end|>" in found.texts["a.parquet", 0]
    assert dict(found.filtered) == {"missing_field": 1, "empty_conversation": 1}
    [reject] = found.rejects
    assert (reject["position"], reject["reason"]) == (3, "not_a_conversation")
    assert "message 1 (assistant) must have text as content" in reject["message"]


def test_parquet_with_strings_that_are_not_utf8(tmp_path, tokenizer):
    raw = pa.array([b"user", b"us\xe9r", b"user"])
    roles = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    contents = pa.array(["hi", "there", "bye"])
    messages = pa.ListArray.from_arrays(
        [0, 1, 2, 3], pa.StructArray.from_arrays([roles, contents], ["role", "content"])
    )
    write_parquet(tmp_path / "in" / "a.parquet", {"messages": messages})
    found = run(tmp_path, tokenizer, {}, CHAT)
    assert [position for _, position in found.texts] == [0, 2]
    [reject] = found.rejects
    assert (reject["position"], reject["reason"]) == (1, "invalid_utf8")
    assert reject["message"].startswith("field 'messages': byte 2 of a string is 0xe9")
    assert json.loads(reject["raw"]) == {"messages": [{"role": "us\ufffdr", "content": "there"}]}


def test_parquet_text_of_another_type(tmp_path, tokenizer):
    write_parquet(tmp_path / "in" / "a.parquet", {"text": [1, None, 3]})
    found = run(tmp_path, tokenizer, {"b.jsonl": GOOD})
    assert list(found.texts.values()) == ["good"]
    assert [reject["position"] for reject in found.rejects] == [0, 2]
    assert found.rejects[0]["message"] == "field 'text': got int64, wanted a string"


def test_a_column_of_nulls_alone_is_explained(tmp_path, tokenizer):
    write_parquet(tmp_path / "in" / "a.parquet", {"text": pa.nulls(3), "body": ["a", "b", "c"]})
    with pytest.raises(RunError, match="3 filtered missing_field") as caught:
        run(tmp_path, tokenizer, {})
    assert "the pipeline reads 'text'" in str(caught.value)
