"""DuckDB's complaints about a query, as ours: what, where in the query, and the nearest name that exists.

Views and columns are listed only for a name that is unknown, those with a name near it first.
"""

import re
import shutil
import textwrap
from collections.abc import Sequence
from difflib import get_close_matches

from astrai_data.errors import StoreError
from astrai_data.inspect.printable import shorten_middle

FUNCTIONS = ("decode", "encode", "piece")
MAX_QUERY_CHARS = 120
NUM_NEAREST = 3

_PLACE = re.compile(r"^LINE (\d+): (.*)\n( *)\^", re.MULTILINE)
_UNKNOWN = re.compile(
    r'(?P<kind>[Tt]able|Function|column) (?:with name |named )?"?(?P<name>[^"\s!]+)"? (?:does not exist|not found)'
    r'|does not have a column named "(?P<column>[^"]+)"'
)


def as_store_error(error: Exception, sql: str, views: dict[str, list[str]]) -> StoreError:
    """`error`, raised by DuckDB for `sql`, as a `StoreError`; `views`: the columns of every view."""
    message = str(error)
    what = re.sub(r"^[A-Za-z ]+ Error:\s*", "", message).split("\n", 1)[0].strip()
    return StoreError(
        f"the query cannot be answered: {what}",
        where=_place(message),
        got=_line(message) or shorten_middle(" ".join(sql.split()), MAX_QUERY_CHARS),
        wanted="one SELECT, in DuckDB's SQL",
        hint=_hint(message, sql, views),
    )


def _place(message: str) -> str:
    found = _PLACE.search(message)
    if found is None:
        return "the SQL query"
    place = f"the SQL query, line {found[1]}"
    if found[2].startswith("..."):  # DuckDB shows a window of a long line
        return place
    return f"{place}, column {len(found[3]) - len(f'LINE {found[1]}: ') + 1}"


def _line(message: str) -> str | None:
    found = _PLACE.search(message)
    return found[2] if found else None


def _hint(message: str, sql: str, views: dict[str, list[str]]) -> str | None:
    if "disabled by configuration" in message or "has been locked" in message:
        return "queries see only the store; --allow-files lets them reach files"
    found = _UNKNOWN.search(message)
    if found is None:
        return None
    if found["kind"] in ("Table", "table"):
        return fit_terminal([*_advice(found["name"], list(views)), f"views: {', '.join(views)}"])
    if found["kind"] == "Function":
        return fit_terminal([*_advice(found["name"], FUNCTIONS), f"functions of a store: {', '.join(FUNCTIONS)}"])
    return fit_terminal(_columns_near(found["name"] or found["column"], sql, views))


def _columns_near(name: str, sql: str, views: dict[str, list[str]]) -> list[str]:
    """The nearest columns of the views that the query names, then all columns of these."""
    words = set(re.findall(r"\w+", sql.lower()))
    asked = {view: columns for view, columns in views.items() if view in words} or views
    known = list(dict.fromkeys(column for columns in asked.values() for column in columns))
    near = set(_nearest(name, known))
    ordered = sorted(asked, key=lambda view: not near & set(asked[view]))
    return [*_advice(name, known), *(f"{view}: {', '.join(asked[view])}" for view in ordered)]


def _advice(name: str, known: Sequence[str]) -> list[str]:
    near = _nearest(name, known)
    return [f"did you mean {' or '.join(map(repr, near))}?"] if near else []


def _nearest(name: str, known: Sequence[str]) -> list[str]:
    return get_close_matches(name.lower(), known, NUM_NEAREST)


def fit_terminal(lines: list[str]) -> str:
    """`lines` of a hint, folded where the terminal is narrower, as they stand behind and below `  try: `."""
    width = max(40, shutil.get_terminal_size().columns)
    indented = [" " * 7 + lines[0], *(" " * 4 + line for line in lines[1:])]
    return "\n".join(_fold(line, width) for line in indented).lstrip()


def _fold(line: str, width: int) -> str:
    options = {"subsequent_indent": " " * 6, "break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(line, width, **options)
