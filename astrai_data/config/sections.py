"""How a record becomes tokens: sections (one output) or sources (several), and how chats are rendered."""

import datetime
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from astrai_data.config.data import Name
from astrai_data.config.part import ConfigPart


def _date(text: str) -> str:
    try:
        return datetime.date.fromisoformat(text).isoformat()
    except ValueError:
        raise PydanticCustomError("not_a_date", "not a date") from None


class Section(ConfigPart):
    """One field of the record and what to do with it."""

    field: Name
    """Record field to read."""
    action: Literal["train", "mask", "$role", "value"]
    """`train` or `mask` its tokens; `$role`: by message role; `value`: plain numbers, in sources only."""
    template: bool = False
    """The field is a list of chat messages, rendered with the tokenizer's chat template."""
    add_special_tokens: bool | None = None
    """Whether the tokenizer puts its special tokens around the text. Default: around the first text only."""
    append_eos: bool = False
    """End the document with the end-of-text token, trained. Default: no in version 1; in version 2 yes for
    the last trained text section."""
    generation_prompt: bool = False
    """End a template section with the prompt for the next assistant turn."""

    @property
    def append_eos_explicit(self) -> bool:
        """Whether the configuration itself asks for (or forbids) the end-of-text token."""
        return self.is_given("append_eos")

    @property
    def is_trained_text(self) -> bool:
        """A text (no template) of which every token is trained."""
        return self.action == "train" and not self.template


class Source(ConfigPart):
    """One named output of a pipeline with several."""

    sections: tuple[Section, ...] = ()
    """The sections of this output."""
    list_field: bool = False
    """The section's field holds a list; every element becomes a sequence of its own."""
    mask_key: Name = Field(default_factory=str)
    """Name of this output's mask, `<source>_mask` by default. Giving it stores even a mask of only ones."""

    @property
    def mask_key_explicit(self) -> bool:
        """Whether the configuration itself names the mask."""
        return self.is_given("mask_key")


class InputConfig(ConfigPart):
    """From record to tokens."""

    reference_keys = frozenset({"sections", "sources"})
    v1_defaults: ClassVar = {"mask_scope": "message", "special_tokens": "parse"}

    sections: tuple[Section, ...] | None = None
    """Sections of the one output `sequence`."""
    sources: dict[Name, Source] | None = None
    """Several outputs, by name (preference pairs, response groups); used instead of `sections`."""
    mask_scope: Literal["message", "completion"] = "completion"
    """What a message's flag covers: the whole rendered `message`, or the `completion` only, its content and
    end of turn. Default: `message` in version 1, `completion` in version 2."""
    train_on: Literal["all", "last"] = "all"
    """Which of the trained turns are trained: `all`, or the `last` only."""
    special_tokens: Literal["parse", "text"] = "text"
    """Special-token strings inside the user's text: `parse` them or read them as plain `text`. Default:
    `parse` in version 1, `text` in version 2."""
    template_date: Annotated[str, AfterValidator(_date), Field(json_schema_extra={"format": "date"})] = "2024-07-26"
    """The date that chat templates see, so that a run does not depend on the day."""

    @property
    def section_lists(self) -> list[tuple[str, tuple[Section, ...]]]:
        """(key path, sections) of every list of sections that is in force: sources win over sections."""
        if self.sources:
            return [(f"input.sources.{name}.sections", source.sections) for name, source in self.sources.items()]
        return [("input.sections", self.sections)] if self.sections else []
