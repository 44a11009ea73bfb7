"""Records to documents: the acceptance cases of the mask builders, on the toy tokenizers."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astrai_data.build import Builder
from astrai_data.build.text import read_texts
from astrai_data.config import PipelineConfig
from astrai_data.errors import PipelineConfigError
from astrai_data.tokenizer import Tokenizer

from .building import build
from .toys import write_bpe_tokenizer, write_toy_tokenizer

CHAT = {
    "input": {"sections": [{"field": "messages", "action": "$role", "template": True}]},
    "mask": {"assistant": "train"},
}
TEXT = {"input": {"sections": [{"field": "text", "action": "train"}]}, "preprocessing": {"min_chars": 0}}
PAIR = {"input": {"sections": [{"field": "p", "action": "mask"}, {"field": "r", "action": "train"}]}}
USER_HI = {"role": "user", "content": "hi"}
OK = {"role": "assistant", "content": "ok"}


@pytest.fixture(scope="module")
def toys(tmp_path_factory):
    root = tmp_path_factory.mktemp("toys")
    return {kind: write_toy_tokenizer(root / kind, kind) for kind in ("C", "C+", "C0")}


def messages(*parts: tuple[str, str]) -> dict:
    return {"messages": [{"role": role, "content": content} for role, content in parts]}


def codes(text: str) -> list[int]:
    return [ord(character) for character in text]


def sections(*entries: dict) -> dict:
    return {"input": {"sections": list(entries)}, "mask": {"assistant": "train"}, "preprocessing": {"min_chars": 0}}


CASES = {
    "4 chat": ("C", CHAT, [{"messages": [USER_HI, OK]}], [([1, *codes("<u>hi|<a>ok|")], [0] * 7 + [1] * 6)]),
    "5 chat without BOS": ("C0", CHAT, [{"messages": [USER_HI, OK]}], [(codes("<u>hi|<a>ok|"), [0] * 6 + [1] * 6)]),
    "6 literal train": (
        "C",
        sections({"field": "messages", "action": "train", "template": True}),
        [messages(("user", "u"))],
        [([1, 60, 117, 62, 117, 124], [0, 1, 1, 1, 1, 1])],
    ),
    "6 literal train without BOS": (
        "C0",
        sections({"field": "messages", "action": "train", "template": True}),
        [messages(("user", "u"))],
        [([60, 117, 62, 117, 124], [1] * 5)],
    ),
    "7 nothing to render": ("C", CHAT, [{"messages": []}, {}, {"messages": "hi"}], []),
    "7 one token": ("C", CHAT | {"preprocessing": {"max_seq_len": 1}}, [{"messages": [USER_HI]}], []),
    "8 instruction": ("C+", PAIR, [{"p": "ab", "r": "cd"}], [([1, 97, 98, 99, 100], [0, 0, 0, 1, 1])]),
    "8 special tokens on the answer": (
        "C+",
        sections(
            {"field": "p", "action": "mask", "add_special_tokens": False},
            {"field": "r", "action": "train", "add_special_tokens": True},
        ),
        [{"p": "ab", "r": "cd"}],
        [([97, 98, 1, 99, 100], [0, 0, 1, 1, 1])],
    ),
    "9 one of two": (
        "C+",
        PAIR,
        [{"p": "", "r": "e"}, {"p": "f", "r": ""}],
        [([1, 101], [1, 1]), ([1, 102], [0, 0])],
    ),
    "10 max_seq_len": (
        "C+",
        PAIR | {"preprocessing": {"max_seq_len": 3}},
        [{"p": "abcd", "r": "e"}],
        [([1, 97, 98], [0, 0, 0])],
    ),
    "11 min_chars": (
        "C",
        TEXT | {"preprocessing": {"min_chars": 2}},
        [{"text": "abc"}, {"text": "z"}, {"text": "  "}, {}],
        [(codes("abc"), [1] * 3)],
    ),
    "11 too short": ("C", TEXT | {"preprocessing": {"min_chars": 100}}, [{"text": "short"}], []),
    "11 by section": (
        "C",
        sections({"field": "a", "action": "train"}, {"field": "b", "action": "train"})
        | {"preprocessing": {"min_chars": 3}},
        [{"a": "ab", "b": "cdef"}],
        [(codes("cdef"), [1] * 4)],
    ),
    "13 one BOS": (
        "C+",
        sections(
            {"field": "s", "action": "mask"},
            {"field": "m", "action": "$role", "template": True},
            {"field": "t", "action": "train"},
        ),
        [{"s": "SS", "m": [{"role": "assistant", "content": "u"}], "t": "TT"}],
        [([1, 83, 83, 60, 97, 62, 117, 124, 84, 84], [0, 0, 0, 1, 1, 1, 1, 1, 1, 1])],
    ),
    "22 empty sources": (
        "C",
        TEXT | {"input": {"sources": {}, **TEXT["input"]}},
        [{"text": "ab"}],
        [([97, 98], [1, 1])],
    ),
    "24 null": ("C", TEXT, [{"text": None}], []),
    "38 both orders": (
        "C0",
        CHAT,
        [{"messages": [OK]}, {"messages": [USER_HI, OK]}],
        [(codes("<a>ok|"), [1] * 6), (codes("<u>hi|<a>ok|"), [0] * 6 + [1] * 6)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_acceptance(toys, name):
    kind, config, records, expected = CASES[name]
    rows, _, ledger = build(config, toys[kind], records)
    assert rows == expected
    assert ledger.total("records", "read") == len(records)
    assert ledger.total("records", "kept") == len(expected)


@pytest.mark.parametrize(("length", "kept"), [(49, 0), (50, 1), (2_000_000, 1), (2_000_001, 0)])
def test_41_bounds_of_length_are_inclusive(toys, length, kept):
    config = PipelineConfig.from_dict({"input": TEXT["input"]})  # version 1: 50 to 2,000,000 characters
    read = read_texts(config, pa.array(["x" * length], pa.large_string()), length_limits=True)
    assert read.present.tolist() == [bool(kept)]
    short = TEXT | {"preprocessing": {"min_chars": 5}}
    assert build(short, toys["C"], [{"text": "hi"}])[0] == []


def test_completion_scope_trains_content_and_end_of_turn_only(toys):
    config = CHAT | {"version": 2}
    [(ids, mask)], _, _ = build(config, toys["C"], [{"messages": [USER_HI, OK, USER_HI, OK]}])
    trained = "".join(chr(i) if flag else "." for i, flag in zip(ids, mask, strict=True))
    assert trained == "." * 10 + "ok|" + "." * 9 + "ok|"


def test_last_turn_only(toys):
    config = CHAT | {"version": 2, "input": CHAT["input"] | {"train_on": "last"}}
    [(_, mask)], _, _ = build(config, toys["C"], [{"messages": [USER_HI, OK, USER_HI, OK]}])
    assert sum(mask) == 3
    assert mask[-3:] == [1, 1, 1]


@pytest.mark.parametrize(("key", "value", "domain"), [("k", "w", "w"), ("k", 3, "web"), ("k", None, "web")])
def test_domain(toys, key, value, domain):
    config = TEXT | {"output": {"domain_key": key}}
    _, built, ledger = build(config, toys["C"], [{"text": "ab", key: value}], domain="web")
    assert [built.documents.domains[d] for d in built.documents.domain] == [domain]
    assert ledger.to_rows()[0][1] == domain


def test_eos_ends_a_document_once(toys):
    config = {"version": 2, "input": TEXT["input"]}
    rows, _, _ = build(config, toys["C"], [{"text": "ab"}, {"text": "c[E]"}])
    assert rows[0] == ([97, 98, 2], [1, 1, 1])
    assert rows[1][0] == [99, *codes("[E]"), 2]  # the string in the text is text, not the token
    parsed = config | {"input": TEXT["input"] | {"special_tokens": "parse"}}
    assert build(parsed, toys["C"], [{"text": "c[E]"}])[0] == [([99, 2], [1, 1])]


@pytest.mark.parametrize("asking", [(True, False), (False, True), (True, True)])
def test_eos_follows_the_last_trained_text_whichever_section_asks(toys, asking):
    """All three have one configuration hash."""
    first, last = (
        {"field": name, "action": "train", "append_eos": eos} for name, eos in zip("pr", asking, strict=True)
    )
    rows, _, _ = build(sections(first, last), toys["C"], [{"p": "a", "r": "b"}, {"p": "a"}, {"r": "b"}])
    assert [ids for ids, _ in rows] == [[97, 98, 2], [97, 2], [98, 2]]


def test_a_chat_cut_to_one_token_has_nothing_to_train(toys):
    config = CHAT | {"version": 2, "preprocessing": {"max_packed_len": 1, "over_long": "truncate"}}
    rows, _, ledger = build(config, toys["C"], [{"messages": [USER_HI, OK]}])
    assert rows == []
    assert ledger.total("records", "filtered", "nothing_to_train") == 1


def test_eos_comes_before_max_seq_len(toys):
    config = {"version": 2, "input": TEXT["input"], "preprocessing": {"max_seq_len": 2}}
    assert build(config, toys["C"], [{"text": "ab"}])[0] == [([97, 98], [1, 1])]


def test_append_eos_without_an_eos_token(tmp_path):
    directory = write_bpe_tokenizer(tmp_path, specials={"pad_token": "<pad>"}, template=None)
    tokenizer = Tokenizer.from_pretrained(directory)
    by_default = {"version": 2, "input": TEXT["input"]}
    assert "no EOS" in Builder(PipelineConfig.from_dict(by_default), tokenizer).warnings[0]
    asked = sections({"field": "text", "action": "train", "append_eos": True})
    with pytest.raises(PipelineConfigError, match="EOS"):
        Builder(PipelineConfig.from_dict(asked), tokenizer)


@pytest.mark.parametrize(
    ("over_long", "mode", "expected"),
    [
        ("truncate", "keep_start", [codes("abc"), codes("d")]),
        ("truncate", "keep_end", [codes("cde"), codes("d")]),
        ("drop", "keep_start", [codes("d")]),
        ("split", "keep_start", [codes("abcde"), codes("d")]),
    ],
)
def test_over_long(toys, over_long, mode, expected):
    config = TEXT | {
        "preprocessing": {
            "min_chars": 0,
            "max_seq_len": None,
            "max_packed_len": 3,
            "packing_strategy": "bfd",
            "over_long": over_long,
            "truncation_mode": mode,
        }
    }
    rows, built, ledger = build(config, toys["C0"], [{"text": "abcde"}, {"text": "d"}])
    assert [ids for ids, _ in rows] == expected
    kept = sum(len(ids) for ids in expected)
    assert kept + ledger.total("tokens", "truncated") + ledger.total("tokens", "dropped") == 6
    assert built.documents.token_start.tolist() == [2 if mode == "keep_end" else 0] * (len(expected) - 1) + [0]


def test_rows_with_nothing_to_train_are_dropped_and_counted(toys):
    config = PAIR | {"preprocessing": {"max_seq_len": 3, "min_chars": 0, "drop_untrained": True}}
    rows, _, ledger = build(config, toys["C0"], [{"p": "abc", "r": "de"}, {"p": "f", "r": "gh"}])
    assert [ids for ids, _ in rows] == [codes("fgh")]
    assert ledger.total("records", "filtered", "nothing_to_train") == 1


def test_a_string_for_a_conversation_is_rejected_with_a_reason(toys):
    _, built, ledger = build(CHAT, toys["C"], [{"messages": "hi"}, {"messages": [USER_HI, OK]}])
    assert list(built.refused) == [0]
    assert ledger.total("records", "rejected") == 1
    assert ledger.total("records", "kept") == 1


TEXTS = st.one_of(st.none(), st.text(st.characters(codec="utf-8", max_codepoint=1000), max_size=12))
RECORDS = st.lists(st.fixed_dictionaries({}, optional={"p": TEXTS, "r": TEXTS}), max_size=12)


@settings(deadline=None, max_examples=60)
@given(records=RECORDS, most=st.integers(1, 12), eos=st.booleans(), drop=st.booleans())
def test_batches_equal_single_records_and_balance(toys, records, most, eos, drop):
    config = sections({"field": "p", "action": "mask"}, {"field": "r", "action": "train", "append_eos": eos}) | {
        "preprocessing": {"max_seq_len": most, "min_chars": 0, "drop_untrained": drop}
    }
    together, _, ledger = build(config, toys["C+"], records)
    alone = [row for record in records for row in build(config, toys["C+"], [record])[0]]
    assert together == alone
    kept = sum(len(ids) for ids, _ in together)
    lost = ledger.total("tokens", "truncated") + ledger.total("tokens", "dropped")
    assert ledger.total("tokens", "from_text") + ledger.total("tokens", "added") == kept + lost
    read = ledger.total("text_bytes", "read")
    assert read == ledger.total("text_bytes", "kept") + ledger.total("text_bytes", "dropped")
    assert all(len(ids) == len(mask) for ids, mask in together)


TURNS = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system"]), "content": st.text("ab [E]", max_size=6)}
    ),
    max_size=5,
)


@settings(deadline=None, max_examples=40)
@given(records=st.lists(st.fixed_dictionaries({"messages": TURNS}), max_size=6), version=st.sampled_from([1, 2]))
def test_chat_batches_equal_single_records(toys, records, version):
    config = CHAT | {"version": version, "preprocessing": {"min_chars": 0}}
    together, built, _ = build(config, toys["C"], records)
    alone = [row for record in records for row in build(config, toys["C"], [record])[0]]
    assert together == alone
    for ids, mask in together:
        assert len(ids) == len(mask)
    assert len(together) + len(built.refused) <= len(records)


def test_text_hash_is_of_the_text_alone(toys):
    _, built, _ = build(TEXT, toys["C"], [{"text": "same"}, {"text": "same"}, {"text": "other"}])
    hashes = built.documents.text_hash
    first, second, third = hashes[:16], hashes[16:32], hashes[32:48]
    assert first == second != third
    assert len(hashes) == 48


def test_validation_is_drawn_by_text(toys):
    texts = [{"text": f"document {i % 50}"} for i in range(100)]
    config = TEXT | {"run": {"validation_fraction": 0.3}}
    _, built, _ = build(config, toys["C"], texts)
    side = built.documents.validation
    assert np.array_equal(side[:50], side[50:])
    assert 5 < side[:50].sum() < 25
