"""A conversation has the same ids in a store, in training and as a prompt."""

import json

import pytest

from astrai_data import Pipeline, PipelineConfig, Tokenizer, TokenStore
from astrai_data.errors import TokenizerError
from astrai_serve.api.fields import ChatRequest
from astrai_serve.api.service import Service, chat_prompt_ids, template_date_of
from tests.data.running import write_jsonl
from tests.data.toys import CHATML_GENERATION_TEMPLATE, CHATML_TEMPLATE, write_bpe_tokenizer
from tests.serve.serving import small_engine

DATED = "{{ strftime_now('%d %B %Y') }}\n" + CHATML_TEMPLATE
CONVERSATIONS = [
    [{"role": "user", "content": "Hello, who are you?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "日本 😸 <|im_end|> and <|bos|>"}],
    [
        {"role": "user", "content": "In 1987?"},
        {"role": "assistant", "content": " 365 days\n"},
        {"role": "user", "content": ""},
    ],
]
LINES = [{"role": "user", "content": "Add\n2 and 2\n\n, now."}, {"role": "assistant", "content": "4"}] * 2


def stored(tmp_path, tokenizer, conversations, **section) -> list[list[int]]:
    """The ids of each conversation in the store that a chat pipeline writes."""
    config = PipelineConfig.from_dict(
        {
            "version": 2,
            "input": {
                "sections": [{"field": "messages", "action": "train", "template": True} | section],
                "template_date": "2031-02-03",
            },
        }
    )
    inputs = write_jsonl(tmp_path / "in.jsonl", [{"messages": messages} for messages in conversations])
    Pipeline(config, [inputs], tmp_path / "store", tokenizer).run(workers=1)
    with_rows = TokenStore.open(tmp_path / "store")
    segments = []
    for index in range(with_rows.num_rows):
        row = with_rows.row(index)
        ids, lengths = row.sequence.tolist(), row.segment_lengths.tolist()
        for length in lengths:
            segments.append(ids[:length])
            ids = ids[length:]
    return segments


@pytest.mark.parametrize(
    "template", [CHATML_TEMPLATE, CHATML_GENERATION_TEMPLATE, DATED], ids=["plain", "marks", "dated"]
)
def test_the_prompt_is_what_a_pipeline_stores(tmp_path, template):
    tokenizer = write_bpe_tokenizer(tmp_path / "tok", template=template)
    wanted = stored(tmp_path, tokenizer, CONVERSATIONS, generation_prompt=True)
    opened = Tokenizer.from_pretrained(tokenizer)
    found = [chat_prompt_ids(opened, messages, "2031-02-03") for messages in CONVERSATIONS]
    assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize("template", [CHATML_TEMPLATE, CHATML_GENERATION_TEMPLATE], ids=["plain", "marks"])
def test_a_content_may_be_parts(tmp_path, template):
    """Stored as parts, stored as strings and asked as parts: the same ids."""
    tokenizer = write_bpe_tokenizer(tmp_path / "tok", template=template)
    by_parts = [[in_parts(message) for message in messages] for messages in (*CONVERSATIONS, LINES)]
    from_parts = stored(tmp_path / "parts", tokenizer, by_parts, generation_prompt=True)
    from_strings = stored(tmp_path / "strings", tokenizer, [*CONVERSATIONS, LINES], generation_prompt=True)
    opened = Tokenizer.from_pretrained(tokenizer)
    asked = [ChatRequest(messages=messages).conversation() for messages in by_parts]
    found = [chat_prompt_ids(opened, messages, "2031-02-03") for messages in asked]
    assert sorted(found) == sorted(from_parts) == sorted(from_strings)


def in_parts(message: dict) -> dict:
    """The same message with a part for each line."""
    return message | {"content": [{"type": "text", "text": line} for line in message["content"].split("\n")]}


def test_an_answered_conversation_begins_with_its_prompt(tmp_path):
    tokenizer = write_bpe_tokenizer(tmp_path / "tok")
    answered = [[*messages, {"role": "assistant", "content": "An answer."}] for messages in CONVERSATIONS]
    rows = stored(tmp_path, tokenizer, answered)
    opened = Tokenizer.from_pretrained(tokenizer)
    for messages in CONVERSATIONS:
        prompt = chat_prompt_ids(opened, messages, "2031-02-03")
        assert sum(row[: len(prompt)] == prompt for row in rows) == 1


def test_the_date_comes_from_the_model_directory(models, tmp_path):
    directory = write_bpe_tokenizer(tmp_path, template=DATED)
    assert template_date_of(directory) == "2024-07-26"
    config = json.loads((directory / "tokenizer_config.json").read_text())
    (directory / "tokenizer_config.json").write_text(json.dumps(config | {"template_date": "2031-02-03"}))
    tokenizer = Tokenizer.from_pretrained(directory)
    with small_engine(models["near ties"], tokenizer) as engine:
        ids = Service(engine, "x", template_date_of(directory)).chat_ids(CONVERSATIONS[0])
    assert tokenizer.decode(ids).startswith("03 February 2031")


def test_a_date_that_is_none(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text('{"template_date": 3}')
    with pytest.raises(TokenizerError, match="date"):
        template_date_of(tmp_path)
