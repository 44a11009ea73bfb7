import json

import numpy as np
import pytest
import tokenizers as tk
from hypothesis import given, settings
from hypothesis import strategies as st

from astrai_data.errors import TokenizerError
from astrai_data.ragged import Ragged
from astrai_data.tokenizer import Tokenizer, check_backend, choose_backend
from astrai_data.tokenizer.adversarial import adversarial_texts

from .toys import TRAINING_TEXT, write_bpe_tokenizer, write_toy_tokenizer

SPECIALS = ["<|im_start|>", "<|im_end|>", "<|eos|>", "<|im_", "_end|>", "<|"]
PIECES = st.one_of(st.text(max_size=12), st.sampled_from([*SPECIALS, *TRAINING_TEXT, " ", "\n", "\r\n", "  ", "123"]))
TEXTS = st.lists(st.lists(PIECES, max_size=6).map("".join), max_size=6)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return write_bpe_tokenizer(tmp_path_factory.mktemp("bpe"))


@pytest.fixture(scope="module")
def truth(directory):
    return Tokenizer.from_pretrained(directory)


@pytest.fixture(scope="module")
def fast(directory):
    return Tokenizer.from_pretrained(directory, "fastokens")


def rows_of(tokenizer, texts, special_tokens):
    return [row.tolist() for row in Ragged(*tokenizer.encode_batch(texts, special_tokens=special_tokens))]


@settings(max_examples=300, deadline=None)
@given(texts=TEXTS, special_tokens=st.sampled_from(["parse", "text"]))
def test_both_backends_agree(truth, fast, texts, special_tokens):
    assert rows_of(fast, texts, special_tokens) == rows_of(truth, texts, special_tokens)


@settings(max_examples=300, deadline=None)
@given(texts=TEXTS, special_tokens=st.sampled_from(["parse", "text"]))
def test_every_text_comes_back_byte_for_byte(fast, texts, special_tokens):
    rows = Ragged(*fast.encode_batch(texts, special_tokens=special_tokens))
    assert fast.decode_batch(rows) == texts
    assert [row.tobytes() for row in fast.token_bytes.take(rows.values.astype(np.int64))] == [
        fast.token_bytes[token_id].tobytes() for token_id in rows.values
    ]


@settings(max_examples=200, deadline=None)
@given(data=st.data(), skip=st.booleans())
def test_decoding_equals_the_library(truth, directory, data, skip):
    rows = data.draw(st.lists(st.lists(st.integers(0, truth.max_id), max_size=12), max_size=5))
    library = tk.Tokenizer.from_file(str(directory / "tokenizer.json"))
    expected = [library.decode(row, skip_special_tokens=skip) for row in rows]
    assert truth.decode_batch(Ragged.from_rows(rows, np.int32), skip_special_tokens=skip) == expected


def test_decoding_rows_of_a_slice(truth):
    rows = Ragged(*truth.encode_batch(["the dog", "the fox", "", "in 1987"]))
    part = Ragged(rows.values, rows.offsets[1:4])
    assert truth.decode_batch(part) == ["the fox", ""]
    assert truth.decode_batch(part, skip_special_tokens=True) == ["the fox", ""]
    assert truth.decode_batch(Ragged.from_rows([], np.int32)) == []


def test_added_tokens_stand_for_their_own_text(directory, tmp_path):
    library = tk.Tokenizer.from_file(str(directory / "tokenizer.json"))
    library.add_tokens(["é é", "\u2581x"])
    library.save(str(tmp_path / "tokenizer.json"))
    for backend in ("tokenizers", "fastokens"):
        tokenizer = Tokenizer.from_pretrained(tmp_path, backend)
        text = "aé éb\u2581xc"
        assert len(tokenizer.encode(text)) == 5
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_token_outside_the_byte_alphabet_is_itself(directory, tmp_path):
    definition = json.loads((directory / "tokenizer.json").read_text())
    definition["model"]["vocab"] |= {"a b": 512, "\u6f22": 513, "gap": 515}
    (tmp_path / "tokenizer.json").write_text(json.dumps(definition))
    tokenizer = Tokenizer.from_pretrained(tmp_path)
    assert tokenizer.decode([512, 513, 514, 515]) == "a b\u6f22gap"


@pytest.mark.parametrize("backend", ["tokenizers", "fastokens"])
@pytest.mark.parametrize("bad", ["\ud800", "a\udfffb", None, 5])
def test_texts_that_are_none(directory, backend, bad):
    tokenizer = Tokenizer.from_pretrained(directory, backend)
    with pytest.raises(TokenizerError, match="cannot be encoded"):
        tokenizer.encode_batch(["fine", bad])


def test_an_unknown_backend(directory):
    with pytest.raises(TokenizerError, match="did you mean 'fastokens'"):
        Tokenizer.from_pretrained(directory, "fasttokens")


def test_with_backend_keeps_the_template(truth):
    changed = truth.with_backend("tokenizers")
    changed.chat_template = "other"
    assert changed.with_backend("fastokens").chat_template.template == "other"
    assert truth.chat_template.template != "other"


# --- choosing ------------------------------------------------------------------------------------------------------


def test_auto_takes_the_fast_one_where_it_is_equal(truth):
    chosen, record = choose_backend(truth, "auto", TRAINING_TEXT)
    assert chosen.backend == record["backend"] == "fastokens"
    assert record["check"]["equal"]
    assert record["check"]["num_texts"] > len(TRAINING_TEXT)
    assert set(record["versions"]) == {"tokenizers", "fastokens"}


@pytest.mark.parametrize(
    ("model", "pre_tokenizer", "reason"),
    [
        (tk.models.Unigram([("<unk>", 0.0), ("\u2581a", -1.5)], 0, False), tk.pre_tokenizers.Metaspace(), "Metaspace"),
        (tk.models.WordLevel({"a": 0}, unk_token="a"), tk.pre_tokenizers.ByteLevel(), "WordLevel"),
    ],
)
def test_what_the_fast_one_refuses_runs_on_the_other(tmp_path, model, pre_tokenizer, reason):
    library = tk.Tokenizer(model)
    library.pre_tokenizer = pre_tokenizer
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.from_pretrained(tmp_path)
    chosen, record = choose_backend(tokenizer, "auto", ["a"])
    assert chosen.backend == "tokenizers"
    assert reason in record["reason"]
    with pytest.raises(TokenizerError, match=reason):
        choose_backend(tokenizer, "fastokens", ["a"])
    with pytest.raises(TokenizerError, match=reason):
        Tokenizer.from_pretrained(tmp_path, "fastokens")


def test_asking_for_the_truth_checks_nothing(truth):
    chosen, record = choose_backend(truth.with_backend("fastokens"), "tokenizers", ["a"])
    assert (chosen.backend, record["reason"]) == ("tokenizers", "asked for")
    assert "check" not in record


def test_of_a_long_text_only_the_beginning_is_tried(truth):
    check = check_backend(truth, ["the dog " * 100_000, "x"], budget_s=60.0)
    assert check.equal
    assert 100_000 < check.num_bytes < 300_000


def test_an_unknown_request(truth):
    with pytest.raises(TokenizerError, match="unknown tokenizer backend"):
        choose_backend(truth, "quick", [])


def test_no_time_still_means_the_adversarial_strings(truth):
    check = check_backend(truth, ["never reached"] * 10_000, budget_s=0.0)
    hostile = len(adversarial_texts(truth.added_tokens))
    assert check.equal
    assert hostile <= check.num_texts < hostile + 200


def test_a_difference_is_found_and_named(truth, monkeypatch):
    from astrai_data.tokenizer import backends

    real = backends.FastokensBackend.encode_batch

    def drop_digits(self, texts, special_tokens):
        return real(self, [text.replace("7", "8") for text in texts], special_tokens)

    monkeypatch.setattr(backends.FastokensBackend, "encode_batch", drop_digits)
    chosen, record = choose_backend(truth, "auto", [])
    assert chosen.backend == "tokenizers"
    assert "differs from tokenizers on '12345678901234567890'" in record["reason"]


def test_the_toy_runs_on_tokenizers(tmp_path):
    toy = Tokenizer.from_pretrained(write_toy_tokenizer(tmp_path))
    assert choose_backend(toy, "auto", ["abc"])[0].backend == "tokenizers"
