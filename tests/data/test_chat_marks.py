"""Which part of a render is trained: marks that belong to messages, headers that no prompt announces."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astrai_data.tokenizer import ChatRefusal, Tokenizer

from .toys import CHATML_GENERATION_TEMPLATE, CHATML_TEMPLATE, write_bpe_tokenizer

ASSISTANT = frozenset({"assistant"})
USER = frozenset({"user"})
TURN = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return write_bpe_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
def with_template(directory):
    def build(template):
        tokenizer = Tokenizer(directory)
        tokenizer.chat_template = template
        return tokenizer

    return build


def talk(*contents, first="user"):
    roles = ["user", "assistant"] if first == "user" else ["assistant", "user"]
    return [{"role": roles[i % 2], "content": content} for i, content in enumerate(contents)]


def trained(tokenizer, messages, roles=ASSISTANT, **options):
    """The trained pieces; the reason where the conversation is refused."""
    [chat] = tokenizer.encode_chats([messages], roles=roles, **options)
    if isinstance(chat, ChatRefusal):
        return chat.reason
    return [tokenizer.decode(chat.ids[a:b], skip_special_tokens=False) for _, a, b in chat.spans.tolist()]


# --- templates without a generation prompt -------------------------------------------------------------------------

NO_PROMPT = "{% for m in messages %}" + TURN + "{% endfor %}"


@pytest.mark.parametrize("answer", ["ok", "", "assistant", "<|im_start|>", "start", "\n", "a\nassistant\na", "i", "aa"])
def test_a_header_that_no_prompt_announces_is_not_trained(with_template, answer):
    silent, prompting = with_template(NO_PROMPT), with_template(CHATML_TEMPLATE)
    expected = [f"{answer.lstrip()}<|im_end|>", "last<|im_end|>"]
    assert trained(silent, talk("q", answer, "r", "last")) == expected
    if answer.strip():
        assert trained(prompting, talk("q", answer, "r", "last")) == expected


@settings(max_examples=80, deadline=None)
@given(
    contents=st.lists(st.text("a<|imuser\n ", max_size=8), min_size=2, max_size=4),
    roles=st.sets(st.sampled_from(["user", "assistant"])),
)
def test_with_and_without_a_prompt_alike(directory, contents, roles):
    messages = talk(*(content.strip() for content in contents))
    pieces = []
    for template in (NO_PROMPT, CHATML_TEMPLATE, CHATML_GENERATION_TEMPLATE):
        tokenizer = Tokenizer(directory)
        tokenizer.chat_template = template
        pieces.append(trained(tokenizer, messages, frozenset(roles)))
    assert pieces[0] == pieces[1] == pieces[2] == [f"{m['content']}<|im_end|>" for m in messages if m["role"] in roles]


def test_no_header_and_no_prompt(with_template):
    plain = with_template("{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}")
    assert trained(plain, talk("q", "ok", "q", "")) == ["ok<|im_end|>", "<|im_end|>"]


def test_a_call_without_content_and_without_prompt_is_refused(with_template):
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or m.tool_calls }}<|im_end|>\n{% endfor %}"
    )
    call = {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]}
    assert trained(with_template(template), [*talk("q"), call]) == "template_prefix"
    prompt = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    assert trained(with_template(template + prompt), [*talk("q"), call]) == ["[{'name': 'f'}]<|im_end|>"]


def test_a_prompt_before_words_of_the_template(with_template):
    template = CHATML_TEMPLATE.replace("{{ message['content'] }}", "<think></think>{{ message['content'] }}")
    assert trained(with_template(template), talk("q", "ok")) == ["<think></think>ok<|im_end|>"]


# --- other roles ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["u", "user", "user\nuser", "", "<|im_end|>", "\U000f0000", "<|im_start|>user\n"])
def test_a_user_turn_whose_content_stands_in_its_header(with_template, content):
    for template in (CHATML_TEMPLATE, NO_PROMPT, CHATML_GENERATION_TEMPLATE):
        tokenizer = with_template(template)
        assert trained(tokenizer, talk("x", "y", content), USER) == ["x<|im_end|>", f"{content}<|im_end|>"]


def test_a_content_that_the_template_changes(with_template):
    shouting = with_template(CHATML_TEMPLATE.replace("['content']", "['content'].upper().strip()"))
    assert trained(shouting, talk(" x  ", "y", "user"), USER) == ["X<|im_end|>", "USER<|im_end|>"]


@pytest.mark.parametrize(
    "change", ["'{0} {0}'.format(message['content'])", "message['content'] | length", "'' if message.role else 1"]
)
def test_a_content_without_one_place_is_refused(with_template, change):
    tokenizer = with_template(CHATML_TEMPLATE.replace("message['content']", change))
    [found] = tokenizer.encode_chats([talk("some words")], roles=USER)
    assert found.reason == "template_prefix"
    assert "message 0 has no one place of its own" in found.message


# --- marks ---------------------------------------------------------------------------------------------------------

MARKED = "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}"


def marking(condition):
    plain = "{{ m.content }}<|im_end|>"
    return (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if "
        + condition
        + " %}"
        + MARKED
        + "{% else %}"
        + plain
        + "{% endif %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )


@pytest.mark.parametrize(
    "messages",
    [
        talk("hi", "ok"),
        talk("ok", "ok"),
        talk("", ""),
        talk("", "ok", "ok", ""),
        talk("o", "ok"),
        talk("ok", "o"),
        talk("A", "hello", first="assistant"),
        talk("x" * 30, "yes x"),
    ],
    ids=str,
)
def test_marks_around_users_are_refused(with_template, messages):
    astray, right = with_template(marking("m.role == 'user'")), with_template(marking("m.role == 'assistant'"))
    [found] = astray.encode_chats([messages], roles=ASSISTANT)
    assert (found.reason, "does not stand around what message" in found.message) == ("template_marks", True)
    wanted = [f"{m['content']}<|im_end|>" for m in messages if m["role"] == "assistant"]
    assert trained(right, messages) == wanted
    assert trained(astray, messages, frozenset({"tool"})) == []


@settings(max_examples=100, deadline=None)
@given(
    messages=st.lists(
        st.tuples(st.sampled_from(["user", "assistant", "tool"]), st.sampled_from(["", " ", "a", "ab", "b a", "user"])),
        min_size=1,
        max_size=6,
    ),
    astray=st.sampled_from(["user", "tool"]),
)
def test_marks_train_what_assistants_say_or_nothing(directory, messages, astray):
    messages = [{"role": role, "content": content} for role, content in messages]
    wanted = [f"{m['content'].strip()}<|im_end|>" for m in messages if m["role"] == "assistant"]
    for condition in (f"m.role == '{astray}'", "m.role == 'assistant'"):
        tokenizer = Tokenizer(directory)
        tokenizer.chat_template = marking(condition)
        found = trained(tokenizer, messages)
        if condition.endswith("'assistant'") or found != "template_marks":
            assert [piece.strip() for piece in found] == wanted


@pytest.mark.parametrize(
    ("template", "messages", "expected"),
    [  # old thinking goes, and the marks still tell
        (
            marking("m.role == 'assistant'").replace("n %}{{ m.content }}<|im_end|>", "n %}{{ m.content[3:] }}"),
            talk("q", "<t>one", "r", "<t>two"),
            ["one", "two"],
        ),
        (
            "{% for m in messages %}{% if m.role != 'assistant' %}[{{ m.content }}]{% elif m.content %}" + MARKED
            + "{% else %}{% generation %}<|im_end|>{% endgeneration %}{% endif %}{% endfor %}",
            talk("q", "", "ok", "ok"),
            ["<|im_end|>", "ok<|im_end|>"],
        ),
        ("{% generation %}" + NO_PROMPT + "{% endgeneration %}", talk("q", "ok"), "template_marks"),
        (NO_PROMPT + "{% generation %}!{% endgeneration %}", talk("q", "ok"), "template_marks"),
        (NO_PROMPT + "{% generation %}!{% endgeneration %}", talk("q", ""), "template_marks"),
        (NO_PROMPT + "{% generation %}!{% endgeneration %}", talk("q", "ok", "r", "ok"), "template_prefix"),
    ],
)  # fmt: skip
def test_marks_of_odd_templates(with_template, template, messages, expected):
    assert trained(with_template(template), messages) == expected


def test_ids_do_not_depend_on_the_way(with_template):
    messages = talk("ok", "ok", "user", "")
    chats = [
        with_template(t).encode_chat(messages, roles=ASSISTANT) for t in (CHATML_TEMPLATE, CHATML_GENERATION_TEMPLATE)
    ]
    assert np.array_equal(chats[0].ids, chats[1].ids)
    assert np.array_equal(chats[0].spans, chats[1].spans)
