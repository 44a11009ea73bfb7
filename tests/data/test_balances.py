"""The four balances close, and masks, segments and ids align, for the shipped pipelines on any mix of records."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from astrai_data import Pipeline, PipelineConfig, Tokenizer, TokenStore
from astrai_data.ledger import Ledger

from .toys import CHATML_GENERATION_TEMPLATE, write_bpe_tokenizer

WORDS = st.text(st.characters(codec="utf-8"), max_size=40)
VALUES = st.one_of(WORDS, WORDS, st.just("many words " * 400), st.none(), st.integers(), st.just("  "))
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": st.one_of(WORDS, st.none())}
)
CHAT = st.one_of(st.lists(MESSAGE, max_size=5), WORDS, st.none())
BROKEN = st.sampled_from([b"{", b"[]", b"7", b'{"text": "\xff"}', b'{"a": 1}{"a": 2}', b"", b'"text"', b"\x00"])
FIELDS = {
    "pretrain": {"text": VALUES},
    "pretrain-code": {"content": VALUES, "license": VALUES, "path": VALUES},
    "sft-chat": {"messages": CHAT},
    "sft-instruction": {"prompt": VALUES, "response": VALUES},
    "demo": {"text": VALUES},
}
GOOD = {
    "text": "surely kept",
    "content": "x = 1",
    "prompt": "say",
    "response": "this",
    "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ok"}],
}


@pytest.fixture(scope="module", params=["prefix renders", "generation marks"])
def tokenizer(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("tok")
    if request.param == "generation marks":
        return write_bpe_tokenizer(root, template=CHATML_GENERATION_TEMPLATE)
    return write_bpe_tokenizer(root)


def lines_of(name: str) -> st.SearchStrategy[list[bytes]]:
    record = st.fixed_dictionaries({}, optional=FIELDS[name]).map(lambda r: json.dumps(r).encode())
    return st.lists(st.one_of(record, record, BROKEN), max_size=15)


@pytest.mark.parametrize("name", FIELDS)
@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_shipped_pipelines(tmp_path_factory, tokenizer, name, data):
    root = tmp_path_factory.mktemp("run")
    lines = data.draw(lines_of(name))
    (root / "in.jsonl").write_bytes(b"\n".join([*lines, json.dumps(GOOD).encode()]))
    changes = {"run.max_reject_ratio": 1.0, "preprocessing.max_packed_len": data.draw(st.sampled_from([64, 256, 1024]))}
    changes["tokenizer"] = {"path": str(tokenizer), "backend": "tokenizers"}
    config = PipelineConfig.from_file(name).with_values(changes)
    manifest = Pipeline(config, [root / "in.jsonl"], root / "store").run()
    store = TokenStore.open(root / "store", split=None)
    ledger = Ledger.from_rows([list(row.values()) for row in store.table("ledger").to_pylist()])
    ledger.check()
    assert ledger.total("records", "read") == sum(bool(line.strip()) for line in lines) + 1
    assert ledger.total("records", "kept") == store.num_documents == manifest.totals["num_documents"] >= 1
    assert ledger.total("records", "rejected") == len(list(store.rejects()))
    assert ledger.total("tokens", "trained") == manifest.totals["num_trained"]
    assert ledger.total("slots", "tokens") == store.num_tokens
    assert store.verify() == []
    check_alignment(store, Tokenizer.from_pretrained(tokenizer), config.preprocessing.max_packed_len)


def check_alignment(store: TokenStore, tokenizer: Tokenizer, capacity: int) -> None:
    trained = np.array([rule.trained for rule in store.mask_rules])
    for number in range(len(store.shards)):
        rows, segments = store.tokens(number), store.segments(number)
        assert (np.bincount(segments.row, segments.length, len(rows)) == rows.lengths).all()
        assert rows.lengths.max() <= capacity
        runs = np.repeat(np.arange(len(segments)), segments.mask_lengths.lengths)
        assert (np.bincount(runs, segments.mask_lengths.flat, len(segments)) == segments.length).all()
        assert rows.flat.max(initial=0) < len(tokenizer)
        assert segments.num_trained(trained).sum() <= len(rows.flat) - len(segments)


@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=60), min_size=1, max_size=8))
def test_every_text_comes_back_byte_for_byte(tmp_path_factory, tokenizer, texts):
    root = tmp_path_factory.mktemp("texts")
    texts = [text for text in texts if text.strip()] or ["x"]
    (root / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    changes = {"preprocessing.packing_strategy": "simple", "input.sections": [{"field": "text", "action": "train"}]}
    config = PipelineConfig.from_file("pretrain").with_values(changes | {"run.shuffle_rows": False})
    config = config.with_values({"preprocessing.over_long": "split"})
    Pipeline(config, [root / "in.jsonl"], root / "store", tokenizer).run()
    store = TokenStore.open(root / "store")
    decoded = store.tokenizer().decode_batch(store.tokens(0), skip_special_tokens=False)
    end = store.tokenizer().eos_token
    assert [text.removesuffix(end) for text in decoded] == texts
