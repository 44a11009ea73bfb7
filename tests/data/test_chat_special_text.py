import numpy as np
import pytest
import tokenizers as tk
from hypothesis import given, settings
from hypothesis import strategies as st

from astrai_data.tokenizer import ChatRefusal, Tokenizer
from astrai_data.tokenizer.special_text import SpecialStrings

from .toys import CHATML_SPECIALS, CHATML_TEMPLATE, write_bpe_tokenizer, write_toy_tokenizer

ASSISTANT = frozenset({"assistant"})
CONTENT = st.lists(
    st.sampled_from([*CHATML_SPECIALS.values(), "a", " ", "é", "the dog", "\n", "<|", "|>", "<|im_", "end|>"]),
    max_size=6,
).map("".join)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("tokenizers")


@pytest.fixture(scope="module")
def chatml(root):
    return Tokenizer.from_pretrained(write_bpe_tokenizer(root / "chatml"), "fastokens")


def talk(question, answer):
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def shown(tokenizer, ids):
    return tokenizer.decode(ids, skip_special_tokens=False)


def test_a_special_string_in_content_is_text(chatml):
    chat = chatml.encode_chat(talk("a<|im_end|>b", "c<|eos|>"), roles=ASSISTANT, add_bos=False)
    start, end = chatml.im_start_token_id, chatml.im_end_token_id
    assert [int((chat.ids == special).sum()) for special in (start, end, chatml.eos_token_id)] == [2, 2, 0]
    assert shown(chatml, chat.ids) == chat.text
    [(_, begin, stop)] = chat.spans.tolist()
    assert shown(chatml, chat.ids[begin:stop]) == "c<|eos|><|im_end|>"
    assert chat.ids[stop - 1] == end


def test_parse_makes_them_tokens(chatml):
    chat = chatml.encode_chat(talk("a<|im_end|>b", "c"), special_tokens="parse", add_bos=False)
    assert chat.ids.tolist() == chatml.encode(chat.text)
    assert int((chat.ids == chatml.im_end_token_id).sum()) == 3


def test_the_toy(root):
    toy = Tokenizer.from_pretrained(write_toy_tokenizer(root / "C"))
    chat = toy.encode_chat(talk("h[B]", "o[E]k"), roles=ASSISTANT)
    assert chat.ids.tolist() == [1, *map(ord, "<u>h[B]|<a>o[E]k|")]
    assert chat.spans.tolist() == [[1, 12, 18]]


@settings(max_examples=150, deadline=None)
@given(question=CONTENT, reply=CONTENT, calm=CONTENT)
def test_only_the_templates_tokens_are_tokens(chatml, question, reply, calm):
    noisy, quiet = chatml.encode_chats([talk(question, reply), talk("x", calm)], roles=ASSISTANT, add_bos=False)
    for chat, content in ((noisy, reply), (quiet, calm)):
        specials = [i for i in chat.ids.tolist() if chatml._loaded.vocabulary.is_special[i]]
        assert specials == [chatml.im_start_token_id, chatml.im_end_token_id] * 2
        assert shown(chatml, chat.ids) == chat.text
        [(_, begin, end)] = chat.spans.tolist()
        if not content[:1].isspace():  # white space may share a token with the header's line end, which comes first
            assert shown(chatml, chat.ids[begin:end]) == f"{content}<|im_end|>"
    [alone] = chatml.encode_chats([talk(question, reply)], roles=ASSISTANT, add_bos=False)
    assert np.array_equal(alone.ids, noisy.ids)
    assert np.array_equal(alone.spans, noisy.spans)


@settings(max_examples=100, deadline=None)
@given(question=st.text("ab \né<|>", max_size=10), reply=st.text("ab \né<|>", max_size=10))
def test_the_careful_way_gives_the_ids_of_the_plain_way(chatml, question, reply):
    """Encoding by chunks, forced on conversations that do not need it."""
    from astrai_data.tokenizer.special_text import encode_shielded

    chat = chatml.encode_chat(talk(question, reply), add_bos=False)
    careful = encode_shielded(chatml._loaded.aligner.encode, chatml._loaded.strings, chat.text)
    assert careful.ids[0].tolist() == chat.ids.tolist()


def test_extra_keys_are_looked_into(chatml):
    tokenizer = chatml.with_backend("tokenizers")
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.name }}{{ m.info | default('') | tojson }}"
        "{{ m.content }}<|im_end|>{% endfor %}"
    )
    for extra in ({"name": "<|eos|>"}, {"info": {"k": ["<|eos|>"]}}, {"info": {"<|eos|>": 1}}):
        chat = tokenizer.encode_chat([{"role": "user", "content": "x", **extra}])
        assert "<|eos|>" in chat.text
        assert tokenizer.eos_token_id not in chat.ids


REFUSED = {
    "acts on it": CHATML_TEMPLATE.replace("message['content']", "message['content'] | replace('<|im_end|>', 'gone')"),
    "counts it": CHATML_TEMPLATE.replace("message['content']", "message['content'] | length ~ message['content']"),
}


@pytest.mark.parametrize("template", REFUSED.values(), ids=REFUSED)
def test_a_template_that_acts_on_the_string(chatml, template):
    tokenizer = chatml.with_backend("tokenizers")
    tokenizer.chat_template = template
    fine, refused = tokenizer.encode_chats([talk("a", "b"), talk("a<|im_end|>", "b")])
    assert not isinstance(fine, ChatRefusal)
    assert refused.reason == "special_token_in_content"
    assert "acts on it" in refused.message


def test_content_that_holds_the_stand_ins(chatml):
    [refused] = chatml.encode_chats([talk("<|im_end|>\U00100000", "b")])
    assert refused.reason == "special_token_in_content"
    [fine] = chatml.encode_chats([talk("\U00100000", "b")])
    assert "\U00100000" in fine.text


def test_a_tokenizer_that_looks_across_special_tokens(root):
    """Metaspace puts a space in front of the first piece only, so chunks cannot be encoded one by one."""
    pieces = [("<unk>", 0.0), *((chr(c), -5.0) for c in range(33, 127)), ("\u2581", -3.0), ("\n", -5.0)]
    library = tk.Tokenizer(tk.models.Unigram(pieces, 0, False))
    library.pre_tokenizer = tk.pre_tokenizers.Metaspace(prepend_scheme="first")
    library.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    (root / "first").mkdir()
    library.save(str(root / "first" / "tokenizer.json"))
    tokenizer = Tokenizer(root / "first", {}, CHATML_TEMPLATE)
    [refused] = tokenizer.encode_chats([talk("a<|im_end|>", "b")])
    assert refused.reason == "special_token_in_content"
    assert "after a special token" in refused.message


def test_longest_string_first(root):
    library = tk.Tokenizer.from_file(str(write_bpe_tokenizer(root / "nested") / "tokenizer.json"))
    library.add_special_tokens(["<x>", "<x><y>"])
    library.save(str(root / "nested" / "tokenizer.json"))
    tokenizer = Tokenizer.from_pretrained(root / "nested")
    strings: SpecialStrings = tokenizer._loaded.strings
    assert strings.split("a<x><y>b<x>") == ["a", "<x><y>", "b", "<x>", ""]
    assert tokenizer.encode("a<x><y>b<x>")[1::2] == [tokenizer.token_to_id("<x><y>"), tokenizer.token_to_id("<x>")]


def test_a_vocabulary_without_special_tokens(root):
    library = tk.Tokenizer.from_file(str(write_bpe_tokenizer(root / "none", specials={}) / "tokenizer.json"))
    assert not library.get_added_tokens_decoder()
    tokenizer = Tokenizer.from_pretrained(root / "none")
    assert tokenizer.encode_chat(talk("a<|im_end|>", "b")).num_added == 0
    assert tokenizer.stop_ids == []
    assert tokenizer._loaded.strings.split("abc") == ["abc"]
