"""Where in a rendered conversation each message stands, in characters.

Two ways, never a guess. `{% generation %}` marks say it themselves, if they stand around what assistants say.
Otherwise beginnings of the conversation are rendered, and every render used must be a beginning of the whole render,
or the conversation is refused: templates that rewrite earlier turns (stripping old thinking, say) are found out here.

    scope       from                                                to
    message     the end of render(messages before)                  the end of render(messages up to it)
    completion  the end of render(messages before + prompt)         the same, without trailing white space

What no generation prompt announces (other roles; templates that write none) is trained from where its content begins.
"""

from dataclasses import dataclass, field

from astrai_data.errors import TokenizerError
from astrai_data.tokenizer.chat_template import ChatTemplate
from astrai_data.tokenizer.conversation import ChatRefusedError
from astrai_data.tokenizer.marks import Mark, MarkedRender
from astrai_data.tokenizer.sentinels import unused_letters, with_letter_in_front

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
    marks: list[Mark] | None = None
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
        if scope == "message":
            return [(index, *self._message_span(index)) for index in wanted]
        marked = self._marked_spans(wanted)
        return [(index, *(marked.get(index) or self._completion_span(index))) for index in wanted]

    def _marked_spans(self, wanted: list[int]) -> dict[int, Mark]:
        speakers = [i for i, message in enumerate(self.messages) if message["role"] == "assistant"]
        if self.marks is None or len(self.marks) != len(speakers):
            return {}
        whole = self.template, self.scope, self.messages, self.add_generation_prompt, self.text
        render = MarkedRender(*whole, self.marks, speakers)
        for index in render.find_strays([i for i in wanted if self.messages[i]["role"] == "assistant"]):
            begin, end = render.mark_of(index)
            mark = shorten(self.text[begin:end])
            message = f"the generation mark {mark} does not stand around what message {index} (assistant) says"
            raise ChatRefusedError("template_marks", message)
        return dict(zip(speakers, self.marks, strict=True))

    def _completion_span(self, index: int) -> tuple[int, int]:
        if self.messages[index]["role"] != "assistant":
            return self._content_span(index)
        begin = self._end_of(index, prompted=True)
        end = self._end_of(index + 1, stripped=True)
        if self._speaks_at(index, begin, end) or self._is_prompted(index):
            return begin, max(begin, end)
        return self._content_span(index)  # a header may stand here

    def _speaks_at(self, index: int, begin: int, end: int) -> bool:
        """Whether the content surely stands at `begin`: it does, and nowhere later in its piece."""
        content = self.messages[index]["content"] or ""
        found = next((form for form in (content, content.strip()) if self.text.startswith(form, begin)), "")
        return found != "" and self.text.find(found, begin + 1, end) < 0

    def _message_span(self, index: int) -> tuple[int, int]:
        return self._begin_of(index), self._end_of(index + 1)

    def _is_prompted(self, index: int) -> bool:
        """Whether the template writes a generation prompt after the first `index` messages."""
        try:
            return self._beginning(index, True) != self._beginning(index, False)
        except ChatRefusedError:
            return False

    def _content_span(self, index: int) -> tuple[int, int]:
        """From where the content begins, found by a letter in front of it (`sentinels`)."""
        message = self.messages[index]
        letters = unused_letters(self.text, 1)
        if not isinstance(message["content"], str) or not letters:
            raise self._no_place(index)
        marked = self._render_alone([*self.messages[:index], with_letter_in_front(message, letters[0])], False)
        before, *after = marked.split(letters[0])
        whole = "".join([before, *after])
        if len(after) != 1 or not self.text.startswith(whole):
            raise self._no_place(index)
        return len(before), max(len(before), len(whole.rstrip()))

    def _no_place(self, index: int) -> ChatRefusedError:
        """Why the content of a message was not found; another refusal if its beginnings are none."""
        begin, end = self._begin_of(index), self._end_of(index + 1)
        piece = shorten(self.text[begin:end])
        return ChatRefusedError(
            "template_prefix",
            f"the content of message {index} has no one place of its own in its rendered piece {piece}",
        )

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
            self._beginnings[key] = self._render_alone(self.messages[:count], prompted)
        return self._beginnings[key]

    def _render_alone(self, messages: list[dict], prompted: bool) -> str:
        try:
            return self.template.render_in(self.scope, messages, prompted)
        except TokenizerError as error:
            message = f"the template cannot render the first {len(messages)} messages alone: {error.got}"
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
