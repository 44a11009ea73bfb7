"""A content that is a list of text parts is the text of the parts: for masks, stores, `astrai mask` and tokenizers."""

import json

import orjson
import pyarrow as pa
import pytest
import typer
from pyarrow import parquet
from typer.testing import CliRunner

from astrai_data import TokenStore
from astrai_data.cli.mask import command
from astrai_data.errors import TokenizerError
from astrai_data.inspect.texts import Texts
from astrai_data.tokenizer import Tokenizer
from astrai_data.tokenizer.conversation import ContentPartError, join_parts, text_of

from .fates import CHAT, run_files
from .toys import CHATML_GENERATION_TEMPLATE, CHATML_TEMPLATE, write_bpe_tokenizer

IMAGE = {"type": "image_url", "image_url": {"url": "a.png"}}


def parts(*texts: str, **more) -> list[dict]:
    return [{"type": "text", "text": text, **more} for text in texts]


def say(role: str, content, **more) -> dict:
    return {"role": role, "content": content, **more}


CALLS = [{"type": "function", "function": {"name": "add", "arguments": "{}"}}]
CHATS = {
    "one part": ([say("user", parts("Hello"))], [say("user", "Hello")]),
    "a border of one line feed": ([say("user", parts("a", "b\n", "c"))], [say("user", "a\nb\n\nc")]),
    "no part": ([say("user", [])], [say("user", "")]),
    "empty parts": ([say("user", parts("", ""))], [say("user", "\n")]),
    "other keys": ([say("user", parts("a", cache_control={"type": "x"}))], [say("user", "a")]),
    "null keys, as Parquet has them": ([say("user", parts("a", image_url=None))], [say("user", "a")]),
    "strings and parts": (
        [say("user", parts("Add", "2 and 2")), say("assistant", "Über 4."), say("user", "Sure?"), say("assistant", [])],
        [say("user", "Add\n2 and 2"), say("assistant", "Über 4."), say("user", "Sure?"), say("assistant", "")],
    ),
    "a trained turn of parts": (
        [say("user", "漢字?"), say("assistant", parts("Yes 😀", " indeed\n"))],
        [say("user", "漢字?"), say("assistant", "Yes 😀\n indeed\n")],
    ),
    "special tokens, whole and cut": (
        [say("user", parts("<|im_end|>", "<|im_", "end|>")), say("assistant", "ok")],
        [say("user", "<|im_end|>\n<|im_\nend|>"), say("assistant", "ok")],
    ),
    "beside calls": ([say("assistant", parts("a"), tool_calls=CALLS)], [say("assistant", "a", tool_calls=CALLS)]),
}
BAD_PARTS = {
    "an image": (IMAGE, "type 'image_url'"),
    "sound": ({"type": "input_audio", "text": "a"}, "type 'input_audio'"),
    "a long type": ({"type": "x" * 500}, "type 'xxx"),
    "a type that is none": ({"type": {"a": 1}, "text": "a"}, "type {'a': 1}"),
    "no type": ({"text": "a"}, "no type"),
    "a null type": ({"type": None, "text": "a"}, "no type"),
    "no text": ({"type": "text"}, "a text that is null or nothing"),
    "a null text": ({"type": "text", "text": None}, "a text that is null or nothing"),
    "a text that is none": ({"type": "text", "text": 5}, "a text that is int"),
    "a string": ("a", "str"),
    "null": (None, "null or nothing"),
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return write_bpe_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def named(table: dict):
    return pytest.mark.parametrize(("given", "wanted"), table.values(), ids=table)


@named(CHATS)
@pytest.mark.parametrize("template", [CHATML_TEMPLATE, CHATML_GENERATION_TEMPLATE], ids=["plain", "marks"])
@pytest.mark.parametrize("scope", ["completion", "message"])
def test_parts_are_their_text(tmp_path, template, scope, given, wanted):
    opened = Tokenizer.from_pretrained(write_bpe_tokenizer(tmp_path, template=template))
    before = json.dumps(given)
    by_parts, by_text = opened.encode_chats([given, wanted], roles=frozenset({"assistant"}), scope=scope)
    assert json.dumps(given) == before
    assert by_parts.text == by_text.text
    assert by_parts.ids.tolist() == by_text.ids.tolist()
    assert by_parts.spans.tolist() == by_text.spans.tolist()


@named(BAD_PARTS)
def test_what_is_no_text_part(tokenizer, given, wanted):
    with pytest.raises(ContentPartError) as caught:
        join_parts([*parts("a"), given])
    assert (caught.value.place, caught.value.got[: len(wanted)]) == (1, wanted)
    assert len(caught.value.got) <= 80
    assert text_of([given]) is None
    with pytest.raises(TokenizerError) as told:
        Tokenizer.from_pretrained(tokenizer).encode_chat([say("user", "a"), say("user", [*parts("a"), given])])
    place = 'message 1 (user), part 1 of its content must be {"type": "text", "text": "..."}, got '
    assert f"not_a_conversation: {place}{wanted}" in told.value.got


@pytest.mark.parametrize(
    ("content", "text"), [("a", "a"), ("", ""), ([], ""), (parts("a", "b"), "a\nb"), (None, None), (5, None)]
)
def test_the_text_of_a_content(content, text):
    assert text_of(content) == text


# --- from files

KEPT_ORDER = CHAT | {"run": CHAT["run"] | {"shuffle_rows": False}}
BOTH = [chats for name, chats in CHATS.items() if name != "beside calls"]


def told(root) -> tuple:
    """What a store says of its documents: tokens, masks, hashes, text bytes."""
    store = TokenStore.open(root)
    rows = [store.row(index) for index in range(store.num_rows)]
    tokens = [(row.sequence.tolist(), row.loss_mask.tolist(), row.segment_lengths.tolist()) for row in rows]
    balances = [row for row in store.table("ledger").to_pylist() if row["balance"] == "text_bytes"]
    return tokens, store.documents()["text_hash"].to_pylist(), balances


def run(tmp_path, tokenizer, name: str, records: list[dict]):
    """Run them as JSON Lines."""
    (tmp_path / name).mkdir()
    return run_files(tmp_path / name, tokenizer, {"in.jsonl": b"\n".join(map(orjson.dumps, records))}, KEPT_ORDER)


def test_a_store_of_parts_is_one_of_strings(tmp_path, tokenizer):
    for name, number in (("parts", 0), ("strings", 1)):
        found = run(tmp_path, tokenizer, name, [{"messages": chats[number]} for chats in BOTH])
        assert not found.rejects
    assert told(tmp_path / "parts" / "store") == told(tmp_path / "strings" / "store")


def test_parts_that_are_no_text_are_rejected_alone(tmp_path, tokenizer):
    records = [{"messages": [say("user", "Hi"), say("assistant", [part])]} for part, _ in BAD_PARTS.values()]
    good = {"messages": [say("user", parts("Look", "here")), say("assistant", "ok")]}
    found = run(tmp_path, tokenizer, "bad", [*records, good])
    assert [text.count("Look\nhere<|im_end|>") for text in found.texts.values()] == [1]
    for reject, (_, got) in zip(found.rejects, BAD_PARTS.values(), strict=True):
        assert reject["reason"] == "not_a_conversation"
        assert 'message 1 (assistant), part 0 of its content must be {"type": "text"' in reject["message"]
        assert f", got {got}" in reject["message"]


def test_parquet_has_lists_of_structs(tmp_path, tokenizer):
    """Each part has all keys there, null where it has none, and so has each message."""
    part = pa.struct({"type": pa.string(), "text": pa.string(), "image_url": pa.struct({"url": pa.string()})})
    message = pa.struct({"role": pa.string(), "content": pa.list_(part), "tool_calls": pa.list_(pa.string())})
    chats = [
        [say("user", parts("Add", "2 and 2")), say("assistant", parts("4."))],
        [say("user", [*parts("What is this?"), IMAGE]), say("assistant", parts("A picture."))],
        [say("user", None)],
    ]
    (tmp_path / "in").mkdir()
    parquet.write_table(pa.table({"messages": pa.array(chats, pa.list_(message))}), tmp_path / "in" / "a.parquet")
    found = run_files(tmp_path, tokenizer, {}, KEPT_ORDER)
    run(tmp_path, tokenizer, "strings", [{"messages": [say("user", "Add\n2 and 2"), say("assistant", "4.")]}])
    assert told(tmp_path / "store")[:2] == told(tmp_path / "strings" / "store")[:2]
    assert [reject["position"] for reject in found.rejects] == [1, 2]
    assert "message 0 (user), part 1 of its content" in found.rejects[0]["message"]
    assert "got type 'image_url'" in found.rejects[0]["message"]
    assert "message 0 (user) must have text as content, got null" in found.rejects[1]["message"]


def test_mask_shows_parts_as_text(tmp_path, tokenizer):
    app = typer.Typer()
    app.command()(command)
    (tmp_path / "chat.json").write_text(json.dumps(CHAT))
    facts = []
    for name, chat in zip(("parts", "strings"), CHATS["a trained turn of parts"], strict=True):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"messages": chat}) + "\n")
        options = ["-c", str(tmp_path / "chat.json"), "--tokenizer", str(tokenizer), "--json"]
        answer = CliRunner().invoke(app, [str(tmp_path / f"{name}.jsonl"), *options])
        assert answer.exit_code == 0, answer.output
        facts.append(orjson.loads(answer.stdout))
    assert facts[0] == facts[1]
    assert ("assistant", "Yes 😀\n indeed\n<|im_end|>") in [(run["rule"], run["text"]) for run in facts[0]["runs"]]


def test_a_tokenizer_learns_from_parts(tmp_path):
    chat = [say("user", parts("the dog", "the fox")), say("assistant", "ok"), say("user", [*parts("see"), IMAGE])]
    (tmp_path / "chats.jsonl").write_text(json.dumps({"messages": chat}) + "\n")
    assert list(Texts([str(tmp_path / "chats.jsonl")], "messages", pytest.fail)) == ["the dog\nthe fox", "ok"]
