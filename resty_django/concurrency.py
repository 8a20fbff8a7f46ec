"""Concurrent calls with a time limit, so that one store that hangs does not hang a page.

Each call runs in a thread, in the language and the time zone of the caller. A call that does not return in time is
abandoned. It is not started again until it ends, so at most one thread per call hangs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from django.db import connections
from django.utils import timezone, translation
from django.utils.translation import gettext as _

from resty_django.health import described

TIME_LIMIT_SECONDS: Final = 2.0
"""Time limit (seconds) for all calls together."""


class TimedCall(NamedTuple):
    """A function without arguments. `key` identifies it within this process.

    With `in_caller` it runs in the caller's thread and may use that thread's database connection. In that case only
    the database limits its duration.
    """

    key: str
    function: Callable[[], object]
    in_caller: bool = False


@dataclass(slots=True)
class TimedReply:
    """The result of a call: `value`, or if the call failed, an `error` message."""

    value: Any = None
    error: str = ""


class _Worker:
    def __init__(self, call: TimedCall) -> None:
        self.reply: TimedReply | None = None
        self._function = call.function
        # Newer versions of asgiref hide from a thread what another one has activated, even in a copied context.
        self._language = translation.get_language()
        self._zone = timezone.get_current_timezone()
        context = copy_context()  # the txid of the request
        self.thread = threading.Thread(target=lambda: context.run(self._run), name=f"resty-ask-{call.key}", daemon=True)

    def _run(self) -> None:
        try:
            with translation.override(self._language), timezone.override(self._zone):
                self.reply = reply_of(self._function)
        finally:
            connections.close_all()


late_workers: Final[dict[str, _Worker]] = {}


def reply_of(function: Callable[[], object]) -> TimedReply:
    """Call the function in this thread and return its reply. Never raise."""
    try:
        return TimedReply(function())
    except Exception as error:
        return TimedReply(error=described(error))


def gather(calls: Iterable[TimedCall], seconds: float = TIME_LIMIT_SECONDS) -> list[TimedReply]:
    """Return the replies in the order of the calls, after at most about `seconds`. Never raise."""
    until = time.monotonic() + seconds
    calls = list(calls)
    workers = {call.key: _start(call) for call in calls if not call.in_caller}
    replies: dict[str, TimedReply] = {}
    for call in calls:
        if call.in_caller:
            replies[call.key] = reply_of(call.function)
    for key, worker in workers.items():
        if worker is None:
            replies[key] = TimedReply(error=_("It is still not responding; an earlier call has not finished."))
            continue
        worker.thread.join(max(0.0, until - time.monotonic()))
        if worker.reply is None:
            late_workers[key] = worker
            replies[key] = TimedReply(error=_("It did not respond within %(time)s s.") % {"time": f"{seconds:g}"})
        else:
            replies[key] = worker.reply
    return [replies[call.key] for call in calls]


def _start(call: TimedCall) -> _Worker | None:
    """Start a call and return it; None if an earlier run of the same call has not ended."""
    earlier = late_workers.get(call.key)
    if earlier is not None and earlier.thread.is_alive():
        return None
    late_workers.pop(call.key, None)
    worker = _Worker(call)
    worker.thread.start()
    return worker
