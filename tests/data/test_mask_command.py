"""`astrai mask`: one record through a real pipeline, its tokens told apart by mask rule."""

import json

import orjson
import pytest
import typer
from typer.testing import CliRunner

from astrai_data.cli.mask import command
from astrai_data.config import PipelineConfig
from astrai_data.errors import InputError, PipelineConfigError
from astrai_data.inspect.record import mask_record
from astrai_data.tokenizer import Tokenizer
from tests.data.toys import write_bpe_tokenizer

app = typer.Typer()
app.command()(command)

CHAT = {"version": 2, "input": {"sections": [{"field": "messages", "action": "$role", "template": True}]}}
CHAT["mask"] = {"assistant": "train"}
TEXT = {"version": 2, "input": {"sections": [{"field": "text", "action": "train"}]}}
PAIR = {
    "version": 2,
    "input": {"sections": [{"field": "prompt", "action": "mask"}, {"field": "response", "action": "train"}]},
}
CONVERSATION = [
    {"role": "user", "content": "Hi \x1b[31m [red]there"},
    {"role": "assistant", "content": "Über 😀 fine."},
    {"role": "user", "content": "Bye"},
    {"role": "assistant", "content": "Bye."},
]


@pytest.fixture(scope="module")
def tokenizer_dir(tmp_path_factory):
    return write_bpe_tokenizer(tmp_path_factory.mktemp("mask") / "tokenizer")


@pytest.fixture
def mask(tmp_path, tokenizer_dir):
    def invoke(config: dict, record: object, *arguments: str, suffix: str = "json"):
        (tmp_path / "pipeline.json").write_text(json.dumps(config))
        path = tmp_path / f"record.{suffix}"
        path.write_text(record if isinstance(record, str) else json.dumps(record))
        options = ["-c", str(tmp_path / "pipeline.json"), "--tokenizer", str(tokenizer_dir)]
        return CliRunner().invoke(app, [str(path), *options, *arguments])

    return invoke


def facts(answer) -> dict:
    assert answer.exit_code == 0, answer.output
    return orjson.loads(answer.stdout)


def test_a_conversation_is_told_apart_by_rule(mask, tokenizer_dir):
    got = facts(mask(CHAT, {"messages": CONVERSATION}, "--json"))
    assert got["outcome"] == "kept"
    assert [(run["rule"], run["trained"], run["text"]) for run in got["runs"]] == [
        ("bos", False, "<|bos|>"),
        ("context", False, "<|im_start|>user\nHi \x1b[31m [red]there<|im_end|>\n<|im_start|>assistant\n"),
        ("assistant", True, "Über 😀 fine.<|im_end|>"),
        ("context", False, "\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"),
        ("assistant", True, "Bye.<|im_end|>"),
        ("context", False, "\n"),
    ]
    assert len(got["ids"]) == len(got["loss_mask"]) == got["num_tokens"] == sum(r["num_tokens"] for r in got["runs"])
    assert sum(got["loss_mask"]) == got["num_trained"]
    text = Tokenizer.from_pretrained(tokenizer_dir).decode(got["ids"], skip_special_tokens=False)
    assert text == "".join(run["text"] for run in got["runs"])


def test_the_page_marks_trained_text_and_lists_the_rules(mask):
    page = mask(CHAT, {"messages": CONVERSATION}).stdout
    assert "⟦Über 😀 fine.⟨<|im_end|>⟩⟧\n" in page
    assert "Hi \\e[31m [red]there" in page
    assert "\x1b" not in page
    assert [line.split()[:2] for line in page.splitlines() if line.startswith("assistant ")] == [
        ["assistant", "yes"]
    ] * 2


def test_special_tokens_are_told_from_what_users_wrote(mask):
    messages = [{"role": "user", "content": "What is <|im_end|>?"}, {"role": "assistant", "content": "A mark."}]
    page = mask(CHAT, {"messages": messages}).stdout
    assert "What is <|im_end|>?⟨<|im_end|>⟩\n" in page
    assert "user\\nWhat is <|im_end|>?⟨<|im_end|>⟩\\n" in page, "in the table of runs too"
    context = facts(mask(CHAT, {"messages": messages}, "--json"))["runs"][1]
    shown = [context["text"][a:b] for a, b in context["special_spans"]]
    assert shown == ["<|im_start|>", "<|im_end|>", "<|im_start|>"]


@pytest.mark.parametrize(
    ("config", "record", "count"),
    [
        (TEXT, {"text": "numbers"}, "{n} tokens, {n} flagged, {m} labels trained: the first token of a segment is nob"),
        (CHAT, {"messages": CONVERSATION}, "71 tokens, 17 flagged, 17 labels trained\n"),
    ],
)
def test_flags_and_labels_are_told_apart(mask, config, record, count):
    n = facts(mask(config, record, "--json"))["num_tokens"]
    assert count.format(n=n, m=n - 1) in mask(config, record).stdout


@pytest.mark.parametrize("num_inputs", [0, 1, 2])
def test_the_fields_of_the_one_input_are_renamed(mask, num_inputs):
    spec = {"path": "none.jsonl", "domain": "web", "fields": {"text": "content"}}
    config = TEXT | {"data": {"inputs": [spec] * num_inputs}}
    got = facts(mask(config, {"content": "numbers", "stars": 3}, "--json"))
    if num_inputs == 1:
        assert (got["outcome"], got["domain"], got["runs"][0]["text"]) == ("kept", "web", "numbers")
    else:
        assert got["message"] == "absent or null: 'text'; the records of this file have: content, stars"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (PAIR, "absent or null: 'prompt', 'response'; the records of this file have: other"),
        (CHAT, "absent or null: 'messages'; the records of this file have: other"),
        (
            TEXT | {"data": {"inputs": [{"path": "x", "fields": {"text": "body"}}]}},
            "absent or null: 'body' (renamed 'text'); the records of this file have: other",
        ),
    ],
)
def test_missing_fields_are_named(mask, config, message):
    assert facts(mask(config, {"other": "x"}, "--json"))["message"] == message
    assert message in mask(config, {"other": "x"}).stdout


def test_fields_are_rules(mask):
    got = facts(mask(PAIR, {"prompt": "numbers", "response": " into text"}, "--json"))
    assert [(run["rule"], run["text"]) for run in got["runs"]] == [
        ("prompt", "numbers"),
        ("response", " into text"),
        ("eos", "<|eos|>"),
    ]


def test_the_first_label_is_not_trained(mask):
    got = facts(mask(TEXT, {"text": "numbers"}, "--json"))
    assert sum(got["loss_mask"]) == got["num_tokens"] == got["num_trained"] + 1


@pytest.mark.parametrize(
    ("config", "record", "outcome", "reason"),
    [
        (TEXT, {"text": "  "}, "filtered", "empty_text"),
        (TEXT, {"other": "x"}, "filtered", "missing_field"),
        (TEXT, {"text": 7}, "rejected", "wrong_type"),
        (TEXT, [1], "rejected", "not_an_object"),
        (CHAT, {"messages": []}, "filtered", "empty_conversation"),
        (CHAT, {"messages": [{"role": "user"}, 3]}, "rejected", "not_a_conversation"),
    ],
)
def test_lost_records_say_why(mask, config, record, outcome, reason):
    got = facts(mask(config, record, "--json"))
    assert (got["outcome"], got["reason"], got["runs"]) == (outcome, reason, [])
    assert f"{outcome} ({reason}" in mask(config, record).stdout


def test_a_record_without_anything_to_train_is_shown(mask):
    got = facts(mask(CHAT, {"messages": CONVERSATION[:1]}, "--json"))
    assert (got["outcome"], got["reason"], got["num_trained"]) == ("filtered", "nothing_to_train", 0)
    assert {run["rule"] for run in got["runs"]} == {"bos", "context"}


def test_roles_that_nothing_trains_are_named(mask):
    record = {"messages": [{"role": "human", "content": "Hi"}, {"role": "gpt", "content": "Hello."}]}
    why = "`mask` trains 'assistant', the roles of the messages are 'human', 'gpt'"
    how = 'name the roles to train in the pipeline\'s `mask`, such as "mask": {"gpt": "train"}'
    assert facts(mask(CHAT, record, "--json"))["message"] == f"{why}; {how}"
    assert f"filtered (nothing_to_train: {why}; {how})" in mask(CHAT, record).stdout
    assert facts(mask(CHAT | {"mask": {"gpt": "train"}}, record, "--json"))["outcome"] == "kept"
    assert (
        facts(mask(CHAT | {"preprocessing": {"max_seq_len": 4}}, {"messages": CONVERSATION}, "--json"))["message"]
        is None
    )


def test_a_cut_is_shown(mask):
    config = TEXT | {"preprocessing": {"max_seq_len": 3}}
    got = facts(mask(config, {"text": "A tokenizer turns text into numbers"}, "--json"))
    assert (got["num_tokens"], got["cut_before"], got["cut_after"]) == (3, False, True)
    assert "its end cut off" in mask(config, {"text": "A tokenizer turns text into numbers"}).stdout


@pytest.mark.parametrize(
    ("record", "suffix"),
    [('{"text": "one"}\n{"text": "two"}\n', "jsonl"), ('[{"text": "one"}, {"text": "two"}]', "json")],
)
def test_the_first_record_of_a_file_is_taken(mask, record, suffix):
    got = facts(mask(TEXT, record, "--json", suffix=suffix))
    assert got["runs"][0]["text"] == "one"


def test_the_configuration_may_name_the_tokenizer(tmp_path, tokenizer_dir):
    (tmp_path / "record.json").write_text('{"text": "numbers"}')
    for config, code in ((TEXT | {"tokenizer": {"path": str(tokenizer_dir)}}, 0), (TEXT, 2)):
        (tmp_path / "pipeline.json").write_text(json.dumps(config))
        arguments = [str(tmp_path / "record.json"), "-c", str(tmp_path / "pipeline.json")]
        assert CliRunner().invoke(app, arguments).exit_code == code


def test_what_cannot_be_read_is_an_error(mask, tmp_path, tokenizer_dir):
    assert isinstance(mask(TEXT, " ").exception, InputError)
    assert isinstance(mask(TEXT, "{").exception, InputError)
    assert isinstance(mask({"version": 2}, {"text": "x"}).exception, PipelineConfigError)
    with pytest.raises(InputError):
        mask_record(tmp_path / "none.json", PipelineConfig.from_dict(TEXT), Tokenizer.from_pretrained(tokenizer_dir))
