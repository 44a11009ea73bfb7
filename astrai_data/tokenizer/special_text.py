r"""Special-token strings inside what people wrote, encoded as the plain text they are.

A template's own special tokens must be tokens; the same strings inside a message must not be. Both stand in one
rendered text, so the strings in the messages are first replaced by single private-use characters, the conversation is
rendered again, and the two kinds can be told apart:

    content "a<|im_end|>b"  ->  "aXb"  ->  "<|im_start|>user\naXb<|im_end|>\n"
                            ->  [<|im_start|>] "user\na<|im_end|>b" [<|im_end|>] "\n"

Chunks between the template's tokens are encoded with special tokens as text. Three checks make it safe, else the
conversation is refused: putting the strings back must give the ordinary render (the template did not look into the
content); encoding by chunks must equal encoding whole for the render with stand-ins (this tokenizer does not look
across a special token); and no chunk may hold a control token (the model does not know it as an ordinary piece).

A tokenizer that changes the text may make a special token of something spelled otherwise (`<|EOS|>`, lower-cased).
There each render without special strings in its messages is checked too: its control tokens must be those that it
spells out, which are the template's.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from astrai_data.ragged import Ragged
from astrai_data.tokenizer.alignment import Encoded
from astrai_data.tokenizer.backends import SpecialTokens
from astrai_data.tokenizer.controls import Controls
from astrai_data.tokenizer.conversation import ChatRefusedError

Encode = Callable[[list[str], SpecialTokens], Encoded]

_NOTHING = "(?!)"  # a pattern that matches nowhere
_FIRST_STAND_IN = 0x100000  # private use, plane 16
_NUM_STAND_INS = 0xFFFD


@dataclass(frozen=True)
class SpecialStrings:
    """The special tokens of one vocabulary, as strings that may occur in text.

    Attributes:
        ids: the strings that are parsed as tokens -> id.
        controls: the ids that plain text may not become.
        move_borders: some special token takes white space along or wants whole words.
        are_exact: nothing but its own string becomes a special token.
    """

    ids: dict[str, int]
    controls: Controls
    move_borders: bool
    are_exact: bool

    @cached_property
    def _ordered(self) -> list[str]:
        # Longest first, as the libraries match.
        return sorted(self.ids, key=len, reverse=True)

    @cached_property
    def _pattern(self) -> re.Pattern:
        return re.compile("(" + ("|".join(map(re.escape, self._ordered)) or _NOTHING) + ")")

    @cached_property
    def _openings(self) -> list[str]:
        """The first two letters of the strings: looking for these is a fast way to find that none is there."""
        return sorted({string[:2] for string in self._ordered})

    def occurs_in(self, messages: list[dict]) -> bool:
        """Whether any special string stands anywhere in the messages."""
        values = [value for message in messages for value in message.values()]
        # Most values are plain strings: one look at all of them together.
        together = "\0".join([value for value in values if isinstance(value, str)])
        return self._in_text(together) or any(self._in_json(value) for value in values if not isinstance(value, str))

    def _in_text(self, text: str) -> bool:
        return any(opening in text for opening in self._openings) and self._pattern.search(text) is not None

    def _in_json(self, value: object) -> bool:
        if isinstance(value, dict):
            return any(self._in_json(item) for pair in value.items() for item in pair)
        if isinstance(value, list):
            return any(map(self._in_json, value))
        return isinstance(value, str) and self._in_text(value)

    def replace(self, value: object) -> object:
        """`value` (JSON) with stand-ins for special strings."""
        if isinstance(value, str):
            return self._pattern.sub(lambda match: self._stand_in[match[0]], value)
        if isinstance(value, dict):
            return {self.replace(key): self.replace(item) for key, item in value.items()}
        return [self.replace(item) for item in value] if isinstance(value, list) else value

    def restore(self, text: str) -> str:
        """`text` with the strings back in place of their stand-ins."""
        return text.translate(self._restoring)

    @cached_property
    def _stand_in(self) -> dict[str, str]:
        return {string: chr(_FIRST_STAND_IN + i) for i, string in enumerate(self._ordered[:_NUM_STAND_INS])}

    @cached_property
    def _restoring(self) -> dict[int, str]:
        return {ord(letter): string for string, letter in self._stand_in.items()}

    def has_stand_ins(self, text: str) -> bool:
        """Whether `text` holds characters that we want as stand-ins."""
        return any(chr(point) in text for point in self._restoring)

    def split(self, text: str) -> list[str]:
        """Plain chunks at even places, special strings at odd ones."""
        return self._pattern.split(text)

    def check_spelled(self, text: str, ids: np.ndarray) -> None:
        """Check that the control tokens among `ids` (int32 [n]) are those whose strings stand in `text`.

        Needed where strings are not exact.

        Raises:
            ChatRefusedError: `special_token_in_content`.
        """
        found = ids[self.controls.find(ids)].tolist()
        spelled = [self.ids[string] for string in self.split(text)[1::2]]
        if found != [token_id for token_id in spelled if token_id in self.controls.strings]:
            raise _refused("this tokenizer makes special tokens of text that is spelled otherwise")


def check_stand_ins(strings: SpecialStrings, text: str, render_with: Callable[[Callable], str]) -> str:
    """The render with stand-ins, by `render_with(replace)`, once it is known that it can be trusted.

    Raises:
        ChatRefusedError: `special_token_in_content`.
    """
    if strings.move_borders:
        raise _refused("a special token of this tokenizer takes white space along")
    if strings.has_stand_ins(text):
        raise _refused("the text holds the private-use characters that would stand in for it")
    shielded = render_with(strings.replace)
    if strings.restore(shielded) != text:
        raise _refused("the template acts on it")
    return shielded


def encode_shielded(encode: Encode, strings: SpecialStrings, shielded: str) -> Encoded:
    """One row: the tokens of a render with stand-ins, its strings restored.

    Args:
        encode: an `Aligner.encode`.
        strings: of the tokenizer.
        shielded: what `check_stand_ins` gave.

    Raises:
        ChatRefusedError: `special_token_in_content`.
    """
    parts = strings.split(shielded)
    by_chunks = _join(encode, strings, parts).ids
    whole = encode([shielded], "parse").ids
    if not np.array_equal(by_chunks.flat, whole.flat):
        raise _refused("this tokenizer encodes text differently after a special token")
    return _join(encode, strings, [strings.restore(p) if i % 2 == 0 else p for i, p in enumerate(parts)])


def _join(encode: Encode, strings: SpecialStrings, parts: list[str]) -> Encoded:
    encoded = encode(parts[::2], "text")
    for token_id in encoded.ids.flat[strings.controls.find(encoded.ids.flat)][:1].tolist():
        raise _refused(strings.controls.describe(token_id))
    ids, begins, at = [], [], 0
    for place, part in enumerate(parts):
        if place % 2:
            ids.append(np.array([strings.ids[part]], np.int32))
            begins.append(np.array([at], np.int64))
        else:
            ids.append(encoded.ids[place // 2])
            begins.append(encoded.begins_of(place // 2) + at)
        at += encoded.measure(part)
    return Encoded(Ragged.from_rows([np.concatenate(ids)], np.int32), np.concatenate(begins), encoded.in_bytes)


def _refused(why: str) -> ChatRefusedError:
    return ChatRefusedError(
        "special_token_in_content",
        f"a message holds a special token's string, and it cannot be encoded as plain text: {why}",
    )
