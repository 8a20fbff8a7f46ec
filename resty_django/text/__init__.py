"""Escaping of external text, for pages, terminals and logs.

| where | what |
|---|---|
| a page or a message with several lines | `printable(text, longest)` |
| a table cell, a line in a terminal | `one_line(text)` |
| the log | `logger(name)`: the arguments of its records are escaped |

HTML is escaped by the templates that show the result of these functions.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from numbers import Number
from typing import Final

MAX_ARGUMENT_CHARS: Final = 10_000
"""Maximum length of one argument of a log call."""


def printable(text: str, longest: int) -> str:
    """Return the first `longest` characters of `text`, with invisible characters escaped (`\\x00`, `\\u202e`).

    Line breaks and tabs stay. The result can always be encoded, even if `text` contains lone surrogates.
    """
    return _escaped(text, longest, "\n\t")


def one_line(text: object, longest: int = 1000) -> str:
    """Return `printable(str(text))` with line breaks and tabs escaped too."""
    return _escaped(str(text), longest, "")


def builtin_value(value: object) -> str | float | None:
    """Return a str or a number, also of a subclass, as a value of Python's own type; None for anything else."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    return float.__float__(value) if isinstance(value, float) else None


def logger(name: str) -> logging.Logger:
    """Return the logger of this name. Its records cannot forge lines, control a terminal or fail to be encoded.

    All modules of the package get their loggers here. Records that are not written cost nothing extra.
    """
    log = logging.getLogger(name)
    if _escaping not in log.filters:
        log.addFilter(_escaping)
    return log


def _escaped(text: str, longest: int, allowed: str) -> str:
    if text.isprintable() and len(text) <= longest:
        return text
    escaped = text[:longest]
    if not escaped.isprintable():
        escaped = "".join(
            char if char.isprintable() or char in allowed else char.encode("unicode_escape").decode()
            for char in escaped
        )
    return escaped if len(text) <= longest else escaped + "…"


class _Escaping(logging.Filter):
    """A filter that escapes log arguments, and indents tracebacks so that no line looks like a new record."""

    def filter(self, record: logging.LogRecord) -> bool:
        args = record.args
        if isinstance(args, Mapping):
            record.args = {key: _argument(value) for key, value in args.items()}
        elif args:
            record.args = tuple(map(_argument, args))
        if isinstance(record.msg, str) and not record.msg.isprintable():
            record.msg = one_line(record.msg, MAX_ARGUMENT_CHARS)
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            text = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
            record.exc_text = "\n".join(f"  {one_line(line)}" for line in text[:100_000].split("\n"))
        return True


class _Argument:
    """A log argument that is escaped when it is formatted."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return one_line(self._value, MAX_ARGUMENT_CHARS)

    def __repr__(self) -> str:
        return one_line(repr(self._value), MAX_ARGUMENT_CHARS)


def _argument(value: object) -> object:
    return value if isinstance(value, Number | _Argument) else _Argument(value)


_escaping: Final = _Escaping()
