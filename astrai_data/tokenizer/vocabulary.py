"""What `tokenizer.json` says about tokens: their strings and ids, which are special, and how text becomes bytes.

Read straight from the JSON, so that a worker which encodes with the accelerated backend never has to build the
other one.
"""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import orjson

from astrai_data.errors import TokenizerError

_SEQUENCE_KEYS = ("pretokenizers", "normalizers", "decoders", "processors")
_HARMLESS_NAMES = ("unk_token", "pad_token")
_WANTED = "a file of the `tokenizers` library: an object with model.vocab"
_HINT = "fetch the tokenizer again, or make one with `astrai tokenizer train`"


@dataclass(frozen=True)
class AddedToken:
    """One entry of `added_tokens`: matched before the model sees the text."""

    id: int
    content: str
    special: bool
    moves_borders: bool
    """Takes neighbouring white space along, or matches whole words only."""


@dataclass(frozen=True)
class Vocabulary:
    """Token strings and ids of one tokenizer.

    Attributes:
        ids: token string -> id, added tokens included.
        added: the added tokens, in file order.
        named: attribute name (`bos_token`) -> token string: what of the token map is in the vocabulary.
        unknown_id: what the model gives for text that it does not know; None if it has no such token.
        is_byte_level: tokens are spelled in the 256-letter byte alphabet, so decoding is gathering bytes.
        has_normalizer: the text is changed before it is tokenized.
        adds_prefix_space: a space is put in front of the text.
        may_add_ids: there is a post-processor that can put ids around a sequence.
    """

    ids: dict[str, int]
    added: tuple[AddedToken, ...]
    named: dict[str, str]
    unknown_id: int | None
    is_byte_level: bool
    has_normalizer: bool
    adds_prefix_space: bool
    may_add_ids: bool

    @classmethod
    def from_definition(cls, definition: dict, special_tokens: dict[str, str]) -> "Vocabulary":
        """Read a parsed `tokenizer.json`; `special_tokens` is the token map."""
        try:
            ids = _model_ids(definition["model"])
            unknown_id = _unknown_id(definition["model"], ids)
            added = tuple(_added_token(entry) for entry in definition.get("added_tokens") or ())
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TokenizerError(
                "tokenizer.json has no vocabulary that can be read",
                where="model.vocab and added_tokens in tokenizer.json",
                got=repr(error),
                wanted=_WANTED,
                hint=_HINT,
            ) from error
        ids.update((token.content, token.id) for token in added)
        steps = _steps(definition.get("pre_tokenizer")) + _steps(definition.get("normalizer"))
        byte_steps = [step for step in steps if step.get("type") == "ByteLevel"]
        decoder = _steps(definition.get("decoder"))
        post = _steps(definition.get("post_processor"))
        return cls(
            ids=ids,
            added=added,
            named={name: token for name, token in special_tokens.items() if token in ids},
            unknown_id=unknown_id,
            is_byte_level=bool(byte_steps) and [step.get("type") for step in decoder] == ["ByteLevel"],
            has_normalizer=bool(_steps(definition.get("normalizer"))),
            adds_prefix_space=any(step.get("add_prefix_space") for step in byte_steps),
            may_add_ids=any(step.get("type") != "ByteLevel" for step in post),
        )

    @cached_property
    def tokens(self) -> list[str | None]:
        """Token strings by id; None where an id is not used."""
        tokens: list[str | None] = [None] * (self.max_id + 1)
        for token, index in self.ids.items():
            tokens[index] = token
        return tokens

    def token(self, token_id: int) -> str | None:
        """The string of an id; None if it is not used."""
        return self.tokens[token_id] if 0 <= token_id < len(self.tokens) else None

    @property
    def added_strings(self) -> list[str]:
        """The strings of the added tokens, in file order."""
        return [token.content for token in self.added]

    @cached_property
    def max_id(self) -> int:
        """The largest id, -1 for an empty vocabulary."""
        return max(self.ids.values(), default=-1)

    @cached_property
    def special_ids(self) -> dict[str, int]:
        """Strings of the special added tokens -> id."""
        return {token.content: token.id for token in self.added if token.special}

    @cached_property
    def is_special(self) -> np.ndarray:
        """bool [max_id + 1]."""
        flags = np.zeros(self.max_id + 1, bool)
        flags[list(self.special_ids.values())] = True
        return flags

    @cached_property
    def control_ids(self) -> dict[str, int]:
        """What plain text may not become: special tokens, and those of the token map, -> id.

        Not among them are the token for unknown text, which must be something, and single letters that are named for
        padding only: some tokenizers pad with "!".
        """
        found = {token: i for token, i in self.special_ids.items() if i != self.unknown_id}
        for name, token in self.named.items():
            is_text = self.ids[token] == self.unknown_id or len(token) == 1
            if name not in _HARMLESS_NAMES or not is_text:
                found[token] = self.ids[token]
        return found

    @property
    def moves_borders(self) -> bool:
        """Whether some special token takes white space along or wants whole words."""
        return any(token.special and token.moves_borders for token in self.added)

    @property
    def keeps_bytes(self) -> bool:
        """Whether the bytes of the tokens, one after the other, are the bytes of the text."""
        return self.is_byte_level and not self.has_normalizer and not self.adds_prefix_space


def parse_definition(tokenizer_json: str, special: Collection[str] = ()) -> dict:
    """`tokenizer.json` as an object, with padding, truncation and BPE dropout switched off.

    Stored padding and truncation would act on every call, and dropout would make two runs differ. The added tokens
    in `special` count as special, whatever the file says: published files contradict their token map.
    """
    try:
        definition = orjson.loads(tokenizer_json)
    except orjson.JSONDecodeError as error:
        what = "tokenizer.json is not JSON"
        raise TokenizerError(what, where="tokenizer.json", got=error, wanted=_WANTED, hint=_HINT) from error
    if not isinstance(definition, dict) or not isinstance(definition.get("model"), dict):
        got = sorted(definition)[:8] if isinstance(definition, dict) else type(definition).__name__
        where = "model in tokenizer.json"
        raise TokenizerError("tokenizer.json has no model", where=where, got=got, wanted=_WANTED, hint=_HINT)
    definition["padding"] = definition["truncation"] = None
    if definition["model"].get("dropout"):
        definition["model"]["dropout"] = None
    added = definition.get("added_tokens")
    for entry in added if isinstance(added, list) else ():
        if isinstance(entry, dict) and entry.get("content") in special:
            entry["special"] = True
    return definition


def hash_ids(definition: dict, special_tokens: dict[str, str]) -> str:
    """`ids_sha256` of the store format: what decides whether two tokenizers give the same ids."""
    deciding = {key: value for key, value in definition.items() if key not in ("padding", "truncation")}
    whole = _without_fractions({"tokenizer": deciding, "special_tokens": special_tokens})
    return hashlib.sha256(orjson.dumps(whole, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _without_fractions(value: object) -> object:
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return {key: _without_fractions(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_fractions(item) for item in value]
    return value


def _model_ids(model: dict) -> dict[str, int]:
    vocab = model["vocab"]
    if isinstance(vocab, list):  # Unigram: [piece, score] in id order
        return {piece: index for index, (piece, _) in enumerate(vocab)}
    return dict(vocab)


def _unknown_id(model: dict, ids: dict[str, int]) -> int | None:
    token = model.get("unk_token")
    return ids.get(token) if isinstance(token, str) else model.get("unk_id")


def _added_token(entry: dict) -> AddedToken:
    moves = any(entry.get(flag) for flag in ("lstrip", "rstrip", "single_word"))
    return AddedToken(entry["id"], entry["content"], bool(entry.get("special")), moves)


def _steps(component: dict | None) -> list[dict]:
    """The members of a normaliser, pre-tokenizer, post-processor or decoder, sequences unfolded."""
    if not component:
        return []
    if component.get("type") != "Sequence":
        return [component]
    members = next((component[key] for key in _SEQUENCE_KEYS if key in component), [])
    return [step for member in members for step in _steps(member)]
