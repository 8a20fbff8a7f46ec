"""Several calls at once, with a limit on the time: one store that hangs must not hang a page.

Each call runs in a thread. A call that has not returned in time is left alone, and until it ends the same call is not
made again, so that at most one thread hangs for each.
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
"""How long all calls together may take."""


class Call(NamedTuple):
    """A function without arguments. `key` names it in this process.

    With `in_caller` it runs in the caller's thread, so that it may use its database connection; then the database
    alone limits its time.
    """

    key: str
    function: Callable[[], Any]
    in_caller: bool = False


@dataclass(slots=True)
class Reply:
    """`value` where `error` is empty, else a sentence about what went wrong."""

    value: Any = None
    error: str = ""


class _Worker:
    def __init__(self, call: Call) -> None:
        self.reply: Reply | None = None
        self._function = call.function
        context = copy_context()  # the language of the request, its txid
        self.thread = threading.Thread(target=lambda: context.run(self._run), name=f"resty-ask-{call.key}", daemon=True)

    def _run(self) -> None:
        try:
            self.reply = reply_of(self._function)
        finally:
            connections.close_all()


late_workers: Final[dict[str, _Worker]] = {}


def reply_of(function: Callable[[], Any]) -> Reply:
    """Call the function in this thread and return its reply. Never raises."""
    try:
        return Reply(function())
    except Exception as error:
        return Reply(error=described(error))


def gather(calls: Iterable[Call], seconds: float = SECONDS) -> list[Reply]:
    """Return the replies, in the order of the calls. Never raises, and takes at most about `seconds`."""
    until = time.monotonic() + seconds
    calls = list(calls)
    workers = {call.key: _start(call) for call in calls if not call.in_caller}
    replies: dict[str, Reply] = {}
    for call in calls:
        if call.in_caller:
            replies[call.key] = reply_of(call.function)
    for key, worker in workers.items():
        if worker is None:
            replies[key] = Reply(error="It still does not answer; an earlier question is under way.")
            continue
        worker.thread.join(max(0.0, until - time.monotonic()))
        if worker.reply is None:
            late_workers[key] = worker
            replies[key] = Reply(error=f"It did not answer within {seconds:g} s.")
        else:
            replies[key] = worker.reply
    return [replies[call.key] for call in calls]


def _start(call: Call) -> _Worker | None:
    """Return the running call; None where the same one, made before, has not ended yet."""
    earlier = late_workers.get(call.key)
    if earlier is not None and earlier.thread.is_alive():
        return None
    late_workers.pop(call.key, None)
    worker = _Worker(call)
    worker.thread.start()
    return worker
