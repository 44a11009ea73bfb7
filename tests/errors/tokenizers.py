"""Tokenizer directories, chat templates, texts and ids; and the command that trains one."""

import json

from astrai_data.errors import AstraiError, TokenizerError, TokenizerNotFoundError
from astrai_data.tokenizer import Tokenizer, TokenizerStateError, choose_backend
from astrai_data.tokenizer.chat_template import ChatTemplate
from tests.data.test_control_tokens import write_pieces
from tests.data.toys import write_toy_tokenizer

from .place import CONFIG, Place
from .row import Row

HELLO = [{"role": "user", "content": "hello"}]


def spoilt(name: str, content: str | bytes | dict | list, then=lambda tokenizer: None):
    """A tokenizer of which one file holds something else."""

    def fail(place: Place) -> None:
        directory = place.tokenizer
        place.write(f"tokenizer/{name}", content)
        then(Tokenizer.from_pretrained(directory))

    return fail


def edited(change, then=lambda tokenizer: None):
    """A tokenizer whose `tokenizer.json` was changed."""

    def fail(place: Place) -> None:
        path = place.tokenizer / "tokenizer.json"
        definition = json.loads(path.read_bytes())
        change(definition)
        path.write_text(json.dumps(definition))
        then(Tokenizer.from_pretrained(place.tokenizer))

    return fail


def good(use):
    return lambda place: use(Tokenizer.from_pretrained(place.tokenizer))


def toy(use):
    return lambda place: use(Tokenizer.from_pretrained(write_toy_tokenizer(place / "toy")))


def with_template(text: object):
    def use(tokenizer: Tokenizer) -> None:
        tokenizer.chat_template = text
        tokenizer.apply_chat_template(HELLO, tokenize=False)

    return good(use)


def doubles(definition: dict) -> None:
    """A post-processor that puts the sequence twice, a special token between."""
    sequence, bos = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|bos|>", "type_id": 0}}
    special = {"<|bos|>": {"id": "<|bos|>", "ids": [0], "tokens": ["<|bos|>"]}}
    pair = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    definition["post_processor"] = {"type": "TemplateProcessing", "single": [sequence, bos, sequence]}
    definition["post_processor"] |= {"pair": pair, "special_tokens": special}


def chat_without_bos(place: Place) -> None:
    place.edit(place.tokenizer / "tokenizer_config.json", special_tokens={}, bos_token="<|start|>")
    chats = place.once("chats.jsonl", {"messages": [*HELLO, {"role": "assistant", "content": "hi"}]})
    place.astrai("mask", chats, "-c", "sft-chat", "--tokenizer", place.tokenizer)


def train(*options: object):
    def fail(place: Place) -> None:
        place.astrai("tokenizer", "train", place.texts, "-o", place / "new", "--vocab-size", *(options or (300,)))

    return fail


def train_over(place: Place) -> None:
    place.astrai("tokenizer", "train", place.texts, "-o", place.tokenizer, "--vocab-size", 300)


def train_into_file(place: Place) -> None:
    place.astrai("tokenizer", "train", place.texts, "-o", place.texts, "--vocab-size", 300)


def train_below_file(place: Place) -> None:
    place.astrai("tokenizer", "train", place.texts, "-o", place.texts / "new", "--vocab-size", 300)


def no_eos(place: Place) -> None:
    place.edit(place.tokenizer / "tokenizer_config.json", special_tokens={"bos_token": "<|bos|>"})
    section = {"field": "text", "action": "train", "append_eos": True}
    place.pipeline(CONFIG | {"input": {"sections": [section]}})


def other_backend(place: Place) -> None:
    choose_backend(Tokenizer.from_pretrained(write_toy_tokenizer(place / "toy")), "fastokens", [])


def row(name, fail, *says, kind=TokenizerError, mend=None) -> Row:
    return Row(name, fail, kind, says, mend=mend)


def mend_vocab_size(place: Place) -> None:
    assert place.told("wanted").startswith("at least 261")
    place.options = ["--vocab-size", "261"]


ROWS = [
    row("no folder", lambda p: Tokenizer(p / "no"), "no such folder", "tokenizer train", kind=TokenizerNotFoundError),
    row("no file", lambda p: Tokenizer(p.root), "a folder without tokenizer.json", kind=TokenizerNotFoundError),
    row("a folder as file", lambda p: (p / "tokenizer.json").mkdir() or Tokenizer(p.root), "Is a directory"),
    row("not UTF-8", spoilt("tokenizer_config.json", b"\xff"), "tokenizer_config.json", "0xff", "save it as UTF-8"),
    row("half a character", spoilt("tokenizer_config.json", '{"a": "\\ud83d"}'), "\\ud83d", "tokenizer_config.json"),
    row("no JSON", spoilt("tokenizer_config.json", "{"), "tokenizer_config.json", "line 1 column 2"),
    row("no object", spoilt("special_tokens_map.json", []), "special_tokens_map.json", "got: list"),
    row("special_tokens", spoilt("tokenizer_config.json", {"special_tokens": ["<s>"]}), "got: list", '{"bos_token"'),
    row("chat_template", spoilt("tokenizer_config.json", {"chat_template": 5}), "got: int", '"template": ...'),
    row("tokenizer.json is no JSON", spoilt("tokenizer.json", "{"), "/tokenizer: tokenizer.json", "fetch the"),
    row("no model", spoilt("tokenizer.json", {"version": "1.0"}), "got: ['version']", "model.vocab"),
    row("no vocabulary", edited(lambda it: it["model"].pop("vocab")), "KeyError('vocab')", "model.vocab"),
    row("refused", edited(lambda it: it.update(decoder={"type": "Foo"})), "/tokenizer: tokenizer.json", "DecoderW"),
    row("no Jinja", with_template("{% if %}"), "template 'default', line 1", "chat_template.jinja"),
    row("a template that is a number", with_template(5), "got: int", "Jinja source"),
    row(
        "a template that refuses",
        with_template("{{ raise_exception('roles must alternate') }}"),
        "template_error: ",
        "roles must alternate",
        "mend the conversation",
    ),
    row(
        "a template alone that refuses",
        lambda p: ChatTemplate("{{ raise_exception('no system') }}").render(HELLO),
        "TemplateError: no system",
        "mend the conversation, or the template",
    ),
    row(
        "no template",
        lambda p: Tokenizer(write_toy_tokenizer(p / "toy", template=None)).encode_chat(HELLO),
        "tokenizer.chat_template",
        kind=TokenizerStateError,
    ),
    row("not loaded", lambda p: Tokenizer().encode("a"), "Tokenizer.from_pretrained(DIR)", kind=TokenizerStateError),
    row("a date", good(lambda it: it.encode_chat(HELLO, template_date="May")), "'May'", "2024-07-26", "YYYY-MM-DD"),
    row("a role option", good(lambda it: it.encode_chats([HELLO], scope="mesage")), "'mesage'", "mean 'message'"),
    row("no messages", good(lambda it: it.encode_chat([{"role": "user"}])), "not_a_conversation: ", '"content": "..."'),
    row("a backend", lambda p: Tokenizer(p.tokenizer, backend="fast"), "'fast'", "tokenizers or fastokens"),
    row("a backend that differs", other_backend, "tokenizer.backend", "WordLevel", '"auto" or "tokenizers"'),
    row("half a character in a text", good(lambda it: it.encode("a\ud83d")), "text 0", "\\ud83d", "lone surrogates"),
    row(
        "a special token in a text",
        lambda p: Tokenizer(write_pieces(p / "toy", added=[])).encode_batch(["a", "b</s>"], special_tokens="text"),
        "text 1",
        "'</s>' (id 1)",
        'special_tokens="parse"',
    ),
    row("an id too large", good(lambda it: it.decode([9999])), "got: 9999", "0 to 452", "another tokenizer's"),
    row("bytes of words", toy(lambda it: it.token_bytes), "is_byte_level"),
    row("a post-processor", edited(doubles, lambda it: it.post_prefix), "post_processor in tokenizer.json", "before"),
    row("no BOS for chats", chat_without_bos, "'<|start|>'", "set bos_token to null"),
    row("no EOS", no_eos, "append_eos", "special tokens ['bos_token']", "set append_eos to false", kind=AstraiError),
    row("too small", train(99), "got: 99", "at least 261", "16384", mend=mend_vocab_size),
    row("too large", train(10**9), "got: 1000000000", "16,777,216"),
    row("a file as destination", train_into_file, "texts.jsonl", "got: a file", "--output"),
    row("a destination in use", train_over, "--overwrite", mend=lambda p: p.options.append("--overwrite")),
    row("a destination that cannot be", train_below_file, "texts.jsonl/new", "Not a directory", "--output"),
]
