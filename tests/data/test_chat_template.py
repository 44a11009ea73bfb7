import copy
import pickle

import jinja2
import pytest

from astrai_data.errors import TokenizerError
from astrai_data.tokenizer import ChatTemplate, Tokenizer

from .toys import CHATML_GENERATION_TEMPLATE, CHATML_TEMPLATE, write_toy_tokenizer

USER_HI = {"role": "user", "content": "hi"}
OK = {"role": "assistant", "content": "ok"}


@pytest.fixture
def toy(tmp_path):
    return Tokenizer.from_pretrained(write_toy_tokenizer(tmp_path))


# --- acceptance 60 -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "options", "expected"),
    [
        ([USER_HI], {}, "<u>hi|<a>"),
        ([USER_HI], {"add_generation_prompt": False}, "<u>hi|"),
        ([USER_HI], {"system_prompt": "S"}, "<s>S|<u>hi|<a>"),
        ([USER_HI], {"system_prompt": ""}, "<u>hi|<a>"),
        ([[USER_HI], [USER_HI, OK]], {}, ["<u>hi|<a>", "<u>hi|<a>ok|<a>"]),
        ([], {}, "<a>"),
    ],
)
def test_apply(toy, messages, options, expected):
    assert toy.apply_chat_template(messages, tokenize=False, **options) == expected


def test_apply_gives_the_ids_of_encode_chat(toy):
    text_ids = [1, 60, 117, 62, 104, 105, 124, 60, 97, 62]
    assert toy.apply_chat_template([USER_HI]) == text_ids
    assert toy.encode_chat([USER_HI], add_generation_prompt=True).ids.tolist() == text_ids
    assert toy.apply_chat_template([[USER_HI], [USER_HI]]) == [text_ids, text_ids]
    assert toy.apply_chat_template([]) == [1, 60, 97, 62]


def test_a_template_object(toy):
    template = ChatTemplate(
        "{{a}}-{{bos_token}}-{{b}}", default_variables={"a": 1, "b": 2}, special_tokens={"bos_token": "[B]"}
    )
    assert template.render([], b=9) == "1-[B]-9"
    toy.chat_template = template
    assert toy.chat_template is template
    assert toy.apply_chat_template([], tokenize=False, b=9) == "1-[B]-9"


def test_apply_refuses_what_is_no_conversation(toy):
    for messages, prompt in (("hi", None), ("hi", "S"), ([{"role": "user"}], None)):
        with pytest.raises(TokenizerError, match="not_a_conversation"):
            toy.apply_chat_template(messages, prompt)


@pytest.mark.parametrize("value", [5, ["x"], b"x"])
def test_what_is_no_template(toy, value):
    with pytest.raises(ValueError, match="not text"):
        toy.chat_template = value


def test_no_template(tmp_path):
    tokenizer = Tokenizer.from_pretrained(write_toy_tokenizer(tmp_path, template=None))
    with pytest.raises(RuntimeError, match="no chat template"):
        tokenizer.apply_chat_template([USER_HI])
    tokenizer.chat_template = "now"
    assert tokenizer.apply_chat_template([USER_HI], tokenize=False) == "now"


# --- the environment -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% for m in messages %}\n{{ m.content }}\n{% endfor %}", "hi\nok\n"),
        ("a\n  {% if true %}\nb\n  {% endif %}\nc", "a\nb\nc"),
        ("{{ strftime_now('%d %b %Y') }}", "26 Jul 2024"),
        ("{{ messages | tojson }}", '[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ok"}]'),
        ("{{ 'é<>&' | tojson }}", '"é<>&"'),
        ("{{ {'b': 1, 'a': 2} | tojson(indent=1, sort_keys=True) }}", '{\n "a": 2,\n "b": 1\n}'),
        ("{% for m in messages %}{{ m.role }}{% break %}{% endfor %}", "user"),
        ("{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% endfor %}", "assistant"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "2"),
        ("{% generation %}x{% endgeneration %}y", "xy"),
        ("[{{ nothing }}]", "[]"),
        ("{% macro f(m) %}<{{ m.content }}{{ strftime_now('%Y') }}>{% endmacro %}{{ f(messages[0]) }}", "<hi2024>"),
        ("one\n", "one"),
        ("{{ '<|' ~ messages[0]['content'].strip().upper() ~ '|>' }}", "<|HI|>"),
    ],
)
def test_helpers(source, expected):
    template = ChatTemplate(source)
    assert template.render([USER_HI, OK]) == expected
    assert template.render_marked(template.scope("2024-07-26", {}), [USER_HI, OK], False)[0] == expected


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "TemplateError: roles must alternate"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{{ messages[0].update({'role': 'x'}) }}", "SecurityError"),
        ("{% for i in range(10000000) %}{% endfor %}", "OverflowError"),
        ("{{ messages[7].role }}", "UndefinedError"),
        ("{{ messages[0].content + 1 }}", "TypeError"),
        ("{{ messages | random }}", "No filter named 'random'"),
        ("{{ lipsum() }}", "'lipsum' is undefined"),
        (f"{{{{ {'(' * 5000}1{')' * 5000} }}}}", "maximum recursion depth"),
    ],
)
def test_templates_that_fail(source, message):
    before = copy.deepcopy(USER_HI)
    with pytest.raises(TokenizerError, match=message):
        ChatTemplate(source).render([USER_HI])
    assert before == USER_HI


def test_syntax_errors_name_the_line(toy):
    toy.chat_template = "a\n{% if %}"
    with pytest.raises(TokenizerError, match="line 2"):
        toy.encode_chats([[USER_HI]])


@pytest.mark.parametrize(
    ("date", "expected"), [("2025-01-02", "02.01.2025 00"), ("2025-01-02T03:04:05", "02.01.2025 03")]
)
def test_the_template_date(toy, date, expected):
    toy.chat_template = "{{ strftime_now('%d.%m.%Y %H') }}"
    assert toy.apply_chat_template([USER_HI], tokenize=False, template_date=date) == expected
    assert toy.encode_chat([USER_HI], template_date=date).text == expected


@pytest.mark.parametrize("date", ["yesterday", None, 5])
def test_what_is_no_date(toy, date):
    with pytest.raises(TokenizerError, match="not a date"):
        toy.encode_chat([USER_HI], template_date=date)


def test_templates_see_special_tokens_and_no_stray_tools(toy):
    toy.chat_template = "{{ bos_token }}{{ eos_token }}{{ unk_token }}{{ tools is none }}{{ documents is none }}"
    assert toy.apply_chat_template([USER_HI], tokenize=False) == "[B][E]TrueTrue"


def test_later_variables_win(toy):
    toy.chat_template = ChatTemplate("{{ eos_token }}{{ x }}", default_variables={"x": 1, "eos_token": "default"})
    assert toy.apply_chat_template([], tokenize=False) == "[E]1"
    toy.chat_template = ChatTemplate("{{ eos_token }}{{ x }}", special_tokens={"eos_token": "own"})
    assert toy.apply_chat_template([], tokenize=False, x=2) == "own2"
    assert toy.apply_chat_template([], tokenize=False, eos_token="called") == "called"


@pytest.mark.parametrize("source", [CHATML_TEMPLATE, CHATML_GENERATION_TEMPLATE])
def test_the_short_way_renders_as_jinja_does(source):
    template = ChatTemplate(source)
    scope = template.scope("2024-07-26", {})
    slow = template._compiled.render({**scope, "messages": [USER_HI, OK], "add_generation_prompt": True})
    assert template.render_in(scope, [USER_HI, OK], True) == slow


def test_marks_inside_buffered_blocks_are_not_trusted():
    for source in (
        "ab{% macro f() %}x{% generation %}yz{% endgeneration %}{% endmacro %}{{ f() }}",
        "ab{% set x %}1{% generation %}yz{% endgeneration %}{% endset %}{{ x }}",
    ):
        template = ChatTemplate(source)
        text, marks = template.render_marked(template.scope("2024-07-26", {}), [], False)
        assert text.endswith("yz")
        assert marks is None


def test_a_compiled_template_pickles_without_its_code():
    template = ChatTemplate("{{ messages[0].content }}")
    template.render([USER_HI])
    data = pickle.dumps(template)
    assert b"jinja" not in data
    assert pickle.loads(data).render([USER_HI]) == "hi"


def test_jinja_is_the_sandboxed_one():
    assert isinstance(ChatTemplate("x")._compiled.environment, jinja2.sandbox.ImmutableSandboxedEnvironment)
