import json
import pickle
import shutil

import numpy as np
import pytest
import tokenizers as tk

from astrai_data.errors import TokenizerError, TokenizerNotFoundError
from astrai_data.ragged import Ragged
from astrai_data.tokenizer import ChatTemplate, Tokenizer

from .toys import CHATML_SPECIALS, TOY_TEMPLATE, write_bpe_tokenizer, write_toy_tokenizer

USER_HI = {"role": "user", "content": "hi"}


@pytest.fixture(scope="module")
def toys(tmp_path_factory):
    root = tmp_path_factory.mktemp("toys")
    return {kind: Tokenizer.from_pretrained(write_toy_tokenizer(root / kind, kind)) for kind in ("C", "C+", "C0")}


@pytest.fixture(scope="module")
def bpe_directory(tmp_path_factory):
    return write_bpe_tokenizer(tmp_path_factory.mktemp("bpe"))


@pytest.fixture(scope="module")
def bpe(bpe_directory):
    return Tokenizer.from_pretrained(bpe_directory)


def edit_json(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


# --- acceptance 59 -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "use",
    [
        lambda t: t.encode("a"),
        lambda t: t.decode([1]),
        lambda t: t.save_pretrained("unused"),
        lambda t: t.apply_chat_template([USER_HI]),
        lambda t: t.token_bytes,
    ],
)
def test_an_unloaded_tokenizer_says_so(use):
    with pytest.raises(RuntimeError, match=r"has not been loaded|no chat template"):
        use(Tokenizer())


def test_an_unloaded_tokenizer_is_empty():
    tokenizer = Tokenizer()
    assert len(tokenizer) == tokenizer.vocab_size == 0
    assert tokenizer.stop_ids == []
    assert not tokenizer


def test_special_tokens_are_attributes(toys):
    assert (toys["C"].bos_token, toys["C"].bos_token_id, toys["C"].eos_token_id) == ("[B]", 1, 2)
    with pytest.raises(AttributeError, match="unk_token"):
        _ = toys["C"].unk_token
    with pytest.raises(AttributeError, match="did you mean 'bos_token_id'"):
        _ = toys["C"].boss_token_id
    assert toys["C0"].bos_token_id is None
    with pytest.raises(AttributeError):
        _ = toys["C0"].bos_token


def test_a_mapped_token_outside_the_vocabulary_has_no_id(tmp_path):
    path = write_toy_tokenizer(tmp_path)
    edit_json(path / "tokenizer_config.json", special_tokens={"eos_token": "[nowhere]"})
    tokenizer = Tokenizer.from_pretrained(path)
    assert (tokenizer.eos_token, tokenizer.eos_token_id, tokenizer.stop_ids) == ("[nowhere]", None, [])


@pytest.mark.parametrize(
    ("kind", "text", "options", "expected"),
    [
        ("C+", "ab", {}, [1, 97, 98]),
        ("C+", "ab", {"add_special_tokens": False}, [97, 98]),
        ("C+", ["a", "b"], {}, [[1, 97], [1, 98]]),
        ("C+", [], {}, []),
        ("C", "ab", {}, [97, 98]),
        ("C", "a[B]", {"out_ids": False}, ["a", "[B]"]),
        ("C+", ["a", "b"], {"is_pretokenized": True}, [1, 97, 98]),
        ("C+", [["a", "b"], ["c"]], {"is_pretokenized": True}, [[1, 97, 98], [1, 99]]),
    ],
)
def test_encode(toys, kind, text, options, expected):
    assert toys[kind].encode(text, **options) == expected


def test_decode(toys):
    assert toys["C"].decode([1, 97, 2]) == "a"
    assert toys["C"].decode([1, 97, 2], skip_special_tokens=False) == "[B]a[E]"


def test_save_then_load_then_equal(toys, tmp_path):
    toys["C+"].save_pretrained(tmp_path / "new" / "place")
    loaded = Tokenizer.from_pretrained(tmp_path / "new" / "place")
    assert loaded.special_tokens == toys["C+"].special_tokens
    assert loaded.chat_template == toys["C+"].chat_template
    assert (loaded.ids_sha256, loaded.template_sha256) == (toys["C+"].ids_sha256, toys["C+"].template_sha256)


def test_a_missing_directory_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        Tokenizer.from_pretrained(tmp_path / "nothing")
    assert isinstance(caught.value, TokenizerNotFoundError)


@pytest.mark.parametrize("backend", ["tokenizers", "fastokens"])
def test_pickles_without_its_directory(tmp_path, backend):
    directory = write_bpe_tokenizer(tmp_path / "bpe")
    tokenizer = Tokenizer.from_pretrained(directory, backend)
    before = tokenizer.apply_chat_template([USER_HI])
    shutil.rmtree(directory)
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.apply_chat_template([USER_HI]) == before
    assert (copy.backend, copy.ids_sha256) == (backend, tokenizer.ids_sha256)


# --- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {"bos_token": "[B]", "eos_token": {"content": "[E]", "lstrip": False}},
            {"bos_token": "[B]", "eos_token": "[E]"},
        ),
        ({"bos_token": None, "add_bos_token": True, "pad_token": "[P]"}, {"pad_token": "[P]"}),
        ({"bos_token": "[P]", "special_tokens": {"bos_token": "[B]"}}, {"bos_token": "[B]"}),
        ({"special_tokens": {"bos_token": {"content": "[B]"}}}, {"bos_token": "[B]"}),
        ({}, {}),
    ],
)
def test_published_forms_of_special_tokens(tmp_path, config, expected):
    path = write_toy_tokenizer(tmp_path)
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    assert Tokenizer.from_pretrained(path).special_tokens == expected


def test_the_token_map_file_is_read_and_overruled(tmp_path):
    path = write_toy_tokenizer(tmp_path)
    (path / "special_tokens_map.json").write_text('{"bos_token": {"content": "[P]"}, "unk_token": "[P]"}')
    (path / "tokenizer_config.json").write_text('{"bos_token": "[B]"}')
    assert Tokenizer.from_pretrained(path).special_tokens == {"bos_token": "[B]", "unk_token": "[P]"}


def test_the_callers_map_is_not_changed(tmp_path):
    given = {"unk_token": "[P]", "bos_token": "mine"}
    tokenizer = Tokenizer(write_toy_tokenizer(tmp_path), given)
    assert given == {"unk_token": "[P]", "bos_token": "mine"}
    assert (tokenizer.unk_token, tokenizer.bos_token) == ("[P]", "[B]")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("x", "x"),
        (None, None),
        ([{"name": "default", "template": "x"}, {"name": "tool_use", "template": "y"}], "x"),
        ([{"name": "only", "template": "z"}], "z"),
        ([], None),
    ],
)
def test_published_forms_of_chat_templates(tmp_path, value, expected):
    path = write_toy_tokenizer(tmp_path, template=None)
    edit_json(path / "tokenizer_config.json", chat_template=value)
    tokenizer = Tokenizer.from_pretrained(path)
    assert (tokenizer.chat_template and tokenizer.chat_template.template) == expected
    tokenizer.save_pretrained(tmp_path / "saved")
    again = Tokenizer.from_pretrained(tmp_path / "saved")
    assert again.chat_template == tokenizer.chat_template
    assert again.template_sha256 == tokenizer.template_sha256


def test_the_tool_template_serves_conversations_with_tools(tmp_path):
    path = write_toy_tokenizer(tmp_path, template=None)
    named = [{"name": "default", "template": "x"}, {"name": "tool_use", "template": "y{{ tools[0].name }}"}]
    edit_json(path / "tokenizer_config.json", chat_template=named)
    tokenizer = Tokenizer.from_pretrained(path)
    assert tokenizer.apply_chat_template([USER_HI], tokenize=False, tools=[]) == "x"
    assert tokenizer.apply_chat_template([USER_HI], tokenize=False, tools=[{"name": "f"}]) == "yf"


def test_a_template_file_wins_and_a_saved_one_stays(tmp_path):
    path = write_toy_tokenizer(tmp_path)
    (path / "chat_template.jinja").write_text("from the file")
    tokenizer = Tokenizer.from_pretrained(path)
    assert tokenizer.chat_template.template == "from the file"
    tokenizer.chat_template = "changed"
    tokenizer.save_pretrained(path)
    assert Tokenizer.from_pretrained(path).chat_template.template == "changed"


def test_unknown_fields_survive_saving(tmp_path):
    path = write_toy_tokenizer(tmp_path / "a")
    token = {"content": "[B]", "lstrip": False}
    edit_json(path / "tokenizer_config.json", model_max_length=4096, bos_token=token, auto_map={"x": ["é"]})
    Tokenizer.from_pretrained(path).save_pretrained(tmp_path / "b")
    saved = json.loads((tmp_path / "b" / "tokenizer_config.json").read_text())
    assert (saved["model_max_length"], saved["auto_map"], saved["bos_token"]) == (4096, {"x": ["é"]}, token)
    assert saved["eos_token"] == "[E]"
    assert "é" in (tmp_path / "b" / "tokenizer_config.json").read_text()


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("tokenizer.json", "{", "not JSON"),
        ("tokenizer.json", "[]", "no model"),
        ("tokenizer.json", '{"model": {"type": "BPE"}}', "no vocabulary"),
        ("tokenizer.json", '{"model": {"type": "Odd", "vocab": {}}}', "refused"),
        ("tokenizer_config.json", "{", "not JSON"),
        ("tokenizer_config.json", "[]", "not a JSON object"),
        ("tokenizer_config.json", '{"special_tokens": ["[B]"]}', "not a map"),
        ("tokenizer_config.json", '{"chat_template": 5}', "cannot be read"),
        ("tokenizer_config.json", '{"chat_template": [{"name": "default"}]}', "cannot be read"),
    ],
)
def test_damaged_files(tmp_path, file, text, message):
    path = write_toy_tokenizer(tmp_path)
    (path / file).write_text(text)
    with pytest.raises(TokenizerError, match=message):
        Tokenizer.from_pretrained(path)


def test_stored_padding_and_truncation_are_off(tmp_path):
    path = write_bpe_tokenizer(tmp_path)
    plain = Tokenizer.from_pretrained(path)
    stored = tk.Tokenizer.from_file(str(path / "tokenizer.json"))
    stored.enable_padding(length=32)
    stored.enable_truncation(3)
    stored.save(str(path / "tokenizer.json"))
    for backend in ("tokenizers", "fastokens"):
        tokenizer = Tokenizer.from_pretrained(path, backend)
        assert tokenizer.encode("the quick brown fox") == plain.encode("the quick brown fox")
        assert tokenizer.ids_sha256 == plain.ids_sha256


# --- ids, hashes, stops --------------------------------------------------------------------------------------------


def test_hashes_follow_what_decides(tmp_path):
    first = Tokenizer.from_pretrained(write_bpe_tokenizer(tmp_path / "a"))
    other_vocabulary = Tokenizer.from_pretrained(write_bpe_tokenizer(tmp_path / "b", 400))
    other_map = Tokenizer(tmp_path / "a", {"unk_token": "<|pad|>"})
    other_template = Tokenizer.from_pretrained(tmp_path / "a")
    other_template.chat_template = "other"
    assert len({t.ids_sha256 for t in (first, other_vocabulary, other_map)}) == 3
    assert other_template.ids_sha256 == first.ids_sha256
    assert other_template.template_sha256 != first.template_sha256
    other_template.chat_template = None
    assert other_template.template_sha256 == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_the_vocabulary_is_the_librarys(tmp_path):
    library = tk.Tokenizer(tk.models.Unigram([("<unk>", 0.0), ("\u2581a", -1.5), ("b", -2.25)], 0, False))
    library.pre_tokenizer = tk.pre_tokenizers.Metaspace()
    library.add_tokens(["more"])
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.from_pretrained(tmp_path)
    assert tokenizer._loaded.vocabulary.ids == library.get_vocab()
    assert (len(tokenizer), tokenizer.max_id) == (4, 3)
    assert [tokenizer.id_to_token(i) for i in (-1, 0, 3, 4)] == [None, "<unk>", "more", None]
    assert tokenizer.token_to_id("b") == 2
    assert len(tokenizer.ids_sha256) == 64


def test_what_the_post_processor_adds(toys, bpe, tmp_path):
    assert [(t.post_prefix, t.post_suffix) for t in (toys["C"], toys["C+"], bpe)] == [((), ()), ((1,), ()), ((), ())]
    path = write_toy_tokenizer(tmp_path)
    library = tk.Tokenizer.from_file(str(path / "tokenizer.json"))
    library.post_processor = tk.processors.TemplateProcessing("[B] $A [E] [E]", special_tokens=[("[B]", 1), ("[E]", 2)])
    library.save(str(path / "tokenizer.json"))
    tokenizer = Tokenizer.from_pretrained(path)
    assert (tokenizer.post_prefix, tokenizer.post_suffix) == ((1,), (2, 2))
    assert tokenizer.encode(["ab", ""]) == [library.encode("ab").ids, library.encode("").ids]


def test_stop_ids_are_eos_and_end_of_turn(toys, bpe, bpe_directory, tmp_path):
    assert toys["C"].stop_ids == [2]
    assert bpe.stop_ids == [bpe.eos_token_id, bpe.im_end_token_id]
    shutil.copytree(bpe_directory, tmp_path, dirs_exist_ok=True)
    edit_json(tmp_path / "tokenizer_config.json", stop_tokens=["<|im_end|>"])
    assert Tokenizer.from_pretrained(tmp_path).stop_ids == [bpe.im_end_token_id]


def test_stop_ids_survive_a_template_that_refuses(bpe):
    tokenizer = bpe.with_backend("tokenizers")
    tokenizer.chat_template = "{{ raise_exception('never') }}"
    assert tokenizer.stop_ids == [bpe.eos_token_id]


def test_encode_batch_gives_numpy_rows(bpe):
    ids, offsets = bpe.encode_batch(["the dog", "", "<|im_end|>"])
    assert (ids.dtype, offsets.dtype) == (np.int32, np.int64)
    assert offsets.tolist()[1:3] == [offsets[1], offsets[1]]
    assert ids[offsets[2] :].tolist() == [bpe.im_end_token_id]
    as_text, _ = bpe.encode_batch(["<|im_end|>"], special_tokens="text")
    assert len(as_text) > 1
    assert bpe.decode(as_text, skip_special_tokens=True) == "<|im_end|>"
    assert [part.tolist() for part in bpe.encode_batch([])] == [[], [0]]


def test_ids_outside_the_vocabulary_are_refused(toys, bpe):
    for tokenizer, bad in ((toys["C"], 1024), (bpe, 512), (bpe, -1)):
        with pytest.raises(TokenizerError, match="outside the vocabulary"):
            tokenizer.decode_batch(Ragged.from_rows([[5], [bad]], np.int32))


def test_what_tokenizers_say_about_themselves(toys, bpe, tmp_path):
    assert (bpe.is_byte_level, bpe.has_normalizer, bpe.backend) == (True, False, "tokenizers")
    assert not toys["C"].is_byte_level
    with pytest.raises(TokenizerError, match="byte-level"):
        _ = toys["C"].token_bytes
    assert bpe.special_tokens == CHATML_SPECIALS
    assert toys["C"].chat_template == ChatTemplate(TOY_TEMPLATE)
