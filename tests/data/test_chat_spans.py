import numpy as np
import pytest
import tokenizers as tk
from hypothesis import given, settings
from hypothesis import strategies as st

from astrai_data.errors import TokenizerError
from astrai_data.tokenizer import ChatRefusal, Tokenizer

from .toys import CHATML_GENERATION_TEMPLATE, CHATML_TEMPLATE, write_bpe_tokenizer, write_toy_tokenizer

ASSISTANT = frozenset({"assistant"})


def user(text):
    return {"role": "user", "content": text}


def answer(text, **more):
    return {"role": "assistant", "content": text, **more}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("tokenizers")


@pytest.fixture(scope="module")
def toy(root):
    return Tokenizer.from_pretrained(write_toy_tokenizer(root / "C"))


@pytest.fixture(scope="module")
def chatml(root):
    return Tokenizer.from_pretrained(write_bpe_tokenizer(root / "chatml"), "fastokens")


@pytest.fixture(scope="module")
def marked(root):
    return Tokenizer.from_pretrained(write_bpe_tokenizer(root / "marked", template=CHATML_GENERATION_TEMPLATE))


@pytest.fixture(scope="module")
def metaspace(root):
    pieces = [("<unk>", 0.0), *((chr(c), -5.0) for c in range(32, 127)), ("\u2581", -3.0), ("\n", -5.0), ("ok", -1.0)]
    library = tk.Tokenizer(tk.models.Unigram(pieces, 0, False))
    library.pre_tokenizer = tk.pre_tokenizers.Metaspace()
    library.decoder = tk.decoders.Metaspace()
    library.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    (root / "metaspace").mkdir()
    library.save(str(root / "metaspace" / "tokenizer.json"))
    return Tokenizer(root / "metaspace", {}, CHATML_TEMPLATE)


def pieces_of(tokenizer, chat):
    return [
        (index, tokenizer.decode(chat.ids[begin:end], skip_special_tokens=False))
        for index, begin, end in chat.spans.tolist()
    ]


def refusal(tokenizer, messages, **options):
    [result] = tokenizer.encode_chats([messages], **options)
    assert isinstance(result, ChatRefusal), result
    return result


TALK = [user("hi"), answer("ok"), user("more"), answer("fine ")]


@pytest.mark.parametrize("name", ["chatml", "marked", "metaspace"])
@pytest.mark.parametrize(
    ("roles", "options", "expected"),
    [
        ({"assistant"}, {}, [(1, "ok<|im_end|>"), (3, "fine <|im_end|>")]),
        ({"assistant"}, {"train_on": "last"}, [(3, "fine <|im_end|>")]),
        ({"user"}, {}, [(0, "hi<|im_end|>"), (2, "more<|im_end|>")]),
        ({"assistant"}, {"scope": "message", "train_on": "last"}, [(3, "<|im_start|>assistant\nfine <|im_end|>\n")]),
        ({"user", "assistant"}, {"scope": "message"}, None),
        ({"tool"}, {}, []),
        (set(), {}, []),
    ],
)
def test_spans(request, name, roles, options, expected):
    tokenizer = request.getfixturevalue(name)
    chat = tokenizer.encode_chat(TALK, roles=frozenset(roles), **options)
    if expected is None:  # every token but BOS
        assert chat.spans[0, 1] == chat.num_added
        assert chat.spans[-1, 2] == len(chat.ids)
        assert np.array_equal(chat.spans[1:, 1], chat.spans[:-1, 2])
    else:
        # Metaspace puts a space in front of whatever follows a special token.
        found = [(index, text.replace("|> ", "|>")) for index, text in pieces_of(tokenizer, chat)]
        assert found == expected
    assert (chat.ids.dtype, chat.spans.dtype, chat.spans.shape[1]) == (np.int32, np.int64, 3)


def test_toy_spans(toy):
    chat = toy.encode_chat([user("hi"), answer("ok")], roles=ASSISTANT)
    assert chat.ids.tolist() == [1, 60, 117, 62, 104, 105, 124, 60, 97, 62, 111, 107, 124]
    assert (chat.spans.tolist(), chat.num_added, chat.text) == ([[1, 10, 13]], 1, "<u>hi|<a>ok|")
    whole = toy.encode_chat([user("hi"), answer("ok")], roles=ASSISTANT, scope="message", add_bos=False)
    assert (whole.spans.tolist(), whole.num_added) == ([[1, 6, 12]], 0)


@pytest.mark.parametrize("name", ["chatml", "marked"])
def test_an_assistant_who_speaks_first(request, name):
    """The mask ends with the assistant's last token, not at the end of the next turn (public defect 1)."""
    tokenizer = request.getfixturevalue(name)
    chat = tokenizer.encode_chat([answer("A"), user("hello")], roles=ASSISTANT, add_bos=False)
    assert pieces_of(tokenizer, chat) == [(0, "A<|im_end|>")]


def test_a_first_token_that_begins_at_nought(root):
    tokenizer = Tokenizer(root / "marked")
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }} {% endgeneration %}"
        "{% else %}{{ m.content }}{% endif %}{% endfor %}"
    )
    chat = tokenizer.encode_chat([answer("A"), user("the dog")], roles=ASSISTANT, add_bos=False)
    assert chat.spans.tolist()[0][:2] == [0, 0]
    # The space that ends the mark belongs to a token that begins before "the", or to the next word's own.
    assert pieces_of(tokenizer, chat)[0][1].strip().startswith("A")
    assert "dog" not in pieces_of(tokenizer, chat)[0][1]


@pytest.mark.parametrize("name", ["chatml", "marked", "metaspace", "toy"])
@settings(max_examples=60, deadline=None)
@given(
    talks=st.lists(
        st.lists(
            st.tuples(st.sampled_from(["user", "assistant"]), st.text("ab é漢\n🙂<|", max_size=8)),
            min_size=1,
            max_size=4,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_alone_and_in_a_batch(request, name, talks):
    tokenizer = request.getfixturevalue(name)
    conversations = [[{"role": role, "content": content} for role, content in talk] for talk in talks]
    together = tokenizer.encode_chats(conversations, roles=ASSISTANT)
    for conversation, chat in zip(conversations, together, strict=True):
        [alone] = tokenizer.encode_chats([conversation], roles=ASSISTANT)
        assert not isinstance(chat, ChatRefusal)
        assert np.array_equal(alone.ids, chat.ids)
        assert np.array_equal(alone.spans, chat.spans)
        assert chat.ids[chat.num_added :].tolist() == tokenizer.encode(chat.text, add_special_tokens=False)
        trained = [text for _, text in pieces_of(tokenizer, chat)]
        wanted = [m["content"] for m in conversation if m["role"] == "assistant"]
        # White space in front may share a token with the header's line end, which comes first.
        if name in ("chatml", "marked") and not any(content[:1].isspace() for content in wanted):
            assert trained == [f"{content}<|im_end|>" for content in wanted]


def test_a_token_belongs_where_its_first_byte_lies(root):
    """No end marks, so "...:" and " the" share no token, but "the" after a space does: " the" begins before it."""
    tokenizer = Tokenizer(root / "chatml")
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    chat = tokenizer.encode_chat([user("x"), answer("the dog")], roles=ASSISTANT)
    [(_, begin, _)] = chat.spans.tolist()
    assert pieces_of(tokenizer, chat) == [(1, " dog")]
    assert tokenizer.decode(chat.ids[begin - 1 : begin]) == " the"


def test_backends_agree_on_chats(chatml):
    slow = chatml.with_backend("tokenizers")
    talk = [user("über Wipfeln"), answer("今日は。 the dog <|im_end|> x"), user(""), answer("")]
    for options in ({}, {"scope": "message"}, {"special_tokens": "parse"}):
        fast_chat, slow_chat = (t.encode_chat(talk, roles=ASSISTANT, **options) for t in (chatml, slow))
        assert np.array_equal(fast_chat.ids, slow_chat.ids)
        assert np.array_equal(fast_chat.spans, slow_chat.spans)


def test_byte_counting_equals_the_librarys_offsets(chatml):
    aligner = chatml._loaded.aligner
    texts = ["<|im_start|>é漢🙂 the dog<|im_end|>\n", "", "ab\r\n"]
    fast = aligner.encode(texts, "parse")
    ids, begins = aligner.truth().encode_with_begins(texts, "parse")
    assert np.array_equal(fast.ids.flat, ids.flat)
    for row, text in enumerate(texts):
        chars = [len(text.encode()[:at].decode("utf-8", "ignore")) for at in fast.begins_of(row)]
        assert chars == begins[ids.offsets[row] : ids.offsets[row + 1]].tolist()


def test_tokens_that_swallow_space_fall_back_to_the_library(root, chatml):
    library = tk.Tokenizer.from_file(str(root / "chatml" / "tokenizer.json"))
    library.add_special_tokens([tk.AddedToken("<mask>", lstrip=True, special=True)])
    (root / "swallows").mkdir()
    library.save(str(root / "swallows" / "tokenizer.json"))
    tokenizer = Tokenizer(root / "swallows", {}, CHATML_TEMPLATE)
    chat = tokenizer.encode_chat([user("a   <mask> b"), answer("ok")], roles=ASSISTANT, special_tokens="parse")
    assert pieces_of(tokenizer, chat) == [(1, "ok<|im_end|>")]
    assert refusal(tokenizer, [user("a <mask>")]).reason == "special_token_in_content"


# --- BOS -----------------------------------------------------------------------------------------------------------


def test_bos_once(root):
    tokenizer = Tokenizer(root / "chatml")
    plain = tokenizer.encode_chat([user("hi")])
    assert (plain.ids[0], plain.num_added) == (tokenizer.bos_token_id, 1)
    tokenizer.chat_template = "{{ bos_token }}" + CHATML_TEMPLATE
    own = tokenizer.encode_chat([user("hi"), answer("ok")], roles=ASSISTANT)
    assert (own.ids[: len(plain.ids)].tolist(), own.num_added) == (plain.ids.tolist(), 0)
    assert pieces_of(tokenizer, own) == [(1, "ok<|im_end|>")]


def test_the_post_processor_is_not_run(root):
    toys = {kind: Tokenizer.from_pretrained(write_toy_tokenizer(root / f"bos {kind}", kind)) for kind in ("C+", "C0")}
    assert toys["C+"].encode_chat([user("hi")]).ids.tolist() == [1, 60, 117, 62, 104, 105, 124]
    assert toys["C0"].encode_chat([user("hi")]).ids.tolist() == [60, 117, 62, 104, 105, 124]


def test_an_empty_render(toy):
    tokenizer = toy.with_backend("tokenizers")
    tokenizer.chat_template = "{# nothing #}"
    assert tokenizer.encode_chat([user("hi")]).ids.tolist() == [1]
    assert tokenizer.encode_chat([user("hi")], add_bos=False).ids.tolist() == []


def test_training_and_serving_see_the_same_ids(chatml):
    """A row of a conversation begins with the prompt that the server makes of its beginning."""
    row = chatml.encode_chat(TALK, roles=ASSISTANT)
    for index, begin, _ in row.spans.tolist():
        assert chatml.apply_chat_template(TALK[:index]) == row.ids[:begin].tolist()


# --- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conversation", "message"),
    [
        ([], "no messages"),
        ("hi", "must be a list of messages, got str"),
        ({"role": "user", "content": "x"}, "got dict"),
        ([user("a"), "b"], "message 1 must be an object, got str"),
        ([{"content": "x"}], "message 0 has no role"),
        ([{"role": 5, "content": "x"}], "message 0 has no role: wanted a string, got int"),
        ([user("a"), user(None)], r"message 1 \(user\) must have text as content, got null"),
        ([{"role": "user"}], "message 0"),
        ([user({"text": "part"})], "got dict"),
        ([user(["part"])], r"message 0 \(user\), part 0 of its content must be .*, got str"),
        ([answer(None)], "got null"),
        ([answer(None, tool_calls=[])], "got null"),
        ([{"role": "user", "content": None, "tool_calls": [{"name": "f"}]}], "got null"),
    ],
)
def test_what_is_no_conversation(toy, conversation, message):
    import re

    found = refusal(toy, conversation)
    assert found.reason == "not_a_conversation"
    assert re.search(message, found.message)
    with pytest.raises(TokenizerError, match=message):
        toy.encode_chat(conversation)


def test_absent_keys_and_other_keys(toy):
    tokenizer = toy.with_backend("tokenizers")
    tokenizer.chat_template = "{% for m in messages %}{{ m.keys() | list }}{% endfor %}"
    messages = [
        {"role": "user", "content": "x", "name": None, "tool_calls": None, "mood": "good"},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]},
    ]
    assert tokenizer.encode_chat(messages).text == "['role', 'content', 'mood']['role', 'content', 'tool_calls']"


STRIPS_OLD_THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content if loop.last else m.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_a_template_that_rewrites_earlier_turns(root):
    tokenizer = Tokenizer(root / "chatml")
    tokenizer.chat_template = STRIPS_OLD_THINKING
    talk = [user("q"), answer("<think>t</think>one"), user("r"), answer("<think>t</think>two")]
    found = refusal(tokenizer, talk, roles=ASSISTANT)
    assert found.reason == "template_prefix"
    assert "first 2 messages" in found.message
    assert "<think>" in found.message
    last = tokenizer.encode_chat(talk, roles=ASSISTANT, train_on="last")
    assert pieces_of(tokenizer, last) == [(3, "<think>t</think>two<|im_end|>")]
    assert refusal(tokenizer, talk, roles=ASSISTANT, scope="message").reason == "template_prefix"


def test_a_generation_prompt_that_does_not_fit(root):
    tokenizer = Tokenizer(root / "chatml")
    tokenizer.chat_template = CHATML_TEMPLATE.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
    found = refusal(tokenizer, [user("q"), answer("a")], roles=ASSISTANT)
    assert "with the generation prompt" in found.message
    fits = tokenizer.encode_chat([user("q"), answer("<think>\nx</think>a")], roles=ASSISTANT)
    assert pieces_of(tokenizer, fits) == [(1, "x</think>a<|im_end|>")]


def test_one_refusal_leaves_the_others_alone(root):
    tokenizer = Tokenizer(root / "chatml")
    tokenizer.chat_template = (
        "{% if messages | length > 1 %}{{ raise_exception('too long') }}{% endif %}" + CHATML_TEMPLATE
    )
    first, second, third, fourth = tokenizer.encode_chats([[user("a")], [user("b")] * 2, [user("c")], [user("\ud800")]])
    assert second == ChatRefusal("template_error", "TemplateError: too long")
    assert fourth.reason == "not_unicode"
    assert [first.text, third.text] == ["<|im_start|>user\na<|im_end|>\n", "<|im_start|>user\nc<|im_end|>\n"]


def test_a_template_that_cannot_render_a_beginning(root):
    tokenizer = Tokenizer(root / "chatml")
    tokenizer.chat_template = "{{ messages[0].role[0] }}" + CHATML_TEMPLATE
    assert refusal(tokenizer, [answer("a")], roles=ASSISTANT).reason == "template_error"
    whole = tokenizer.encode_chat([user("a"), answer("b")], roles=frozenset({"user"}), scope="message", add_bos=False)
    assert whole.spans.tolist()[0][1] == 0


@pytest.mark.parametrize(
    "options", [{"scope": "complete"}, {"train_on": "first"}, {"special_tokens": "skip"}], ids=lambda o: next(iter(o))
)
def test_unknown_options(toy, options):
    with pytest.raises(TokenizerError, match="unknown"):
        toy.encode_chats([], **options)


def test_no_conversations(toy):
    assert toy.encode_chats([]) == []
