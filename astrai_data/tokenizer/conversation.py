"""What a conversation must be before a template sees it, and how one is refused.

A conversation is a non-empty list of objects with a string `role` and a `content`: a string, or a list of text parts,
of which one string is made here, for pipelines and for the server. Content may be null only where an assistant calls
tools. Keys that are null, and an empty list of tool calls, count as absent; other keys go to the template as they are.
"""

from dataclasses import dataclass

PART_BORDER = "\n"
"""What stands between two text parts; vLLM, TensorRT-LLM and llama.cpp put the same there."""
TEXT_PART = '{"type": "text", "text": "..."}'
_MAX_SHOWN = 80


@dataclass(frozen=True)
class ChatRefusal:
    """Why a conversation was not encoded: `reason` is one word for the ledger, `message` is for people."""

    reason: str
    message: str


class ChatRefusedError(Exception):
    """Carries a `ChatRefusal` up from where it is found."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(reason, message)
        self.refusal = ChatRefusal(reason, message)


class ContentPartError(Exception):
    """A part of a message's content is no text: `place` in the list, `got` for people."""

    def __init__(self, place: int, got: str) -> None:
        super().__init__(place, got)
        self.place, self.got = place, got


def join_parts(parts: list) -> str:
    """The text of a content that is a list of `{"type": "text", "text": "..."}`; other keys of a part are passed over.

    Raises:
        ContentPartError: a part is something else.
    """
    return PART_BORDER.join(_text_of_part(place, part) for place, part in enumerate(parts))


def text_of(content: object) -> str | None:
    """The text of a message's content, as a template sees it; None if there is none, or not of text alone."""
    try:
        content = join_parts(content) if isinstance(content, list) else content
    except ContentPartError:
        return None
    return content if isinstance(content, str) else None


def clean_conversation(conversation: object) -> list[dict]:
    """The messages, with strings as contents, without keys that count as absent.

    Raises:
        ChatRefusedError: `not_a_conversation`, naming the message, and the part of its content.
    """
    if not isinstance(conversation, list):
        raise _no_conversation(f"a conversation must be a list of messages, got {_kind(conversation)}")
    if not conversation:
        raise _no_conversation("the conversation has no messages")
    return [_clean_message(index, message) for index, message in enumerate(conversation)]


def _clean_message(index: int, message: object) -> dict:
    if not isinstance(message, dict):
        raise _no_conversation(f"message {index} must be an object, got {_kind(message)}")
    if not isinstance(message.get("role"), str):
        raise _no_conversation(f"message {index} has no role: wanted a string, got {_kind(message.get('role'))}")
    if len(message) > 2:
        message = {key: value for key, value in message.items() if not _is_absent(key, value)}
    if not isinstance(message.get("content"), str):
        return {**message, "content": _plain_content(index, message)}
    return message


def _plain_content(index: int, message: dict) -> str | None:
    """A content that is no string yet."""
    content = message.get("content")
    if isinstance(content, list):
        try:
            return join_parts(content)
        except ContentPartError as error:
            where = f"message {index} ({message['role']}), part {error.place} of its content"
            raise _no_conversation(f"{where} must be {TEXT_PART}, got {error.got}") from None
    if content is None and message["role"] == "assistant" and message.get("tool_calls"):
        return None
    raise _no_conversation(f"message {index} ({message['role']}) must have text as content, got {_kind(content)}")


def _text_of_part(place: int, part: object) -> str:
    if not isinstance(part, dict):
        raise ContentPartError(place, _kind(part))
    kind = part.get("type")
    if kind != "text":
        raise ContentPartError(place, "no type" if kind is None else f"type {kind!r}"[:_MAX_SHOWN])
    if not isinstance(part.get("text"), str):
        raise ContentPartError(place, f"a text that is {_kind(part.get('text'))}")
    return part["text"]


def _is_absent(key: str, value: object) -> bool:
    return (value is None and key != "content") or (key == "tool_calls" and value == [])


def _kind(value: object) -> str:
    return "null or nothing" if value is None else type(value).__name__


def _no_conversation(message: str) -> ChatRefusedError:
    return ChatRefusedError("not_a_conversation", message)
