import pytest
from typer.testing import CliRunner

import astrai
from astrai_data.errors import TokenizerError
from astrai_data.tokenizer import Tokenizer, choose_backend, train_tokenizer

from .toys import TRAINING_TEXT

MESSAGES = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "ok"},
]


@pytest.fixture(scope="module")
def trained():
    return train_tokenizer(iter(TRAINING_TEXT * 3), 400)


def test_the_vocabulary_has_the_asked_size(trained):
    assert len(trained) == 400
    assert [trained.bos_token_id, trained.eos_token_id, trained.pad_token_id] == [0, 1, 2]
    assert trained.stop_ids == [trained.eos_token_id, trained.im_end_token_id]
    assert trained.is_byte_level


def test_the_same_texts_give_the_same_tokenizer(trained):
    again = train_tokenizer(TRAINING_TEXT * 3, 400)
    assert (again.ids_sha256, again.template_sha256) == (trained.ids_sha256, trained.template_sha256)


def test_any_text_comes_back(trained):
    text = "unseen: \U0001f600 \u6f22\u5b57 \x00\r\n\t 2026"
    assert trained.decode(trained.encode(text)) == text
    assert trained.decode(trained.encode("2026")[:1]) == "2", "digits stand alone"


def test_chatml(trained):
    assert trained.apply_chat_template(MESSAGES, tokenize=False) == (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nok<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    chat = trained.encode_chat(MESSAGES, roles=frozenset({"assistant"}))
    [(index, begin, end)] = chat.spans.tolist()
    assert (index, trained.decode(chat.ids[begin:end], skip_special_tokens=False)) == (2, "ok<|im_end|>")
    assert chat.ids[0] == trained.bos_token_id


def test_saved_and_opened_by_either_backend(trained, tmp_path):
    trained.save_pretrained(tmp_path)
    assert choose_backend(tmp_path, "auto", TRAINING_TEXT)[0] == "fastokens"
    assert Tokenizer.from_pretrained(tmp_path, "fastokens").ids_sha256 == trained.ids_sha256


def test_own_special_tokens_and_no_template():
    tokenizer = train_tokenizer(TRAINING_TEXT, 300, special_tokens={"eos_token": "</s>"}, chat_template=None)
    assert (tokenizer.eos_token_id, tokenizer.bos_token_id, tokenizer.chat_template) == (0, None, None)


def test_too_small_a_vocabulary():
    with pytest.raises(TokenizerError, match="at least 261"):
        train_tokenizer(TRAINING_TEXT, 260)


# --- command line --------------------------------------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(astrai.build_app(), ["tokenizer", *map(str, arguments)])


def test_train_and_show(tmp_path):
    source = tmp_path / "texts.jsonl"
    source.write_text('{"text": "the dog and the dog"}\n\n{"text": "the fox"}\n{"other": 1}\n')
    done = run("train", source, "-o", tmp_path / "out", "--vocab-size", 270)
    assert done.exit_code == 0, done.output
    assert "tokens from 2 texts" in done.output
    shown = run("show", tmp_path / "out", "the\u00e9<|im_end|>")
    assert shown.exit_code == 0, shown.output
    assert "'the'" in shown.output
    assert r"b'\xc3'" in shown.output
    assert "  4  '<|im_end|>'" in shown.output
    assert "4 tokens, 15 bytes, 3.75 bytes a token" in shown.output


def test_train_on_another_field_and_on_nothing(tmp_path):
    source = tmp_path / "texts.jsonl"
    source.write_text('{"body": "the dog"}\n')
    assert "from 1 texts" in run("train", source, "-o", tmp_path / "a", "--vocab_size", 270, "--field", "body").output
    failed = run("train", source, "-o", tmp_path / "b", "--vocab-size", 270)
    assert failed.exit_code == 1
    assert "no text to learn from" in str(failed.exception)
    assert not (tmp_path / "b").exists()
