"""Escaping of external text, for pages, terminals and logs.

| where | what |
|---|---|
| a page or a message, which may have several lines | `printable(text, longest)` |
| a cell of a table, a line of a terminal | `one_line(text)` |
| the log | `logger(name)`: what is logged through it is escaped when a record is made |

HTML is the templates' part: they escape what these functions return.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from numbers import Number
from typing import Any, Final

LONGEST_ARGUMENT: Final = 10_000
"""Characters of one argument of a log call."""
LONGEST_TRACEBACK: Final = 100_000


def printable(text: str, longest: int) -> str:
    """Return the beginning of `text`, with characters that are not visible written as an escape (`\\x00`, `\\u202e`).

    Line ends and tabs stay. The result can be encoded, also where `text` has lone surrogates.
    """
    return _escaped(text, longest, "\n\t")


def one_line(text: object, longest: int = 1000) -> str:
    """As `printable`, of the text of any object, with line ends and tabs as escapes too."""
    return _escaped(str(text), longest, "")


def logger(name: str) -> logging.Logger:
    """Return the logger of this name; what it logs cannot forge a line, steer a terminal or fail to be encoded.

    All modules of the package get their loggers here. The cost arises only for records that are written.
    """
    log = logging.getLogger(name)
    if _escaping not in log.filters:
        log.addFilter(_escaping)
    return log


def _escaped(text: str, longest: int, allowed: str) -> str:
    if text.isprintable() and len(text) <= longest:
        return text
    escaped = "".join(
        char if char.isprintable() or char in allowed else char.encode("unicode_escape").decode()
        for char in text[:longest]
    )
    return escaped if len(text) <= longest else escaped + "…"


class _Escaping(logging.Filter):
    """Escapes the arguments of records, and indents tracebacks so that none of their lines looks like a record."""

    def filter(self, record: logging.LogRecord) -> bool:
        args: Any = record.args
        if isinstance(args, Mapping):
            record.args = {key: _argument(value) for key, value in args.items()}
        elif args:
            record.args = tuple(map(_argument, args))
        if isinstance(record.msg, str) and not record.msg.isprintable():
            record.msg = one_line(record.msg, LONGEST_ARGUMENT)
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            text = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
            record.exc_text = "\n".join(f"  {one_line(line)}" for line in text[:LONGEST_TRACEBACK].split("\n"))
        return True


class _Argument:
    """An argument of a log call, escaped when it is formatted."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return one_line(self._value, LONGEST_ARGUMENT)

    def __repr__(self) -> str:
        return one_line(repr(self._value), LONGEST_ARGUMENT)


def _argument(value: object) -> object:
    return value if isinstance(value, Number | _Argument) else _Argument(value)


_escaping: Final = _Escaping()
