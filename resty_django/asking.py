"""Several questions at once, with a bound on the time: one store that hangs must not hang a page.

A question runs in a thread of its own. One that is not answered in time is left to itself, and until it has ended the
same question is not asked again, so that no more than one thread hangs for each.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from django.db import connections

from resty_django.health import described

SECONDS: Final = 2.0
"""How long all questions together may take."""


class Question(NamedTuple):
    """`key` names it in this process. With `here` it runs in the thread of the caller, on whose database connection it
    may stand; then the database alone bounds its time."""

    key: str
    ask: Callable[[], Any]
    here: bool = False


@dataclass(slots=True)
class Reply:
    """`value` where `error` is empty, else a sentence about what went wrong."""

    value: Any = None
    error: str = ""


class _Asked:
    def __init__(self, ask: Callable[[], Any], name: str) -> None:
        self.reply: Reply | None = None
        self._ask = ask
        context = copy_context()  # the language of the request, its txid
        self.thread = threading.Thread(target=lambda: context.run(self._run), name=f"resty-ask-{name}", daemon=True)

    def _run(self) -> None:
        try:
            self.reply = reply_of(self._ask)
        finally:
            connections.close_all()


_late: Final[dict[str, _Asked]] = {}


def reply_of(ask: Callable[[], Any]) -> Reply:
    """The reply of one question, asked here and now."""
    try:
        return Reply(ask())
    except Exception as error:
        return Reply(error=described(error))


def replies(questions: Iterable[Question], seconds: float = SECONDS) -> list[Reply]:
    """The replies, in the order of the questions. Never raises, and takes no more than about `seconds`."""
    until = time.monotonic() + seconds
    listed = list(questions)
    asked = {question.key: _begin(question) for question in listed if not question.here}
    found: dict[str, Reply] = {}
    for question in listed:
        if question.here:
            found[question.key] = reply_of(question.ask)
    for key, one in asked.items():
        if one is None:
            found[key] = Reply(error="It still does not answer; an earlier question is under way.")
            continue
        one.thread.join(max(0.0, until - time.monotonic()))
        if one.reply is None:
            _late[key] = one
            found[key] = Reply(error=f"It did not answer within {seconds:g} s.")
        else:
            found[key] = one.reply
    return [found[question.key] for question in listed]


def _begin(question: Question) -> _Asked | None:
    """None where the same question, asked before, is not answered yet."""
    before = _late.get(question.key)
    if before is not None and before.thread.is_alive():
        return None
    _late.pop(question.key, None)
    asked = _Asked(question.ask, question.key)
    asked.thread.start()
    return asked


__all__ = ["SECONDS", "Question", "Reply", "replies", "reply_of"]
