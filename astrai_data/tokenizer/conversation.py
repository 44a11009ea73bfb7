"""What a conversation must be before a template sees it, and how one is refused.

A conversation is a non-empty list of objects with a string `role` and a string `content`. Content may be null only
where an assistant calls tools. Keys that are null, and an empty list of tool calls, count as absent; other keys go to
the template as they are.
"""

from dataclasses import dataclass


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


def clean_conversation(conversation: object) -> list[dict]:
    """The messages, without keys that count as absent.

    Raises:
        ChatRefusedError: `not_a_conversation`, naming the message.
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
        return _without_content(index, message)
    return message


def _without_content(index: int, message: dict) -> dict:
    content = message.get("content")
    if content is None and message["role"] == "assistant" and message.get("tool_calls"):
        return {**message, "content": None}
    raise _no_conversation(f"message {index} ({message['role']}) must have text as content, got {_kind(content)}")


def _is_absent(key: str, value: object) -> bool:
    return (value is None and key != "content") or (key == "tool_calls" and value == [])


def _kind(value: object) -> str:
    return "null or nothing" if value is None else type(value).__name__


def _no_conversation(message: str) -> ChatRefusedError:
    return ChatRefusedError("not_a_conversation", message)
