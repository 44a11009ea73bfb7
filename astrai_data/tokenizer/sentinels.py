r"""Letters put into message contents to see where a template puts them.

A letter that no text of the conversation holds is written in front of a content, or behind it, and the conversation is
rendered again. If the render without the letters is the ordinary one, the template did not look into the content, and
the letter stands where the content does: in `<|im_start|>user` + `\n` + `user`, the second `user`.
"""

from collections.abc import Iterable
from itertools import islice

_PRIVATE_USE = range(0xF0000, 0xFFFFE)  # plane 15; stand-ins for special strings are of plane 16


def unused_letters(text: str, count: int) -> list[str]:
    """`count` private-use letters that do not occur in `text`; fewer if there are not so many."""
    return list(islice((letter for letter in map(chr, _PRIVATE_USE) if letter not in text), count))


def with_letter_in_front(message: dict, letter: str) -> dict:
    """The message with `letter` before its content, behind white space that a template may strip."""
    content = message["content"]
    place = len(content) - len(content.lstrip())
    return {**message, "content": content[:place] + letter + content[place:]}


def with_letter_behind(message: dict, letter: str) -> dict:
    """The message with `letter` after its content, before white space that a template may strip."""
    content = message["content"]
    place = len(content.rstrip())
    return {**message, "content": content[:place] + letter + content[place:]}


def without_letters(text: str, letters: Iterable[str]) -> str:
    """`text` with all of `letters` taken out."""
    return text.translate(dict.fromkeys(map(ord, letters)))
