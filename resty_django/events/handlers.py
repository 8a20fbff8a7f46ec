"""Calls of handlers (functions, coroutine functions or Django signals) from sync and async code."""

from __future__ import annotations

import asyncio
import reprlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

from asgiref.sync import async_to_sync
from django.db import close_old_connections
from django.dispatch import Signal

from resty_django.callables import is_async
from resty_django.text import logger

from .wire import Event

log = logger("resty_django.events")

Handler: TypeAlias = Callable[..., Any] | Signal
"""A function, a coroutine function or a signal."""

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 200


def check(callback: object) -> None:
    """Raise `TypeError` unless the argument is callable or a signal."""
    if not callable(callback) and not isinstance(callback, Signal):
        raise TypeError(f"callback is not callable: {callback!r}. Pass a function, a coroutine function or a Signal.")


class HandlerRunner:
    """Calls the handlers of a process one after the other. Exceptions of handlers are logged and not propagated."""

    def __init__(self) -> None:
        self.calls = 0
        self.exiting = False
        """The interpreter is shutting down and cannot start the threads that coroutine functions need."""
        self._thread: ThreadPoolExecutor | None = None

    def call(self, callback: Handler, event: Event) -> None:
        """Call a handler in this thread. A coroutine function runs to completion in a separate loop."""
        self.calls += 1
        try:
            if isinstance(callback, Signal):
                callback.send_robust(Event, **_keywords(event))
            elif not is_async(callback):
                callback(event.data, event.event, event.source, event.pid)
            elif _in_loop():
                raise RuntimeError(
                    "poll() cannot run a coroutine function in the thread of a running loop. Use apoll()."
                )
            elif not self.exiting:
                async_to_sync(callback)(event.data, event.event, event.source, event.pid)
        except (Exception, SystemExit):
            _report(callback, event)

    async def acall(self, callback: Handler, event: Event) -> None:
        """Await a coroutine function in this loop; run any other handler in the dedicated thread."""
        self.calls += 1
        try:
            if isinstance(callback, Signal):
                await callback.asend_robust(Event, **_keywords(event))
            elif is_async(callback):
                await callback(event.data, event.event, event.source, event.pid)
            else:
                if self._thread is None:
                    self._thread = ThreadPoolExecutor(1, "resty-events-handlers")
                await asyncio.get_running_loop().run_in_executor(self._thread, self._in_thread, callback, event)
        except (Exception, SystemExit):
            _report(callback, event)

    def _in_thread(self, callback: Callable[..., object], event: Event) -> None:
        try:
            callback(event.data, event.event, event.source, event.pid)
        finally:
            close_old_connections()


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _keywords(event: Event) -> dict[str, object]:
    return {"source": event.source, "event": event.event, "data": event.data, "pid": event.pid}


def _report(callback: Handler, event: Event) -> None:
    log.exception(
        "Handler %r failed for the event %r of %r from process %s with the data %s",
        callback,
        event.event,
        event.source,
        event.pid,
        _short.repr(event.data),
    )
