"""Calling callbacks: in order, and only what they have."""

from collections.abc import Iterable


def notify(callbacks: Iterable[object], hook: str, *arguments: object) -> None:
    """Call `hook` of every callback that has it."""
    for callback in callbacks:
        if (method := getattr(callback, hook, None)) is not None:
            method(*arguments)
