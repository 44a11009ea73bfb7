"""Folder names for domains: whatever a record calls its domain, its folder stays inside, and no two share one.

`wiki` -> `wiki`; `../evil` -> `%2E.%2Fevil`; `` -> `%empty`; no domain -> `__default__`, and a domain that is
called `__default__` -> `%5F_default__`. A `%` of the encoding is followed by two hex digits, by `empty` or by
`-`, so the three never meet; a `%` of the domain's own becomes `%25`.
"""

import hashlib
from urllib.parse import quote

DEFAULT = "__default__"
_MAX_CHARS, _KEPT_CHARS = 200, 120


def folder_of(domain: str | None) -> str:
    """The name of a domain's folder: ASCII, at most 200 characters, never hidden, different for different domains."""
    if domain is None:
        return DEFAULT
    if domain == "":
        return "%empty"
    name = quote(domain, safe="")  # keeps letters, digits, and _ . - ~
    if name[0] in ".~-" or name == DEFAULT:
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if len(name) > _MAX_CHARS:
        name = f"{name[:_KEPT_CHARS]}%-{hashlib.sha256(domain.encode()).hexdigest()}"
    return name
