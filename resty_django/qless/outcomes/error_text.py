"""Texts of exceptions for the failures of jobs: bounded in length, and never raising, whatever the exception."""

from __future__ import annotations

import traceback
from typing import Final

from ..clients.serialization import readable

MAX_MESSAGE_CHARS: Final = 10_000
"""Maximum characters of a failure's message."""
MAX_GROUP_CHARS: Final = 500
"""Maximum characters of a failure's group."""


def message_of(error: BaseException) -> str:
    """Return the text of an exception and its traceback; of a long traceback, the end.

    Never raises: if something cannot be shown, the text says so.
    """
    text = text_of(error)[: MAX_MESSAGE_CHARS // 2]
    try:
        trace = "".join(traceback.format_exception(error))
    except BaseException as problem:
        trace = f"The traceback cannot be shown: {name_of(problem)}."
    return readable(f"{text}\n\n{trace[-(MAX_MESSAGE_CHARS - len(text) - 2) :]}", MAX_MESSAGE_CHARS)


def text_of(error: BaseException) -> str:
    """Return the class name and the text of an exception. Never raises."""
    name = name_of(error)
    try:
        return readable(f"{name}: {error}")
    except BaseException as problem:
        return f"{name}: (its text cannot be shown: {name_of(problem)})"


def name_of(error: BaseException) -> str:
    """Return the class name of an exception. Never raises."""
    return readable(type.__dict__["__name__"].__get__(type(error)), MAX_GROUP_CHARS)


def group_of(name: str) -> str:
    """Return the name, bounded in length because it becomes part of a key. Surrogate escapes stay, since queue names
    may be any bytes."""
    return str.__str__(name)[:MAX_GROUP_CHARS]
