"""Tokenizer directories with something wrong in them: errors that name the file, tokens that count as absent."""

import json

import pytest

from astrai_data.build import Builder
from astrai_data.config import PipelineConfig
from astrai_data.errors import PipelineConfigError, TokenizerError, TokenizerNotFoundError
from astrai_data.tokenizer import Tokenizer, train_tokenizer

from .toys import TRAINING_TEXT, write_toy_tokenizer

TEXT = {"version": 2, "input": {"sections": [{"field": "text", "action": "train"}]}}
CHAT = {
    "version": 2,
    "input": {"sections": [{"field": "messages", "action": "$role", "template": True}]},
    "mask": {"assistant": "train"},
}
USER_HI = {"role": "user", "content": "hi"}
FILES = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", ["not UTF-8", "a directory", "a loop of links"])
def test_files_that_cannot_be_read(tmp_path, file, damage):
    path = write_toy_tokenizer(tmp_path) / file
    path.unlink(missing_ok=True)
    if damage == "not UTF-8":
        path.write_bytes(b'{"a": "\xff\xfe"}')
    elif damage == "a directory":
        path.mkdir()
    else:
        path.symlink_to(path)
    with pytest.raises(TokenizerError, match="not UTF-8" if damage == "not UTF-8" else "cannot be read") as caught:
        Tokenizer.from_pretrained(tmp_path)
    assert caught.value.where == path


def test_a_file_for_a_directory(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(TokenizerNotFoundError):
        Tokenizer.from_pretrained(tmp_path / "file")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("tokenizer_config.json", '{"bos_token": "\\ud800"}', "half a character"),
        ("tokenizer_config.json", "[" * 100_000, "not JSON"),
        ("tokenizer.json", "[" * 100_000, "not JSON"),
        ("tokenizer.json", '{"model": {"type": "BPE", "vocab": {}}, "added_tokens": 5}', "no vocabulary"),
    ],
)
def test_odd_json(tmp_path, file, text, message):
    (write_toy_tokenizer(tmp_path) / file).write_text(text)
    with pytest.raises(TokenizerError, match=message):
        Tokenizer.from_pretrained(tmp_path)


def test_a_byte_order_mark_in_the_configuration(tmp_path):
    path = write_toy_tokenizer(tmp_path) / "tokenizer_config.json"
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert Tokenizer.from_pretrained(tmp_path).bos_token_id == 1


# --- named tokens that no vocabulary holds -------------------------------------------------------------------------


@pytest.fixture
def naming(tmp_path):
    def write(**tokens):
        path = write_toy_tokenizer(tmp_path) / "tokenizer_config.json"
        config = json.loads(path.read_text())
        config["special_tokens"] |= tokens
        path.write_text(json.dumps(config))
        return Tokenizer.from_pretrained(tmp_path)

    return write


def test_a_missing_token_counts_as_absent(naming, tmp_path):
    tokenizer = naming(eos_token="<gone>", mask_token="<away>")
    assert tokenizer.missing_tokens == {"eos_token": "<gone>", "mask_token": "<away>"}
    assert tokenizer.special_tokens == {"bos_token": "[B]", "pad_token": "[P]"}
    assert (tokenizer.eos_token_id, tokenizer.stop_ids) == (None, [])
    tokenizer.chat_template = "{{ bos_token }}{{ eos_token }}!"
    assert tokenizer.apply_chat_template([USER_HI], tokenize=False) == "[B]!"
    assert tokenizer.with_backend("tokenizers").apply_chat_template([USER_HI], tokenize=False) == "[B]!"
    tokenizer.save_pretrained(tmp_path / "saved")
    assert Tokenizer.from_pretrained(tmp_path / "saved").missing_tokens == tokenizer.missing_tokens
    assert naming(eos_token="[E]", mask_token="[P]").missing_tokens == {}


def test_the_builder_warns_of_a_missing_token(naming):
    tokenizer = naming(mask_token="<away>")
    [warning] = Builder(PipelineConfig.from_dict(TEXT), tokenizer).warnings
    assert "'<away>' as mask_token" in warning


def test_append_eos_with_a_missing_eos(naming):
    tokenizer = naming(eos_token="<gone>")
    warnings = Builder(PipelineConfig.from_dict(TEXT), tokenizer).warnings
    assert any("documents end without one" in warning for warning in warnings)
    asked = TEXT | {"input": {"sections": [{"field": "text", "action": "train", "append_eos": True}]}}
    with pytest.raises(PipelineConfigError, match="'<gone>', which is not in the vocabulary"):
        Builder(PipelineConfig.from_dict(asked), tokenizer)


def test_a_chat_with_a_missing_bos(naming):
    tokenizer = naming(bos_token="<gone>")
    with pytest.raises(TokenizerError, match="bos_token that chats begin with"):
        Builder(PipelineConfig.from_dict(CHAT), tokenizer)
    assert len(Builder(PipelineConfig.from_dict(TEXT), tokenizer).warnings) == 1
    assert tokenizer.encode_chat([USER_HI]).num_added == 0


# --- training ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vocab_size", [2**24 + 1, 10**12, 10**40])
def test_a_vocabulary_beyond_all_memory(vocab_size):
    with pytest.raises(TokenizerError, match="too large"):
        train_tokenizer(TRAINING_TEXT, vocab_size)


def test_the_largest_vocabulary_can_be_asked_for():
    assert len(train_tokenizer(TRAINING_TEXT, 2**24)) < 1000
