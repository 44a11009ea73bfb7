"""What is wrong with a configuration, in the user's words: where, what, got, wanted, try.

All problems of one configuration become one `PipelineConfigError`. The validation library's own messages are
never shown: each of its error kinds has its words here.
"""

import difflib
import json
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import ValidationError

from astrai_data.config.part import ConfigPart
from astrai_data.errors import AstraiError, PipelineConfigError

MAX_GOT_CHARS = 120
WANTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a string",
    "string_unicode": "a name in UTF-8; its folder, or a glob such as dir/*, reaches a file with another",
    "string_too_short": "a string that is not empty",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "unknown_version": "1 or 2",
    "not_a_date": "a date such as 2024-07-26",
}
KINDS = {str: "a string", int: "a whole number", float: "a number", bool: "true or false", tuple: "a list"}

Location = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. `where` is a key path such as `input.sections[0].action`."""

    where: str | None
    what: str
    got: str | None = None
    wanted: str | None = None
    hint: str | None = None

    def __str__(self) -> str:
        lines = [("got", self.got), ("wanted", self.wanted), ("try", self.hint)]
        head = f"{self.where}: {self.what}" if self.where else self.what
        return "\n".join([head] + [f"     {name}: {text}" for name, text in lines if text is not None])


def config_error(
    problems: list[Problem], kind: type[AstraiError] = PipelineConfigError, subject: str = "pipeline"
) -> AstraiError:
    """One error of a `kind` for one or several problems of the configuration of a `subject`."""
    if len(problems) > 1:
        listed = "".join(f"\n  {number}. {problem}" for number, problem in enumerate(problems, start=1))
        return kind(f"the {subject} configuration has {len(problems)} problems:{listed}")
    (only,) = problems
    return kind(only.what, where=only.where, got=only.got, wanted=only.wanted, hint=only.hint)


def raise_any(problems: Iterable[Problem]) -> None:
    """Raise PipelineConfigError if there is a problem."""
    if found := list(problems):
        raise config_error(found)


def in_file(error: PipelineConfigError, path: Path) -> PipelineConfigError:
    """The same error with the file's name in front of its key path."""
    where = f"{path}: {error.where}" if error.where else str(path)
    return PipelineConfigError(error.what, where=where, got=error.got, wanted=error.wanted, hint=error.hint)


def not_an_object(value: Any) -> Problem:
    """A configuration that is not a JSON object."""
    hint = 'put the keys into {...}, as in {"version": 2, "input": {"sections": [...]}}'
    return Problem(None, "a pipeline configuration is a JSON object", shown(value), "an object", hint)


def shown(value: Any) -> str:
    """A value as the user wrote it: JSON, shortened."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= MAX_GOT_CHARS else text[:MAX_GOT_CHARS] + "..."


def nearest(name: Any, known: Iterable[str]) -> str | None:
    """The known name that looks most like this one."""
    return next(iter(difflib.get_close_matches(str(name), list(known), n=1)), None)


def of_validation(root: type[ConfigPart], error: ValidationError) -> list[Problem]:
    """The problems that validation found."""
    return [_problem(root, item) for item in error.errors(include_url=False)]


def unknown_key(root: type[ConfigPart], location: Location) -> Problem:
    """A key that is not one of its object's."""
    *parents, key = location
    part = _bare(_annotation_at(root, tuple(parents)))
    known = [field.alias or name for name, field in part.model_fields.items()]
    elsewhere = [path for path in _key_paths(root) if path.rpartition(".")[2] == key]
    return Problem(
        key_path(location),
        f"unknown key {shown(key)}",
        wanted="one of " + ", ".join(known),
        hint=" or ".join(filter(None, [root.other_names.get(key) or nearest(key, known), *elsewhere[:1]]))
        or "take it out",
    )


def key_path(location: Location) -> str:
    """`("input", "sections", 0, "action")` -> `input.sections[0].action`."""
    path = ""
    for key in location:
        path += f"[{key}]" if isinstance(key, int) else f".{key}"
    return path.removeprefix(".")


def _problem(root: type[ConfigPart], item: Any) -> Problem:
    location, kind = item["loc"], item["type"]
    where, got = key_path(location), shown(item["input"])
    if kind == "extra_forbidden":
        return unknown_key(root, location)
    if kind == "missing":
        wanted = _wanted_at(root, location)
        return Problem(where, f"the key {shown(location[-1])} is missing", got, wanted, "add the key")
    if kind == "literal_error":
        return _wrong_choice(root, location, item["input"])
    limits = {name: f"{limit:.17g}" for name, limit in item.get("ctx", {}).items() if isinstance(limit, float)}
    wanted = WANTED.get(kind, "another value").format(**(item.get("ctx", {}) | limits))
    if _is_optional(_annotation_at(root, location)):
        wanted += ", or null"
    return Problem(where, "wrong value", got=got, wanted=wanted)


def _wanted_at(root: type[ConfigPart], location: Location) -> str:
    """What a key takes, in a few words."""
    annotation = _bare(_annotation_at(root, location))
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(map(str, get_args(annotation)))
    return KINDS.get(get_origin(annotation) or annotation, "an object")


def _wrong_choice(root: type[ConfigPart], location: Location, value: Any) -> Problem:
    choices = get_args(_bare(_annotation_at(root, location)))
    part = _bare(_annotation_at(root, location[:-1]))
    instead = getattr(part, "refused", {}).get(location[-1], {}).get(str(value))
    wanted = "one of " + ", ".join(choices)
    return Problem(key_path(location), "wrong value", shown(value), wanted, instead or nearest(value, choices))


def _annotation_at(root: Any, location: Location) -> Any:
    annotation = root
    for key in location:
        annotation = _inside(_bare(annotation), key)
    return annotation


def _inside(annotation: Any, key: str | int) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, ConfigPart):
        fields = annotation.model_fields.items()
        return next((field.annotation for name, field in fields if (field.alias or name) == key), None)
    arguments = get_args(annotation)
    if get_origin(annotation) is dict:
        return arguments[1]
    return arguments[0] if get_origin(annotation) is tuple else None


def _bare(annotation: Any) -> Any:
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if _is_optional(annotation):
        return _bare(next(choice for choice in get_args(annotation) if choice is not types.NoneType))
    return annotation


def _is_optional(annotation: Any) -> bool:
    is_union = get_origin(annotation) in (Union, types.UnionType)
    return is_union and types.NoneType in get_args(annotation)


def _key_paths(part: type[ConfigPart], prefix: str = "") -> Iterator[str]:
    for name, field in part.model_fields.items():
        path = prefix + (field.alias or name)
        yield path
        inner = _bare(field.annotation)
        while get_origin(inner) in (dict, tuple):
            path += "[]" if get_origin(inner) is tuple else ".*"
            inner = _bare(_inside(inner, 0))
        if isinstance(inner, type) and issubclass(inner, ConfigPart):
            yield from _key_paths(inner, path + ".")
