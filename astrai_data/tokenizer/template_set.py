"""The chat templates of one tokenizer: usually one, sometimes one more for conversations with tools."""

import hashlib
from dataclasses import dataclass, field, replace

import orjson

from astrai_data.errors import TokenizerError
from astrai_data.tokenizer.chat_template import ChatTemplate
from astrai_data.tokenizer.files import DEFAULT_TEMPLATE

_TOOL_TEMPLATE = "tool_use"


class TokenizerStateError(TokenizerError, RuntimeError):
    """Something was asked of a tokenizer that has not been loaded, or has no chat template."""


def not_loaded() -> TokenizerStateError:
    """The error for a tokenizer that holds a template and nothing else."""
    return TokenizerStateError(
        "the tokenizer has not been loaded",
        where="Tokenizer()",
        got="an empty tokenizer",
        wanted="one of a folder with tokenizer.json",
        hint="use Tokenizer.from_pretrained(DIR)",
    )


@dataclass
class TemplateSet:
    """Chat templates by name, and the special tokens that all of them see."""

    templates: dict[str, ChatTemplate]
    special_tokens: dict[str, str]
    _ready: dict[str, ChatTemplate] = field(default_factory=dict)

    @classmethod
    def from_texts(cls, texts: dict[str, str], special_tokens: dict[str, str]) -> "TemplateSet":
        """Templates from their sources by name."""
        return cls({name: ChatTemplate(text, name) for name, text in texts.items()}, special_tokens)

    @property
    def texts(self) -> dict[str, str]:
        """The sources by name."""
        return {name: template.template for name, template in self.templates.items()}

    @property
    def default(self) -> ChatTemplate | None:
        """The template called `default`, or the only one."""
        only = next(iter(self.templates.values())) if len(self.templates) == 1 else None
        return self.templates.get(DEFAULT_TEMPLATE, only)

    def set_default(self, value: object) -> None:
        """Take a template, its source, or None in place of the default one.

        Raises:
            TokenizerError: `value` is something else.
        """
        self._ready.clear()
        if value is None:
            self.templates.clear()
            return
        template = value if isinstance(value, ChatTemplate) else ChatTemplate(value)
        self.templates[DEFAULT_TEMPLATE] = template

    def choose(self, tools: list | None) -> ChatTemplate | None:
        """The template for a conversation with or without tools, with the special tokens filled in, compiled once.

        Raises:
            TokenizerError: the template is not valid Jinja.
        """
        template = self.templates.get(_TOOL_TEMPLATE) if tools else None
        template = template or self.default
        if template is None:
            return None
        if template.name not in self._ready:
            tokens = {**self.special_tokens, **template.special_tokens}
            ready = replace(template, special_tokens=tokens)
            ready.compile()
            self._ready[template.name] = ready
        return self._ready[template.name]

    def require(self, tools: list | None) -> ChatTemplate:
        """`choose`, for where a template is needed.

        Raises:
            TokenizerStateError: there is none.
        """
        template = self.choose(tools)
        if template is None:
            hint = "set tokenizer.chat_template, or put chat_template into tokenizer_config.json"
            raise TokenizerStateError(
                "the tokenizer has no chat template",
                where="chat_template",
                got="none",
                wanted="a Jinja template that renders conversations",
                hint=hint,
            )
        return template

    @property
    def sha256(self) -> str:
        """SHA-256 of the template's text; of nothing if there is none; of a JSON map if there are several."""
        texts = self.texts
        if len(texts) > 1:
            return hashlib.sha256(orjson.dumps(texts, option=orjson.OPT_SORT_KEYS)).hexdigest()
        return hashlib.sha256("".join(texts.values()).encode()).hexdigest()
