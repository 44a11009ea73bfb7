"""Reading configuration files: strict JSON, with errors that show the line."""

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from astrai_data.errors import PipelineConfigError

MAX_GOT_CHARS = 60


def read_object(path: Path) -> Any:
    """What a UTF-8 JSON file holds.

    Raises:
        PipelineConfigError: not readable, not UTF-8, not JSON (with line and column), or a key given twice.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise PipelineConfigError(
            "cannot read the configuration",
            where=path,
            got=error.strerror,
            wanted="a JSON file that you may read",
            hint="check the path; if it is right, have the file's owner let you read it",
        ) from None
    except UnicodeDecodeError as error:
        where = f"{path}, byte {error.start}"
        raise PipelineConfigError(
            "the configuration is not UTF-8",
            where=where,
            got=f"{error.object[error.start : error.start + 1]!r}: {error.reason}",
            wanted="a JSON file in UTF-8",
            hint="save the file as UTF-8",
        ) from None
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise _syntax_error(path, error) from None
    except RecursionError:
        what, wanted = "the configuration is nested too deeply to be read", "an object as the documentation shows it"
        got = f"{max(text.count('['), text.count('{')):,} opening brackets"
        raise PipelineConfigError(
            what, where=path, got=got, wanted=wanted, hint="take the needless brackets out"
        ) from None
    except _NotOurJsonError as error:
        what, got, wanted, hint = error.args
        raise PipelineConfigError(what, where=path, got=got, wanted=wanted, hint=hint) from None


def placer(folder: Path) -> Callable[[str], str]:
    """A function that turns paths relative to the folder into absolute ones; URLs stay as they are."""
    absolute = Path(os.path.abspath(folder))
    return lambda path: path if "://" in path else str(absolute / path)


def _syntax_error(path: Path, error: json.JSONDecodeError) -> PipelineConfigError:
    line = error.doc.splitlines()[error.lineno - 1] if error.doc.strip() else ""
    before = error.doc[: error.pos].rstrip()
    hint = "mend this place: strings and keys stand in double quotes, and a comma between two entries"
    if before.endswith(",") and error.doc[error.pos :].lstrip()[:1] in ("}", "]"):
        hint = "take out the comma before the closing bracket"
    elif line.lstrip().startswith(("//", "#", "/*")):
        hint = "take out the comment; JSON has none"
    return PipelineConfigError(
        f"the configuration is not valid JSON: {error.msg[:1].lower()}{error.msg[1:]}",
        where=f"{path}, line {error.lineno}, column {error.colno}",
        got=line.strip() or "an empty line",
        wanted="JSON",
        hint=hint,
    )


class _NotOurJsonError(ValueError):
    """JSON that Python would read and that no configuration should hold: (what, got, wanted, hint)."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for key, count in Counter(key for key, _ in pairs).items():
        if count > 1:
            values = " and ".join(
                json.dumps(value, ensure_ascii=False)[:MAX_GOT_CHARS] for k, value in pairs if k == key
            )
            what = f'the key "{key}" is given twice in one object'
            raise _NotOurJsonError(what, values, "each key once", "take out the one that you do not mean")
    return dict(pairs)


def _no_constant(name: str) -> float:
    raise _NotOurJsonError(f"{name} is not a JSON number", name, "a finite number", "write a number, or null")
