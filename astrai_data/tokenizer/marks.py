"""Which message a `{% generation %}` mark of a template belongs to: looked at, not counted.

A mark that holds what its message says and nothing that another role says is taken at once. The rest (empty answers,
contents that the template changes, a question repeated in its answer) is settled by letters behind the contents: the
letter of the mark's own message must stand in it, those of earlier messages before it, those of later ones behind it.
"""

from dataclasses import dataclass

from astrai_data.errors import TokenizerError
from astrai_data.tokenizer.chat_template import ChatTemplate
from astrai_data.tokenizer.sentinels import unused_letters, with_letter_behind, without_letters

Mark = tuple[int, int]
"""First character, character after the last."""


@dataclass(frozen=True)
class MarkedRender:
    """A conversation, its render with marks, and how to render it again.

    Attributes:
        template, scope, messages, add_generation_prompt: what was rendered.
        text: the render.
        marks: one for each message in `speakers`, in order.
        speakers: the messages that marks should belong to.
    """

    template: ChatTemplate
    scope: dict
    messages: list[dict]
    add_generation_prompt: bool
    text: str
    marks: list[Mark]
    speakers: list[int]

    def find_strays(self, wanted: list[int]) -> list[int]:
        """The messages in `wanted` (of `speakers`) whose mark is not known to be theirs."""
        speakers = set(self.speakers)
        others = {_said(message) for i, message in enumerate(self.messages) if i not in speakers} - {""}
        doubtful = [index for index in wanted if not self._is_plain(index, others)]
        return self._settle(doubtful) if doubtful else []

    def mark_of(self, index: int) -> Mark:
        """The mark in the place of message `index`."""
        return self.marks[self.speakers.index(index)]

    def _is_plain(self, index: int, others: set[str]) -> bool:
        begin, end = self.mark_of(index)
        body, said = self.text[begin:end], _said(self.messages[index])
        return said != "" and said in body and not any(other in body for other in others)

    def _settle(self, doubtful: list[int]) -> list[int]:
        blank = {index for index in self.speakers if _said(self.messages[index]) == ""}
        # A template may ask whether an answer is empty, and a letter would make it none.
        for untouched in (set(), blank):
            letters = self._letters(untouched)
            if (render := self._render_with(letters)) is not None:
                text, marks = render
                seats = {index: (text.find(letter), text.rfind(letter)) for index, letter in letters.items()}
                found = dict(zip(self.speakers, marks, strict=True))
                return [index for index in doubtful if not _fits(found[index], index, seats)]
        return doubtful

    def _letters(self, untouched: set[int]) -> dict[int, str]:
        """A letter for each message with content, but for those `untouched`."""
        places = [i for i, m in enumerate(self.messages) if isinstance(m["content"], str) and i not in untouched]
        return dict(zip(places, unused_letters(self.text, len(places)), strict=False))

    def _render_with(self, letters: dict[int, str]) -> tuple[str, list[Mark]] | None:
        """The render with letters behind contents, and its marks; None if it is not the same but for the letters."""
        messages = [with_letter_behind(m, letters[i]) if i in letters else m for i, m in enumerate(self.messages)]
        try:
            text, marks = self.template.render_marked(self.scope, messages, self.add_generation_prompt)
        except TokenizerError:
            return None
        same = without_letters(text, letters.values()) == self.text
        return (text, marks) if same and marks is not None and len(marks) == len(self.marks) else None


def _said(message: dict) -> str:
    return (message["content"] or "").strip()


def _fits(mark: Mark, index: int, seats: dict[int, Mark]) -> bool:
    """Whether `mark` holds the letter of message `index`, if it has one, and comes between those of the others.

    `seats`: message -> first and last place of its letter, -1 where the template left it out.
    """
    begin, end = mark
    before = all(last < begin for message, (_, last) in seats.items() if message < index)
    after = all(first >= end or first < 0 for message, (first, _) in seats.items() if message > index)
    first, last = seats.get(index, (begin, begin))
    return before and after and begin <= first and last < max(end, begin + 1)
