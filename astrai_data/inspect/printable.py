"""Text from data made safe for a terminal.

Data may hold escape sequences, carriage returns and directional marks that would recolour, overwrite or reorder what
the reader sees. They are shown as escapes and never sent; line breaks and tabs stay in running text, and are shown as
escapes in table cells.
"""

import re

_UNSAFE = (
    "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u2028\\u2029\\u200b-\\u200f\\u202a-\\u202e\\u2060-\\u2069\\ufeff\\ud800-\\udfff"
)
_IN_TEXT = re.compile(f"[{_UNSAFE}]")
_IN_CELL = re.compile(f"[{_UNSAFE}\\t\\n]")
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\x1b": "\\e"}


def printable(text: str) -> str:
    """`text` with everything escaped that a terminal would obey, line feeds and tabs excepted."""
    return _IN_TEXT.sub(_escape, text)


def printable_cell(text: str) -> str:
    """`text` on one line, with everything escaped that a terminal would obey."""
    return _IN_CELL.sub(_escape, text)


def shorten_middle(text: str, most: int) -> str:
    """At most about `most` characters of `text`: both ends, and how much is left out between them."""
    if len(text) <= most + 40:
        return text
    return f"{text[: most // 2]} … {len(text) - most:,} characters left out … {text[len(text) - most // 2 :]}"


def _escape(match: re.Match) -> str:
    point = ord(match[0])
    return _SHORT.get(match[0]) or (f"\\x{point:02x}" if point < 256 else f"\\u{point:04x}")
