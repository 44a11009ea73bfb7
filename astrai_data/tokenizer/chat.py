"""Conversations to ids, and the tokens that each wanted message has: one way for training and for serving.

A conversation is rendered once, whole; all texts of a call are tokenized together. BOS is put in front if the
tokenizer has one and the template did not; no post-processor is run. A conversation that cannot be encoded as it was
meant is refused alone, with the reason. Rendering by the template is where the time goes.
"""

from dataclasses import dataclass

import numpy as np

from astrai_data.errors import TokenizerError
from astrai_data.tokenizer.alignment import Aligner, Encoded
from astrai_data.tokenizer.backends import SPECIAL_TOKENS_CHOICES
from astrai_data.tokenizer.chat_template import ChatTemplate
from astrai_data.tokenizer.choices import check_choice
from astrai_data.tokenizer.conversation import ChatRefusal, ChatRefusedError, clean_conversation
from astrai_data.tokenizer.spans import Render, Span
from astrai_data.tokenizer.special_text import SpecialStrings, check_stand_ins, encode_shielded

_CHOICES = {
    "scope": ("completion", "message"),
    "train_on": ("all", "last"),
    "special_tokens": SPECIAL_TOKENS_CHOICES,
}


@dataclass(frozen=True)
class EncodedChat:
    """One conversation as tokens.

    Attributes:
        ids: int32 [n].
        spans: int64 [k, 3], rows (message index, first token, token after the last), for the wanted messages.
        num_added: ids in front that stand for no text (BOS).
        text: the exact text that was tokenized.
    """

    ids: np.ndarray
    spans: np.ndarray
    num_added: int
    text: str


@dataclass(frozen=True)
class ChatOptions:
    """How conversations are encoded.

    Attributes:
        roles: whose messages get spans.
        scope: `completion`: a span covers what was said and the end of turn; `message`: header and all.
        train_on: `all` wanted messages, or the `last` one only.
        add_bos: put BOS in front where the render does not begin with it.
        add_generation_prompt: end the render as the template ends a prompt.
        special_tokens: special-token strings inside messages are plain `text`, or `parse`d as tokens.
        allow_empty: a conversation may have no messages.
    """

    roles: frozenset[str] = frozenset()
    scope: str = "completion"
    train_on: str = "all"
    add_bos: bool = True
    add_generation_prompt: bool = False
    special_tokens: str = "text"
    allow_empty: bool = False

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            check_choice(name, getattr(self, name), known)


@dataclass
class RenderedChat:
    """One conversation as text; `shielded` is the render with stand-ins where a message holds special tokens."""

    text: str
    spans: list[Span]
    shielded: str | None


@dataclass(frozen=True)
class ChatEncoder:
    """A template, a tokenizer and options: everything that conversations are encoded by."""

    template: ChatTemplate
    scope: dict
    options: ChatOptions
    aligner: Aligner
    strings: SpecialStrings
    bos_id: int | None

    def encode(self, conversations: list) -> list[EncodedChat | ChatRefusal]:
        """One result a conversation, in order."""
        results = [self.render_or_refuse(conversation) for conversation in conversations]
        places = [i for i, result in enumerate(results) if isinstance(result, RenderedChat)]
        plain = [i for i in places if results[i].shielded is None]
        for i, encoded in zip(plain, self._encode_plain([results[i] for i in plain]), strict=True):
            results[i] = encoded
        for i in places:
            if isinstance(results[i], RenderedChat):
                results[i] = self._or_refusal(self._encode_shielded, results[i])
        return results

    def render_or_refuse(self, conversation: list[dict]) -> RenderedChat | ChatRefusal:
        """The text of one conversation and its spans in characters."""
        return self._or_refusal(self._render, conversation)

    def _render(self, conversation: list[dict]) -> RenderedChat:
        options = self.options
        empty = options.allow_empty and conversation == []
        messages = [] if empty else clean_conversation(conversation)
        wanted = [i for i, message in enumerate(messages) if message["role"] in options.roles]
        if options.train_on == "last":
            wanted = wanted[-1:]
        render = self._start(messages)
        by_marks = options.scope == "completion" and bool(wanted) and self.template.marks_generation
        render.render_whole(with_marks=by_marks)
        _check_unicode(render.text)
        spans = render.find_spans(wanted, options.scope)
        return RenderedChat(render.text, spans, self._shield(messages, render.text))

    def _start(self, messages: list[dict]) -> Render:
        return Render(self.template, self.scope, messages, self.options.add_generation_prompt)

    def _shield(self, messages: list[dict], text: str) -> str | None:
        if self.options.special_tokens == "parse" or not self.strings.occurs_in(messages):
            return None

        def render_with(replace) -> str:
            render = self._start(replace(messages))
            render.render_whole(with_marks=False)
            return render.text

        return check_stand_ins(self.strings, text, render_with)

    def _encode_plain(self, chats: list[RenderedChat]) -> list[EncodedChat | ChatRefusal]:
        if not chats:
            return []
        encoded = self.aligner.encode([chat.text for chat in chats], "parse")
        rows = zip(chats, encoded.ids, _locate(encoded, chats), strict=True)
        if self.options.special_tokens == "parse" or self.strings.are_exact:
            return [self._finish(*row) for row in rows]
        return [self._or_refusal(self._finish_checked, *row) for row in rows]

    def _finish_checked(self, chat: RenderedChat, ids: np.ndarray, spans: np.ndarray) -> EncodedChat:
        self.strings.check_spelled(chat.text, ids)
        return self._finish(chat, ids, spans)

    def _encode_shielded(self, chat: RenderedChat) -> EncodedChat:
        encoded = encode_shielded(self.aligner.encode, self.strings, chat.shielded)
        return self._finish(chat, encoded.ids[0], _locate(encoded, [chat])[0])

    def _finish(self, chat: RenderedChat, ids: np.ndarray, spans: np.ndarray) -> EncodedChat:
        bos = self.bos_id
        if not self.options.add_bos or bos is None or (len(ids) and ids[0] == bos):
            return EncodedChat(ids, spans, 0, chat.text)
        spans[:, 1:] += 1
        return EncodedChat(np.concatenate((np.array([bos], np.int32), ids)), spans, 1, chat.text)

    @staticmethod
    def _or_refusal(act, *arguments):
        try:
            return act(*arguments)
        except ChatRefusedError as error:
            return error.refusal


def apply_to_all(encoder: ChatEncoder, messages: list, system_prompt: str | None, tokenize: bool) -> str | list:
    """One conversation, or a list of them, as text or as lists of ids; a system prompt goes in front of each.

    Raises:
        TokenizerError: a conversation is refused.
    """
    many = bool(messages) and isinstance(messages[0], list)
    start = [{"role": "system", "content": system_prompt}] if system_prompt else []
    batch = messages if many else [messages]
    if start:
        batch = [start + conversation if isinstance(conversation, list) else conversation for conversation in batch]
    if tokenize:
        results = [accepted(result).ids.tolist() for result in encoder.encode(batch)]
    else:
        results = [accepted(encoder.render_or_refuse(conversation)).text for conversation in batch]
    return results if many else results[0]


def accepted(result):
    """`result`, or the refusal it is as a `TokenizerError`."""
    if isinstance(result, ChatRefusal):
        raise TokenizerError(
            "the conversation is refused",
            where="the conversation",
            got=f"{result.reason}: {result.message}",
            wanted='messages such as [{"role": "user", "content": "..."}] that the chat template takes',
            hint="mend the conversation as it says",
        )
    return result


def _locate(encoded: Encoded, chats: list[RenderedChat]) -> list[np.ndarray]:
    """int64 [k, 3] for each chat: its spans, from characters to tokens."""
    counts = [len(chat.spans) for chat in chats]
    if not any(counts):
        return [np.zeros((0, 3), np.int64) for _ in chats]
    flat = [
        (index, encoded.measure(chat.text[:begin]), encoded.measure(chat.text[:end]))
        for chat in chats
        for index, begin, end in chat.spans
    ]
    spans = np.array(flat, np.int64)
    rows = np.repeat(np.arange(len(chats)), counts)
    spans[:, 1] = encoded.locate(rows, spans[:, 1])
    spans[:, 2] = encoded.locate(rows, spans[:, 2])
    return np.split(spans, np.cumsum(counts)[:-1])


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ChatRefusedError("not_unicode", f"the text holds half a character: {error}") from error
