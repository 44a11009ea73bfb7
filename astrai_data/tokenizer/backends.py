"""The libraries that turn text into ids, behind one protocol.

`tokenizers` is the truth. `fastokens` is the accelerated one; it is used only where `verification` found it equal.
Neither ever runs the post-processor here: what stands around a sequence is the tokenizer's business. Both are built
from the JSON text, never from a path, and both know special-token strings as tokens (`parse`) or as plain text
(`text`).

What limits `fastokens` is looking words up in its cache, one a thread; `tokenizers` builds Python lists of its ids.
"""

from collections.abc import Callable
from functools import cached_property
from itertools import chain
from typing import Literal, Protocol, get_args

import numpy as np
import tokenizers as tk

from astrai_data.errors import TokenizerError
from astrai_data.ragged import Ragged, offsets_of
from astrai_data.tokenizer.choices import check_choice

SpecialTokens = Literal["parse", "text"]
SPECIAL_TOKENS_CHOICES: tuple[SpecialTokens, ...] = get_args(SpecialTokens)


class Backend(Protocol):
    """Encodes many texts in one call."""

    name: str

    def encode_batch(self, texts: list[str], special_tokens: SpecialTokens) -> Ragged:
        """int32 ids, one row a text."""
        ...


class TokenizersBackend:
    """The `tokenizers` library."""

    name = "tokenizers"

    def __init__(self, tokenizer_json: str) -> None:
        self._json = tokenizer_json
        self.parsing = self._build(as_text=False)

    @cached_property
    def _as_text(self) -> tk.Tokenizer:
        # The switch is state of the object, so each setting has its own: threads share them.
        return self._build(as_text=True)

    def _build(self, *, as_text: bool) -> tk.Tokenizer:
        tokenizer = _checked(lambda: tk.Tokenizer.from_str(self._json))
        tokenizer.encode_special_tokens = as_text
        return tokenizer

    def encode_batch(self, texts: list[str], special_tokens: SpecialTokens) -> Ragged:
        """int32 ids, one row a text."""
        encodings = self._of(special_tokens).encode_batch_fast(texts, add_special_tokens=False)
        rows = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return Ragged(np.fromiter(chain.from_iterable(rows), np.int32, lengths.sum()), offsets_of(lengths))

    def encode_with_begins(self, texts: list[str], special_tokens: SpecialTokens) -> tuple[Ragged, np.ndarray]:
        """Ids as `encode_batch` gives them, and int64 [total]: the character of its text where each token begins."""
        encodings = self._of(special_tokens).encode_batch(texts, add_special_tokens=False)
        ids = Ragged.from_rows([encoding.ids for encoding in encodings], np.int32)
        spans = list(chain.from_iterable(encoding.offsets for encoding in encodings))
        return ids, np.array(spans, np.int64).reshape(-1, 2)[:, 0]

    def _of(self, special_tokens: SpecialTokens) -> tk.Tokenizer:
        return self._as_text if special_tokens == "text" else self.parsing


class FastokensBackend:
    """The `fastokens` library; refuses what it cannot tokenize, Metaspace pre-tokenizers for one."""

    name = "fastokens"

    def __init__(self, tokenizer_json: str) -> None:
        import fastokens  # a library that the other backend does not need

        self._tokenizer = _checked(lambda: fastokens.Tokenizer.from_json_str(tokenizer_json))

    def encode_batch(self, texts: list[str], special_tokens: SpecialTokens) -> Ragged:
        """int32 ids, one row a text; read-only views of the library's buffers."""
        as_text = special_tokens == "text"
        ids, offsets = self._tokenizer.encode_batch_flat(texts, False, as_text)
        return Ragged(np.frombuffer(ids, np.int32), np.frombuffer(offsets, np.int64))


_BACKENDS = {backend.name: backend for backend in (TokenizersBackend, FastokensBackend)}
BACKEND_NAMES = tuple(_BACKENDS)


def check_backend_name(name: str) -> str:
    """`name` if it is a backend's.

    Raises:
        TokenizerError: it is not; the nearest known name is in the hint.
    """
    check_choice("tokenizer backend", name, BACKEND_NAMES)
    return name


def open_backend(name: str, tokenizer_json: str) -> Backend:
    """Build a backend from the text of `tokenizer.json`.

    Raises:
        TokenizerError: the name is unknown, or the library refuses the tokenizer.
    """
    return _BACKENDS[check_backend_name(name)](tokenizer_json)


def _checked(build: Callable):
    try:
        return build()
    except Exception as error:  # both libraries raise bare exceptions of their own making
        raise TokenizerError(
            "tokenizer.json is refused",
            where="tokenizer.json",
            got=error,
            wanted="a file that the `tokenizers` library reads",
            hint="fetch the tokenizer again, or write it anew with that library's `Tokenizer.save`",
        ) from error
