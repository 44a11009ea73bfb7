"""Where in a rendered conversation each message stands, in characters.

Two ways, never a guess. `{% generation %}` marks say it themselves. Otherwise beginnings of the conversation are
rendered, and every render used must be a beginning of the whole render, or the conversation is refused: templates
that rewrite earlier turns (stripping old thinking, say) are found out here.

    scope       from                                                to
    message     the end of render(messages before)                  the end of render(messages up to it)
    completion  the end of render(messages before + prompt)         the same, without trailing white space
"""

from dataclasses import dataclass, field

from astrai_data.errors import TokenizerError
from astrai_data.tokenizer.chat_template import ChatTemplate
from astrai_data.tokenizer.conversation import ChatRefusedError

Span = tuple[int, int, int]
"""Message index, first character, character after the last."""


@dataclass
class Render:
    """One conversation under one template: the whole text and, on demand, its beginnings."""

    template: ChatTemplate
    scope: dict
    messages: list[dict]
    add_generation_prompt: bool
    text: str = ""
    marks: list[tuple[int, int]] | None = None
    _beginnings: dict[tuple[int, bool], str] = field(default_factory=dict)

    def render_whole(self, *, with_marks: bool) -> None:
        """Render all messages into `text` and, if asked, the template's marks into `marks`."""
        try:
            if with_marks:
                self.text, self.marks = self.template.render_marked(
                    self.scope, self.messages, self.add_generation_prompt
                )
            else:
                self.text = self.template.render_in(self.scope, self.messages, self.add_generation_prompt)
        except TokenizerError as error:
            raise ChatRefusedError("template_error", str(error.got)) from error
        self._beginnings[len(self.messages), self.add_generation_prompt] = self.text

    def find_spans(self, wanted: list[int], scope: str) -> list[Span]:
        """The spans of the messages in `wanted`, in order."""
        marked = self._marked_spans() if scope == "completion" else {}
        find = self._message_span if scope == "message" else self._completion_span
        return [(index, *(marked.get(index) or find(index))) for index in wanted]

    def _marked_spans(self) -> dict[int, tuple[int, int]]:
        speakers = [i for i, message in enumerate(self.messages) if message["role"] == "assistant"]
        if self.marks is None or len(self.marks) != len(speakers):
            return {}
        return dict(zip(speakers, self.marks, strict=True))

    def _completion_span(self, index: int) -> tuple[int, int]:
        if self.messages[index]["role"] != "assistant":
            return self._content_span(index)
        begin = self._end_of(index, prompted=True)
        end = self._end_of(index + 1, stripped=True)
        return begin, max(begin, end)

    def _message_span(self, index: int) -> tuple[int, int]:
        return self._begin_of(index), self._end_of(index + 1)

    def _content_span(self, index: int) -> tuple[int, int]:
        """For roles that no generation prompt announces: from the one place of the content in its own piece."""
        begin, end = self._begin_of(index), self._end_of(index + 1, stripped=True)
        content = (self.messages[index]["content"] or "").strip()
        place = self.text.find(content, begin, end)
        if not content or place < 0 or self.text.find(content, place + 1, end) >= 0:
            piece = shorten(self.text[begin:end])
            found = "is empty" if not content else "is not there" if place < 0 else "is there more than once"
            raise ChatRefusedError(
                "template_prefix", f"the content of message {index} {found} in its rendered piece {piece}"
            )
        return place, end

    def _begin_of(self, index: int) -> int:
        # Many templates cannot render an empty conversation; what stands before message 0 then belongs to it.
        if index > 0:
            return self._end_of(index)
        try:
            return self._end_of(0)
        except ChatRefusedError:
            return 0

    def _end_of(self, count: int, *, prompted: bool = False, stripped: bool = False) -> int:
        """How many characters of the whole text the first `count` messages make, checked."""
        beginning = self._beginning(count, prompted)
        if stripped:
            beginning = beginning.rstrip()
        if not self.text.startswith(beginning):
            raise _not_a_prefix(beginning, self.text, count, prompted)
        return len(beginning)

    def _beginning(self, count: int, prompted: bool) -> str:
        key = count, prompted
        if key not in self._beginnings:
            self._beginnings[key] = self._render_beginning(count, prompted)
        return self._beginnings[key]

    def _render_beginning(self, count: int, prompted: bool) -> str:
        try:
            return self.template.render_in(self.scope, self.messages[:count], prompted)
        except TokenizerError as error:
            message = f"the template cannot render the first {count} messages alone: {error.got}"
            raise ChatRefusedError("template_error", message) from error


def shorten(text: str, around: int = 0, width: int = 60) -> str:
    """A quoted excerpt of `text` near character `around`."""
    begin, end = max(0, around - width), around + width
    before, after = "..." if begin else "", "..." if end < len(text) else ""
    return f"{before}{text[begin:end]!r}{after}"


def _not_a_prefix(beginning: str, text: str, count: int, prompted: bool) -> ChatRefusedError:
    pairs = zip(beginning, text, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(beginning), len(text)))
    prompt = " with the generation prompt" if prompted else ""
    return ChatRefusedError(
        "template_prefix",
        f"the template renders the first {count} messages{prompt} differently alone than in the whole conversation, "
        f"from character {at} on: alone {shorten(beginning, at)}, in the whole {shorten(text, at)}",
    )
