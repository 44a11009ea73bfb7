"""`special_tokens="text"`: what people write becomes plain text or is refused, whatever the tokenizer's layout."""

import json

import numpy as np
import pytest
import tokenizers as tk
from hypothesis import given, settings
from hypothesis import strategies as st

from astrai_data.errors import TokenizerError
from astrai_data.ragged import Ragged
from astrai_data.tokenizer import ChatRefusal, Tokenizer
from astrai_data.tokenizer.controls import Controls

from .building import build
from .toys import CHATML_TEMPLATE, write_bpe_tokenizer, write_directory, write_toy_tokenizer

EOS_TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}</s>{% endfor %}"
TEXT = {
    "version": 2,
    "input": {"sections": [{"field": "text", "action": "train"}]},
    "preprocessing": {"drop_untrained": False},
}
CHAT = {
    "version": 2,
    "input": {"sections": [{"field": "messages", "action": "$role", "template": True}]},
    "mask": {"assistant": "train"},
}


def write_pieces(directory, *, added, normalizer=None, template=EOS_TEMPLATE):
    """A Unigram tokenizer in the layout of T5 and XLM-R: `<pad>`, `</s>` and `<unk>` are pieces of the model."""
    pieces = [
        ("<pad>", 0.0),
        ("</s>", 0.0),
        ("<unk>", 0.0),
        ("\u2581", -3.0),
        *((chr(c), -5.0) for c in range(33, 127)),
    ]
    library = tk.Tokenizer(tk.models.Unigram(pieces, 2, False))
    library.pre_tokenizer = tk.pre_tokenizers.Metaspace()
    library.decoder = tk.decoders.Metaspace()
    if normalizer:
        library.normalizer = normalizer
    library.add_special_tokens(added)
    specials = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return write_directory(directory, library, {"special_tokens": specials, "chat_template": template})


def write_edited(directory, edit):
    write_bpe_tokenizer(directory)
    definition = json.loads((directory / "tokenizer.json").read_text())
    edit(definition)
    (directory / "tokenizer.json").write_text(json.dumps(definition))
    return directory


def contradict(definition):
    """The token map names them, `tokenizer.json` says they are not special."""
    for token in definition["added_tokens"]:
        token["special"] = False


def normalize(kind):
    def edit(definition):
        definition["normalizer"] = {"type": kind}
        for token in definition["added_tokens"]:
            token["normalized"] = True

    return edit


LAYOUTS = {
    "pieces and added": lambda path: write_pieces(path, added=["<pad>", "</s>", "<unk>"]),
    "pieces only": lambda path: write_pieces(path, added=[]),
    "pieces, NFKC": lambda path: write_pieces(path, added=["</s>"], normalizer=tk.normalizers.NFKC()),
    "not special": lambda path: write_edited(path, contradict),
    "lower-cased": lambda path: write_edited(path, normalize("Lowercase")),
    "NFKC": lambda path: write_edited(path, normalize("NFKC")),
    "words": lambda path: write_toy_tokenizer(path),
    "plain": write_bpe_tokenizer,
}
STRINGS = [
    "</s>", "<pad>", "<unk>", "<s>", "<|eos|>", "<|EOS|>", "<|bos|>", "<|im_end|>", "<|IM_END|>", "<|Im_Start|>",
    "\uff1c|eos|\uff1e", "\uff1c/s\uff1e", "[E]", "[B]",
]  # fmt: skip


@pytest.fixture(scope="module", params=LAYOUTS)
def layout(request, tmp_path_factory):
    return LAYOUTS[request.param](tmp_path_factory.mktemp("layout"))


def controls_of(tokenizer):
    """The ids that stand for more than text, found without the code that is tested."""
    named = [tokenizer.token_to_id(token) for name, token in tokenizer.special_tokens.items() if "unk" not in name]
    return set(named) - {tokenizer.token_to_id("[P]")}


CONTENT = st.lists(st.sampled_from([*STRINGS, "a", " ", "b c", "\n"]), max_size=4).map("".join)


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(CONTENT, max_size=4))
def test_texts(layout, texts):
    tokenizer = Tokenizer.from_pretrained(layout)
    rows, refused = tokenizer.encode_texts(texts, special_tokens="text")
    assert not set(rows.flat.tolist()) & controls_of(tokenizer)
    assert [len(row) == 0 or row_number not in refused for row_number, row in enumerate(rows)] == [True] * len(texts)
    kept = [text for i, text in enumerate(texts) if i not in refused]
    ids, offsets = tokenizer.encode_batch(kept, special_tokens="text")
    assert np.array_equal(ids, rows.flat)
    assert np.array_equal(np.diff(offsets), np.delete(rows.lengths, list(refused)))
    if refused:
        with pytest.raises(TokenizerError, match="special token"):
            tokenizer.encode_batch(texts, special_tokens="text")
    assert tokenizer.encode_texts(texts)[1] == {}


@settings(max_examples=60, deadline=None)
@given(talks=st.lists(st.lists(CONTENT, min_size=1, max_size=3), min_size=1, max_size=3))
def test_chats(layout, talks):
    """As many control tokens as the template writes for the same turns with harmless contents."""
    tokenizer = Tokenizer.from_pretrained(layout)
    conversations = [[{"role": "user", "content": content} for content in talk] for talk in talks]
    calm = [[{"role": "user", "content": "x"} for _ in talk] for talk in talks]
    controls = controls_of(tokenizer)
    for chat, quiet in zip(tokenizer.encode_chats(conversations), tokenizer.encode_chats(calm), strict=True):
        if isinstance(chat, ChatRefusal):
            assert chat.reason == "special_token_in_content"
        else:
            wanted = [token for token in quiet.ids.tolist() if token in controls]
            assert [token for token in chat.ids.tolist() if token in controls] == wanted


FATES = [  # layout, text, whether a text and a chat are encoded
    ("pieces and added", "a </s> b", False, False),
    ("pieces and added", "a <unk> b", True, True),
    ("pieces and added", "a \u6f22 b", True, True),
    ("pieces only", "a </s> b", False, False),
    ("pieces only", "a <pad> b", False, False),
    ("pieces only", "a b", True, True),
    ("pieces, NFKC", "a \uff1c/s\uff1e b", False, False),
    ("pieces, NFKC", "a \uff1c b", True, True),
    ("not special", "a <|eos|> b", True, True),
    ("not special", "a <|pad|><|im_end|>", True, True),
    ("lower-cased", "a <|EOS|> b", True, False),
    ("lower-cased", "a <|eos|> b", True, True),
    ("lower-cased", "A B <|E", True, True),
    ("NFKC", "\uff1c|eos|\uff1e", True, False),
    ("words", "a[E]", True, True),
    ("plain", "<|eos|>", True, True),
]


@pytest.mark.parametrize(("name", "text", "text_fits", "chat_fits"), FATES)
def test_fates(tmp_path, name, text, text_fits, chat_fits):
    tokenizer = Tokenizer.from_pretrained(LAYOUTS[name](tmp_path))
    _, refused = tokenizer.encode_texts([text], special_tokens="text")
    [chat] = tokenizer.encode_chats([[{"role": "user", "content": text}]])
    assert (not refused, not isinstance(chat, ChatRefusal)) == (text_fits, chat_fits)
    if not chat_fits:
        assert chat.reason == "special_token_in_content"
        with pytest.raises(TokenizerError, match="special_token_in_content"):
            tokenizer.apply_chat_template([{"role": "user", "content": text}])
        assert tokenizer.encode_chat([{"role": "user", "content": text}], special_tokens="parse").text


@pytest.mark.parametrize("backend", ["tokenizers", "fastokens"])
def test_named_tokens_are_special_in_both_backends(tmp_path, backend):
    tokenizer = Tokenizer.from_pretrained(write_edited(tmp_path, contradict), backend)
    assert len(tokenizer.encode("<|eos|>")) == 1
    ids, _ = tokenizer.encode_batch(["a <|eos|> b"], special_tokens="text")
    assert tokenizer.eos_token_id not in ids
    assert tokenizer.decode(ids) == "a <|eos|> b"
    assert tokenizer.decode([tokenizer.eos_token_id]) == ""


def test_ids_do_not_change_by_what_is_special(tmp_path):
    plain = Tokenizer.from_pretrained(write_bpe_tokenizer(tmp_path / "a"))
    other = Tokenizer.from_pretrained(write_edited(tmp_path / "b", contradict))
    for mode in ("parse", "text"):
        texts = ["a <|eos|> b", "the dog<|im_end|>\n", ""]
        assert np.array_equal(
            plain.encode_batch(texts, special_tokens=mode)[0], other.encode_batch(texts, special_tokens=mode)[0]
        )


def test_a_word_that_is_named_for_padding_stays_a_word(tmp_path):
    path = write_bpe_tokenizer(tmp_path, template=None)
    config = {"special_tokens": {"eos_token": "<|eos|>", "pad_token": "!"}, "chat_template": CHATML_TEMPLATE}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer.from_pretrained(path)
    rows, refused = tokenizer.encode_texts(["hello!"], special_tokens="text")
    assert (refused, tokenizer.decode(rows.flat)) == ({}, "hello!")
    assert "hello!" in tokenizer.encode_chat([{"role": "user", "content": "hello!"}]).text


@pytest.mark.parametrize("choice", ["nope", None, 5, ["text"], "Text"])
def test_an_unknown_choice(layout, choice):
    tokenizer = Tokenizer.from_pretrained(layout)
    for encode in (tokenizer.encode_batch, tokenizer.encode_texts):
        with pytest.raises(TokenizerError, match=r"unknown special_tokens[\s\S]*parse or text"):
            encode(["a"], special_tokens=choice)


# --- the check itself ----------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=5),
    controls=st.sets(st.integers(0, 9), max_size=4),
    skip=st.integers(0, 2),
)
def test_rows_with_controls_are_found(rows, controls, skip):
    whole = Ragged.from_rows(rows, np.int32)
    part = Ragged(whole.values, whole.offsets[min(skip, len(rows)) :])
    found, refused = Controls({i: str(i) for i in controls}).refuse(part)
    wanted = rows[min(skip, len(rows)) :]
    assert set(refused) == {i for i, row in enumerate(wanted) if set(row) & controls}
    assert [row.tolist() for row in found] == [[] if i in refused else row for i, row in enumerate(wanted)]


# --- in a pipeline -------------------------------------------------------------------------------------------------


def test_records_are_rejected_and_the_ledger_balances(tmp_path):
    path = LAYOUTS["pieces and added"](tmp_path)
    texts = ["fine", "x</s>y", "", "fine too", "</s>"]
    rows, built, ledger = build(TEXT, path, [{"text": text} for text in texts])
    assert {row: refusal.reason for row, refusal in built.refused.items()} == dict.fromkeys(
        (1, 4), "special_token_in_text"
    )
    assert "'</s>' (id 1)" in built.refused[1].message
    assert len(rows) == 2
    assert [ids.count(1) for ids, _ in rows] == [1, 1]  # their own EOS
    count = ledger.total
    assert (count("records", "read"), count("records", "kept")) == (5, 2)
    assert count("records", "rejected", "special_token_in_text") == 2
    assert count("records", "filtered", "empty_text") == 1
    kept = sum(len(ids) for ids, _ in rows)
    assert count("tokens", "from_text") + count("tokens", "added") == kept + count("tokens", "dropped")
    assert count("text_bytes", "read") == count("text_bytes", "kept") + count("text_bytes", "dropped") == 22
    parsed = TEXT | {"input": TEXT["input"] | {"special_tokens": "parse"}}
    assert len(build(parsed, path, [{"text": text} for text in texts])[0]) == 4


def test_one_of_two_sections_is_enough(tmp_path):
    sections = [{"field": "p", "action": "mask"}, {"field": "r", "action": "train"}]
    config = TEXT | {"input": {"sections": sections}}
    path = LAYOUTS["pieces and added"](tmp_path)
    records = [{"p": "a", "r": "b"}, {"p": "a</s>", "r": "b"}, {"p": "a", "r": "b</s>"}, {"p": "</s>", "r": "</s>"}]
    rows, built, ledger = build(config, path, records)
    assert (len(rows), sorted(built.refused)) == (1, [1, 2, 3])
    tokens = ledger.total("tokens", "from_text") + ledger.total("tokens", "added")
    assert tokens == len(rows[0][0]) + ledger.total("tokens", "dropped")


def test_chats_are_rejected(tmp_path):
    path = LAYOUTS["lower-cased"](tmp_path)
    conversations = [[{"role": "user", "content": c}, {"role": "assistant", "content": "ok"}] for c in ("a", "<|EOS|>")]
    rows, built, _ = build(CHAT, path, [{"messages": messages} for messages in conversations])
    assert (len(rows), [refusal.reason for refusal in built.refused.values()]) == (1, ["special_token_in_content"])
