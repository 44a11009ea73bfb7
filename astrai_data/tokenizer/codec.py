"""Text to ids and back: vocabulary, backend and token bytes of one `tokenizer.json`.

Everything is built on first use, so a process that only decodes never opens a backend. Pickles as the JSON text and
the backend's name.
"""

from functools import cached_property

import numpy as np
import orjson

from astrai_data.errors import TokenizerError
from astrai_data.ragged import Ragged
from astrai_data.tokenizer.alignment import Aligner
from astrai_data.tokenizer.backends import (
    SPECIAL_TOKENS_CHOICES,
    Backend,
    SpecialTokens,
    TokenizersBackend,
    check_backend_name,
    open_backend,
)
from astrai_data.tokenizer.choices import check_choice
from astrai_data.tokenizer.controls import Controls
from astrai_data.tokenizer.decoding import build_token_bytes, check_ids, decode_rows, drop_special
from astrai_data.tokenizer.special_text import SpecialStrings
from astrai_data.tokenizer.vocabulary import Vocabulary, hash_ids, parse_definition

_PROBES = ("a", "", "A b", "\n", "1 2 3", "é漢🙂")


class Codec:
    """One `tokenizer.json` over one backend.

    Attributes:
        tokenizer_json: the text as it was.
        special_tokens: the token map, attribute name -> token string.
        backend_name: `tokenizers` or `fastokens`.
    """

    def __init__(self, tokenizer_json: str, special_tokens: dict[str, str], backend_name: str) -> None:
        self.tokenizer_json, self.special_tokens = tokenizer_json, special_tokens
        self.backend_name = check_backend_name(backend_name)

    def __reduce__(self):
        return Codec, (self.tokenizer_json, self.special_tokens, self.backend_name)

    def with_backend(self, name: str) -> "Codec":
        """The same over another backend; what was found out of the files is not found out again."""
        other = Codec(self.tokenizer_json, self.special_tokens, name)
        known = {key: self.__dict__[key] for key in ("vocabulary", "ids_sha256") if key in self.__dict__}
        other.__dict__.update(known)
        return other

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Token strings and ids."""
        return Vocabulary.from_definition(self._definition, self.special_tokens)

    @property
    def missing_tokens(self) -> dict[str, str]:
        """What of the token map is not in the vocabulary, and so counts as absent: attribute name -> token string."""
        return {name: token for name, token in self.special_tokens.items() if token not in self.vocabulary.ids}

    @cached_property
    def ids_sha256(self) -> str:
        """What decides the ids, as one hash: `tokenizer.json` without padding and truncation, and the token map."""
        return hash_ids(parse_definition(self.tokenizer_json), self.special_tokens)

    @cached_property
    def backend(self) -> Backend:
        """The backend that encodes."""
        if self.backend_name == TokenizersBackend.name:
            return self.truth
        return open_backend(self.backend_name, self._clean_json)

    @cached_property
    def truth(self) -> TokenizersBackend:
        """The `tokenizers` library, for what only it can do."""
        return TokenizersBackend(self._clean_json)

    @property
    def _definition(self) -> dict:
        return parse_definition(self.tokenizer_json, self.special_tokens.values())

    @property
    def _clean_json(self) -> str:
        return orjson.dumps(self._definition).decode()

    @cached_property
    def controls(self) -> Controls:
        """The ids that plain text may not become."""
        return Controls({token_id: token for token, token_id in self.vocabulary.control_ids.items()})

    @cached_property
    def strings(self) -> SpecialStrings:
        """The special tokens as strings in text: those that text is parsed into, which a named token need not be."""
        vocabulary = self.vocabulary
        ids = vocabulary.special_ids | vocabulary.control_ids
        alone = zip(ids.items(), self.encode_batch(list(ids), "parse"), strict=True)
        parsed = {token: token_id for (token, token_id), row in alone if token and token_id in row}
        return SpecialStrings(parsed, self.controls, vocabulary.moves_borders, vocabulary.keeps_bytes)

    @cached_property
    def token_bytes(self) -> Ragged:
        """uint8, one row an id.

        Raises:
            TokenizerError: the tokenizer is not byte-level.
        """
        if not self.vocabulary.is_byte_level:
            raise TokenizerError(
                "only tokens of a byte-level tokenizer stand for fixed bytes",
                where="token_bytes",
                got="a tokenizer without a ByteLevel pre-tokenizer and decoder",
                wanted="a byte-level tokenizer",
                hint="ask `is_byte_level` first, and use `decode` for the others",
            )
        return build_token_bytes(self.vocabulary)

    @cached_property
    def aligner(self) -> Aligner:
        """Encodes texts so that places in them can be found again."""
        lengths = self.token_bytes.lengths if self.vocabulary.keeps_bytes else None
        return Aligner(self.backend, lambda: self.truth, lengths)

    @property
    def post_prefix(self) -> tuple[int, ...]:
        """The ids that the post-processor would put in front of one sequence."""
        return self.post_affixes[0]

    @property
    def post_suffix(self) -> tuple[int, ...]:
        """The ids that the post-processor would put behind one sequence."""
        return self.post_affixes[1]

    @cached_property
    def post_affixes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids that the post-processor puts before and after one sequence.

        Raises:
            TokenizerError: it does something else than put fixed ids around a sequence.
        """
        if not self.vocabulary.may_add_ids:
            return (), ()
        library = self.truth.parsing
        first = library.encode(_PROBES[0])
        plain = np.flatnonzero(np.equal(first.special_tokens_mask, 0))
        begin, end = (int(plain[0]), int(plain[-1]) + 1) if len(plain) else (0, 0)
        prefix, suffix = first.ids[:begin], first.ids[end:]
        for probe in _PROBES:
            bare = library.encode(probe, add_special_tokens=False).ids
            full = library.encode(probe).ids
            if full != prefix + bare + suffix:
                raise TokenizerError(
                    "the post-processor does more than put fixed tokens around a sequence",
                    where="post_processor in tokenizer.json",
                    got=f"{full} for {probe!r}, which is {bare} alone",
                    wanted=f"{prefix} before and {suffix} after",
                    hint="take the post_processor out, or encode with add_special_tokens: false",
                )
        return tuple(prefix), tuple(suffix)

    def encode_batch(self, texts: list[str], special_tokens: SpecialTokens) -> Ragged:
        """int32 ids, one row a text; not yet checked for control tokens.

        Raises:
            TokenizerError: an unknown choice; a text is no string, or holds half a character (a lone surrogate).
        """
        check_choice("special_tokens", special_tokens, SPECIAL_TOKENS_CHOICES)
        try:
            return self.backend.encode_batch(texts, special_tokens)
        except (TypeError, UnicodeEncodeError) as error:
            bad = next((text for text in texts if not _is_text(text)), None)
            got = repr(bad)[:80]
            where = f"text {next((number for number, text in enumerate(texts) if text is bad), 0)}"
            wanted, hint = "strings of whole characters", "take out lone surrogates, and what is no string"
            what = "a text cannot be encoded"
            raise TokenizerError(what, where=where, got=got, wanted=wanted, hint=hint) from error

    def encode_texts(self, texts: list[str], special_tokens: SpecialTokens) -> tuple[Ragged, dict[int, str]]:
        """`encode_batch`, and the rows in which plain text became a control token: emptied, row number -> why."""
        rows = self.encode_batch(texts, special_tokens)
        return self.controls.refuse(rows) if special_tokens == "text" else (rows, {})

    def encode(self, text: str | list, out_ids: bool, is_pretokenized: bool, add_special_tokens: bool) -> list:
        """One text or a list of them, as Python lists of ids or token strings; see `Tokenizer.encode`."""
        one = isinstance(text, str) if not is_pretokenized else not text or isinstance(text[0], str)
        batch = [text] if one else text
        if is_pretokenized:
            words = self.truth.parsing.encode_batch(batch, is_pretokenized=True, add_special_tokens=False)
            rows = [encoding.ids for encoding in words]
        else:
            rows = [row.tolist() for row in self.encode_batch(batch, "parse")]
        if add_special_tokens:
            prefix, suffix = self.post_affixes
            rows = [[*prefix, *row, *suffix] for row in rows]
        if not out_ids:
            rows = [[self.vocabulary.tokens[token_id] for token_id in row] for row in rows]
        return rows[0] if one else rows

    def decode_batch(self, ids: Ragged, skip_special_tokens: bool) -> list[str]:
        """One string a row.

        Raises:
            TokenizerError: an id is outside the vocabulary.
        """
        vocabulary = self.vocabulary
        if skip_special_tokens:
            ids = drop_special(ids, vocabulary.is_special)
        if vocabulary.is_byte_level:
            return decode_rows(self.token_bytes, ids)
        check_ids(ids.flat, vocabulary.max_id + 1)
        return self.truth.parsing.decode_batch([row.tolist() for row in ids], skip_special_tokens=False)


def _is_text(text: object) -> bool:
    try:
        return isinstance(text, str) and bool(text.encode() or True)
    except UnicodeEncodeError:
        return False
