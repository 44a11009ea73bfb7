"""The Jinja environment of chat templates: sandboxed, blocks trimmed, with the helpers that published templates use.

`raise_exception(text)`, `strftime_now(format)`, the `tojson` filter (plain JSON, not HTML-escaped), `break` and
`continue`, and the block `{% generation %}...{% endgeneration %}` around what an assistant says. `strftime_now`
knows one fixed date, never the clock, and nothing is drawn by chance: a template renders the same every time.
"""

import json
from collections.abc import Callable
from datetime import datetime

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from astrai_data.errors import TokenizerError

GENERATION_MARK = "astrai_generation_mark"
"""The render variable that a `{% generation %}` block is handed to, as a function of `caller`."""


class GenerationBlock(Extension):
    """`{% generation %}`: calls the render variable `GENERATION_MARK` with its body."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's own way to declare it

    def parse(self, parser):
        """Parse the block into a call of the mark."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        mark = nodes.Call(nodes.Name(GENERATION_MARK, "load"), [], [], None, None)
        return nodes.CallBlock(mark, [], [], body).set_lineno(line)


def build_environment() -> ImmutableSandboxedEnvironment:
    """A fresh environment; templates cannot reach Python's internals nor change what they are given."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    del environment.filters["random"], environment.globals["lipsum"]
    environment.globals["raise_exception"] = _raise_exception
    return environment


def clock_of(template_date: str) -> Callable[[str], str]:
    """`strftime_now` for a template: formats `template_date` (ISO 8601).

    Raises:
        TokenizerError: the date is none.
    """
    try:
        return datetime.fromisoformat(template_date).strftime
    except (TypeError, ValueError) as error:
        wanted = "an ISO date such as 2024-07-26"
        what, hint = "template_date is not a date", "write it as YYYY-MM-DD, or leave it out"
        raise TokenizerError(what, where="template_date", got=repr(template_date), wanted=wanted, hint=hint) from error


def _to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise TemplateError(message)
