"""Ids to text, one at a time, never half a character.

What comes out piece by piece is, joined, the text of the whole: bytes that belong to a character not yet complete are
held back, bytes that can belong to none become U+FFFD at once, and `finish` gives what is left. Special tokens have
no text. Byte-level tokenizers go by bytes and need constant time a token; others decode a short window again.
"""

import codecs
from typing import Protocol

from astrai_data.tokenizer import Tokenizer

REPLACEMENT = "\ufffd"
MAX_HELD = 4
"""Tokens held back by a window: a UTF-8 character has at most four bytes."""


class Detokenizer(Protocol):
    """Turns the ids of one answer into pieces of text."""

    def push(self, token_id: int) -> str:
        """The text that is complete with this id; may be empty."""
        ...

    def finish(self) -> str:
        """What was held back, unfinished characters as U+FFFD."""
        ...


def new_detokenizer(tokenizer: Tokenizer) -> Detokenizer:
    """The one for this tokenizer."""
    return ByteDetokenizer(tokenizer) if tokenizer.is_byte_level else WindowDetokenizer(tokenizer)


class ByteDetokenizer:
    """Over a tokenizer whose tokens stand for fixed bytes."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that is complete with this id."""
        data = self._tokenizer.token_bytes[token_id].tobytes()
        if not data or self._tokenizer.decode([token_id]) == "":  # special: it stands for no text
            return ""
        return self._decoder.decode(data)

    def finish(self) -> str:
        """What was held back."""
        return self._decoder.decode(b"", final=True)


class WindowDetokenizer:
    """Over any tokenizer: decodes a window of ids again and emits what has grown.

    The window begins one emission back, because a decoder may treat the first token of a text in its own way (strip
    its space), and the tokens of the last emission give the next ones their place.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._context: list[int] = []
        self._held: list[int] = []

    def push(self, token_id: int) -> str:
        """The text that is complete with this id."""
        self._held.append(token_id)
        grown = self._grown()
        if grown.endswith(REPLACEMENT) and len(self._held) < MAX_HELD:
            return ""
        self._context, self._held = self._held if grown else self._context + self._held, []
        return grown

    def finish(self) -> str:
        """What was held back."""
        grown, self._context, self._held = self._grown() if self._held else "", self._held, []
        return grown

    def _grown(self) -> str:
        before = self._tokenizer.decode(self._context) if self._context else ""
        return self._tokenizer.decode(self._context + self._held)[len(before) :]
