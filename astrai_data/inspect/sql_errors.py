"""DuckDB's complaints about a query, as ours: what, where in the query, and the nearest name that exists."""

import re
from difflib import get_close_matches

from astrai_data.errors import StoreError

FUNCTIONS = ("decode", "encode", "piece")

_PLACE = re.compile(r"^LINE (\d+): (.*)\n( *)\^", re.MULTILINE)
_UNKNOWN = re.compile(
    r'(?P<kind>Table|Function|column) (?:with name |named )?"?(?P<name>[^"\s!]+)"? (?:does not exist|not found)'
    r'|does not have a column named "(?P<column>[^"]+)"'
)


def as_store_error(error: Exception, sql: str, views: dict[str, list[str]]) -> StoreError:
    """`error`, raised by DuckDB for `sql`, as a `StoreError`; `views`: the columns of every view."""
    message = str(error)
    what = re.sub(r"^[A-Za-z ]+ Error:\s*", "", message).split("\n", 1)[0].strip()
    return StoreError(
        f"the query cannot be answered: {what}",
        where=_place(message),
        got=_line(message) or sql.strip(),
        hint=_hint(message, views),
    )


def describe_views(views: dict[str, list[str]]) -> str:
    """Every view and its columns, on one line."""
    return "; ".join(f"{name} ({', '.join(columns)})" for name, columns in views.items())


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


def _hint(message: str, views: dict[str, list[str]]) -> str:
    if "disabled by configuration" in message or "has been locked" in message:
        return "queries see only the store; --allow-files lets them reach files"
    found = _UNKNOWN.search(message)
    if found is None:
        return f"views: {describe_views(views)}; functions: {', '.join(FUNCTIONS)}"
    if found["kind"] == "Table":
        return _nearest(found["name"], list(views), "views")
    if found["kind"] == "Function":
        return _nearest(found["name"], list(FUNCTIONS), "functions of a store")
    columns = list(dict.fromkeys(column for names in views.values() for column in names))
    return _nearest(found["name"] or found["column"], columns, "columns", f"; {describe_views(views)}")


def _nearest(name: str, known: list[str], kind: str, more: str = "") -> str:
    near = get_close_matches(name.lower(), known, 1)
    advice = f"did you mean {near[0]!r}? " if near else ""
    return f"{advice}{kind}: {more[2:] or ', '.join(known)}"
