import gzip
import json

import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

import astrai
from astrai_data.errors import InputError, TokenizerError
from astrai_data.inspect.texts import Texts
from astrai_data.tokenizer import Tokenizer, choose_backend, train_tokenizer

from .running import write_jsonl
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
    assert choose_backend(Tokenizer.from_pretrained(tmp_path), "auto", TRAINING_TEXT)[0].backend == "fastokens"
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
    assert "tokens from 2 texts, 26 bytes" in done.stdout
    assert "1 of 3 records has no field 'text'; they have: other\n" in done.stderr
    shown = run("show", tmp_path / "out", "the\u00e9<|im_end|>")
    assert shown.exit_code == 0, shown.output
    assert "'the'" in shown.output
    assert r"b'\xc3'" in shown.output
    assert "  4  '<|im_end|>'" in shown.output
    assert "4 tokens, 15 bytes, 3.75 bytes a token" in shown.output


def test_train_on_another_field_and_on_nothing(tmp_path):
    source = tmp_path / "texts.jsonl"
    source.write_text('{"body": "the dog"}\n')
    done = run("train", source, "-o", tmp_path / "a", "--vocab_size", 270, "--field", "body")
    assert "261 tokens from 1 text, 7 bytes" in done.stdout
    assert "270 tokens were asked for, 261 came out: no other pair" in done.stderr
    failed = run("train", source, "-o", tmp_path / "b", "--vocab-size", 270)
    assert failed.exit_code == 1
    assert isinstance(failed.exception, InputError)
    assert "no text to learn from" in str(failed.exception)
    assert failed.exception.got == "1 of 1 record has no field 'text'; they have: body; try --field body"
    assert not (tmp_path / "b").exists()


def write_records(path, records) -> None:
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(records), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(records))
    else:
        lines = "".join(json.dumps(record) + "\n" for record in records).encode()
        path.write_bytes(gzip.compress(lines) if path.suffix == ".gz" else lines)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.json", "a.parquet"])
def test_records_without_the_field_are_counted(tmp_path, name):
    records = [{"content": f"the dog number {i}", "stars": i, "text": None} for i in range(20)]
    write_records(tmp_path / name, [*records, {"content": "x", "stars": 1, "text": "the dog"}])
    done = run("train", tmp_path / name, "-o", tmp_path / "out", "--vocab-size", 261)
    assert done.exit_code == 0, done.output
    told = "warning: 20 of 21 records have null in 'text'; they have: content, stars, text; try --field content\n"
    assert done.stderr == told
    done = run("train", tmp_path / name, "-o", tmp_path / "other", "--vocab-size", 261, "--field", "content")
    assert (done.stderr, "from 21 texts" in done.stdout) == ("", True)


def test_what_else_cannot_be_used_is_counted(tmp_path):
    source = tmp_path / "a.jsonl"
    source.write_text('{"text": "the dog"}\n{"text": ""}\n{"text": 7}\nbroken\n')
    done = run("train", source, "-o", tmp_path / "out", "--vocab-size", 261)
    assert done.stderr.splitlines() == [
        "warning: in 1 of 4 records the text is empty",
        "warning: 2 records could not be used (wrong_type 1, invalid_json 1)",
    ]


def test_plain_text_has_one_text_a_file(tmp_path):
    (tmp_path / "a.txt").write_text("the dog")
    (tmp_path / "b.txt").write_text("the fox")
    assert (
        "from 2 texts, 14 bytes" in run("train", tmp_path / "*.txt", "-o", tmp_path / "o", "--vocab-size", 261).stdout
    )
    failed = run("train", tmp_path / "a.txt", "-o", tmp_path / "p", "--vocab-size", 261, "--field", "content")
    assert failed.exception.got == "1 of 1 record has no field 'content'; they have: text; try --field text"


def test_a_tokenizer_is_not_overwritten_by_accident(tmp_path):
    (tmp_path / "a.txt").write_text("the dog and the dog")
    command = ("train", tmp_path / "a.txt", "-o", tmp_path / "out", "--vocab-size")
    assert run(*command, 261).exit_code == 0
    before = (tmp_path / "out" / "tokenizer.json").read_bytes()
    refused = run(*command, 263)
    assert isinstance(refused.exception, TokenizerError)
    assert "--overwrite" in refused.exception.hint
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == before
    assert run(*command, 263, "--overwrite").exit_code == 0
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() != before
    assert isinstance(run(*command[:3], tmp_path / "a.txt", "--vocab-size", 261).exception, TokenizerError)
    assert isinstance(run(*command, 3, "--overwrite").exception, TokenizerError)


def test_conversations_are_texts(tmp_path):
    """The contents of all messages, whoever says them; a record whose field is no conversation is told."""
    chat = [{"role": "user", "content": "the dog"}, {"role": "assistant", "content": "the fox"}, {"role": "tool"}]
    records = [{"messages": chat}, {"messages": []}, {"messages": 5}, {"other": "x"}, {"messages": "the plain text"}]
    write_jsonl(tmp_path / "chats.jsonl", records)
    warnings = []
    texts = Texts([str(tmp_path / "chats.jsonl")], "messages", warnings.append)
    assert list(texts) == ["the dog", "the fox", "the plain text"]
    assert (texts.count, texts.num_bytes) == (3, 28)
    assert "1 of 5 records has no field 'messages'" in warnings[0]
    assert "in 2 of 5 records the text is empty" in warnings[1]


def test_a_tool_call_is_refused_in_words(trained):
    calls = [{"type": "function", "function": {"name": "add", "arguments": "{}"}}]
    asked = [MESSAGES[1], {"role": "assistant", "content": None, "tool_calls": calls}]
    with pytest.raises(TokenizerError, match="this chat template knows no tool calls"):
        trained.apply_chat_template(asked, tokenize=False)
