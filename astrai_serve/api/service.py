"""What the routes need to know: one engine, the name it is served under, how conversations become prompts."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from astrai_data.errors import TokenizerError
from astrai_data.tokenizer import Tokenizer
from astrai_data.tokenizer.chat_template import TEMPLATE_DATE
from astrai_serve.engine import Engine
from astrai_serve.errors import RequestError, UnknownModelError

_PLAIN = "give plain text: `astrai generate` without --chat, or POST /v1/completions"
STALE_AFTER_S = 120.0
"""A loop that has not begun a step for so long is stuck; a step of a large model on a slow machine takes seconds."""


@dataclass(frozen=True)
class Service:
    """One served model.

    Attributes:
        engine: running.
        name: the model's name in requests.
        template_date: the date that chat templates see; the pipelines' that the model was trained with.
        created: Unix time in seconds.
    """

    engine: Engine
    name: str
    template_date: str = TEMPLATE_DATE
    created: int = field(default_factory=lambda: int(time.time()))

    def check_model(self, name: str | None) -> None:
        """Raise `UnknownModelError` unless the request names this model, or none."""
        if name not in (None, self.name):
            what, hint = "no such model is served here", "name that one, or leave model out of a request"
            raise UnknownModelError(what, param="model", got=repr(name), wanted=self.name, hint=hint)

    def chat_ids(self, messages: list[dict[str, Any]]) -> list[int]:
        """The prompt of a conversation; refusals are `RequestError`s."""
        try:
            return chat_prompt_ids(self.engine.tokenizer, messages, self.template_date)
        except TokenizerError as error:
            hint = error.hint if self.engine.tokenizer.chat_template else _PLAIN
            told = {"where": error.where, "got": error.got, "wanted": error.wanted, "hint": hint}
            raise RequestError(error.what, param="messages", **told) from error

    def text_ids(self, text: str) -> list[int]:
        """The prompt of a plain text, with what the tokenizer puts around one."""
        try:
            return self.engine.tokenizer.encode(text)
        except TokenizerError as error:
            told = {"got": error.got, "wanted": error.wanted, "hint": error.hint}
            raise RequestError(error.what, param="prompt", **told) from error

    @property
    def is_healthy(self) -> bool:
        """Whether the engine's loop runs and has lately been seen to."""
        return self.engine.is_alive and time.monotonic() - self.engine.beat_s < STALE_AFTER_S


def chat_prompt_ids(tokenizer: Tokenizer, messages: list[dict[str, Any]], template_date: str) -> list[int]:
    """The ids of a conversation up to where the answer begins: those that a chat pipeline stores for it.

    Raises:
        TokenizerError: no chat template, or the conversation is refused.
    """
    return tokenizer.encode_chat(messages, add_generation_prompt=True, template_date=template_date).ids.tolist()


def template_date_of(directory: Path) -> str:
    """`template_date` of the directory's `tokenizer_config.json`, where training copies it; else the default."""
    path = directory / "tokenizer_config.json"
    config = orjson.loads(path.read_bytes()) if path.is_file() else {}
    date = config.get("template_date", TEMPLATE_DATE)
    if not isinstance(date, str):
        what, hint = "template_date is no date", "write it so, or take the key out"
        raise TokenizerError(what, where=path, got=repr(date), wanted='a text such as "2024-07-26"', hint=hint)
    return date
