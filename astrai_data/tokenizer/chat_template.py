"""One chat template: text, defaults, and the render of a conversation by it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from jinja2 import TemplateSyntaxError
from jinja2.runtime import new_context

from astrai_data.errors import TokenizerError
from astrai_data.tokenizer.environment import GENERATION_MARK, build_environment, clock_of

TEMPLATE_DATE = "2024-07-26"
"""The date that templates see unless the pipeline or the request names another."""

_GENERATION_BLOCK = re.compile(r"\{%[-+]?\s*generation\b")


@dataclass(frozen=True)
class ChatTemplate:
    """A Jinja chat template, compiled on first use; pickles without the compiled form.

    Attributes:
        template: the Jinja source.
        name: what a list of named templates calls it.
        description: for people.
        default_variables: render variables that a call may override.
        special_tokens: attribute name -> token string, visible to the template.
    """

    template: str
    name: str = "default"
    description: str = ""
    default_variables: dict = field(default_factory=dict)
    special_tokens: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.template, str):
            got = type(self.template).__name__
            where, hint = f"chat template {self.name!r}", "give Jinja source as a string, or None for no template"
            raise TokenizerError("a chat template is not text", where=where, got=got, wanted="a string", hint=hint)

    def __getstate__(self) -> dict:
        return {name: value for name, value in self.__dict__.items() if name != "_compiled"}

    def render(
        self,
        messages: list[dict],
        *,
        add_generation_prompt: bool = False,
        template_date: str = TEMPLATE_DATE,
        **variables,
    ) -> str:
        """The conversation as text.

        Variables, later wins: defaults, special tokens, `variables`, then `messages` and `add_generation_prompt`.

        Raises:
            TokenizerError: the template cannot be compiled, or fails on this conversation.
        """
        scope = self.scope(template_date, variables)
        return self.render_in(scope, messages, add_generation_prompt)

    def scope(self, template_date: str, variables: dict) -> dict:
        """All render variables but the conversation itself, for any number of `render_in` calls."""
        return {
            **self._compiled.globals,
            "strftime_now": clock_of(template_date),
            GENERATION_MARK: _unmarked,
            **self.default_variables,
            **self.special_tokens,
            **variables,
        }

    def render_in(self, scope: dict, messages: list[dict], add_generation_prompt: bool) -> str:
        """`render` with variables from `scope`."""
        pieces = self._pieces(scope, messages, add_generation_prompt)
        try:
            return "".join(pieces)
        except Exception as error:  # a template may fail in any way Python can
            raise _render_error(error) from error

    def render_marked(
        self, scope: dict, messages: list[dict], add_generation_prompt: bool
    ) -> tuple[str, list[tuple[int, int]] | None]:
        """`render_in`, and the characters (begin, end) of each `{% generation %}` block in order of its place.

        The place of a block is the text rendered before it. That is exact while blocks stand in the body of the
        template; inside a macro, filter or `set` block it is not, and then the spans are None.
        """
        marks: list[tuple[int, str]] = []
        pieces: list[str] = []
        length = 0

        def mark(caller) -> str:
            text = caller()
            marks.append((length, text))
            return text

        try:
            for piece in self._pieces({**scope, GENERATION_MARK: mark}, messages, add_generation_prompt):
                pieces.append(piece)
                length += len(piece)
        except Exception as error:  # as above
            raise _render_error(error) from error
        text = "".join(pieces)
        found = all(text.startswith(body, begin) for begin, body in marks)
        return text, [(begin, begin + len(body)) for begin, body in marks] if found else None

    def _pieces(self, scope: dict, messages: list[dict], add_generation_prompt: bool) -> Iterator[str]:
        """The render, piece by piece. Jinja's own `render` spends half its time on merging the globals again."""
        template = self._compiled
        variables = {**scope, "messages": messages, "add_generation_prompt": add_generation_prompt}
        context = new_context(template.environment, template.name, template.blocks, variables, shared=True)
        return template.root_render_func(context)

    @property
    def marks_generation(self) -> bool:
        """Whether the template has `{% generation %}` blocks."""
        return _GENERATION_BLOCK.search(self.template) is not None

    def compile(self) -> None:
        """Compile now.

        Raises:
            TokenizerError: the template is not valid Jinja.
        """
        _ = self._compiled

    @cached_property
    def _compiled(self):
        try:
            return build_environment().from_string(self.template)
        except (TemplateSyntaxError, RecursionError) as error:  # the latter: brackets a thousand deep
            where = f"template {self.name!r}, line {getattr(error, 'lineno', 1)}"
            wanted, hint = "Jinja", "mend this line of chat_template in tokenizer_config.json or chat_template.jinja"
            what = "the chat template cannot be compiled"
            raise TokenizerError(what, where=where, got=error, wanted=wanted, hint=hint) from error


def _unmarked(caller) -> str:
    return caller()


def _render_error(error: Exception) -> TokenizerError:
    text = f"{type(error).__name__}: {error}"
    return TokenizerError(
        "the chat template refuses the conversation",
        where="the conversation",
        got=text,
        wanted="messages in the roles and the order that the template expects",
        hint="mend the conversation, or the template",
    )
