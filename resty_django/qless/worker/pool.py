"""Where jobs run: sync ones in threads, async ones on one event loop, which has a thread of its own.

A job goes in by `start` and comes back through the inbox of the desk when it has ended.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import logging
import threading
from queue import SimpleQueue
from typing import Any, Final

from . import perform
from .running import Running

log = logging.getLogger("resty_django.qless.worker")

_CLOSING: Final = 5.0
"""Seconds that the loop has at the end."""


class Pool:
    """As many threads as sync jobs were running at once; they and the loop are made when first needed."""

    share = 0.0
    """Of the places: how many have to be free before more jobs are asked for."""

    def __init__(self, inbox: SimpleQueue[Any]) -> None:
        self._inbox = inbox
        self._tasks: SimpleQueue[Running | None] = SimpleQueue()
        self._threads = 0
        self._busy = 0
        self._raising = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread: threading.Thread | None = None

    def start(self, running: Running) -> None:
        if running.entry.is_async:
            loop = self._loop or self._open_loop()
            loop.call_soon_threadsafe(self._begin, running)
            return
        self._busy += 1
        if self._busy > self._threads:
            self._threads += 1
            threading.Thread(target=self._work, name=f"qless-job-{self._threads}", daemon=True).start()
        self._tasks.put(running)

    def ended(self, running: Running) -> None:
        """To be called for each that came back."""
        if not running.entry.is_async:
            self._busy -= 1

    def interrupt(self, running: Running, cause: Exception, *, in_thread: bool) -> None:
        """Raise `cause` in the job: an async one is cancelled; a sync one gets it if `in_thread`, at its next line.

        Either way the job knows it as its `cause`. The first one counts.
        """
        if running.cause is not None:
            return
        if running.entry.is_async:
            running.cause = cause
            if self._loop is not None:
                self._loop.call_soon_threadsafe(_cancel, running)
            return
        with self._raising:
            running.cause = cause
            if in_thread and running.thread:
                _raise_in(running.thread, type(cause))

    def close(self) -> None:
        """End the loop, after its jobs. Threads end with the process."""
        for _ in range(self._threads):
            self._tasks.put(None)
        if self._loop is not None and self._loop_thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop_thread.join(_CLOSING)

    # --- in a thread of a sync job ---

    def _work(self) -> None:
        me = threading.get_ident()
        while (running := self._tasks.get()) is not None:
            running.thread = me
            try:
                try:
                    contextvars.copy_context().run(perform.run, running)
                finally:
                    with self._raising:
                        running.thread = 0
            except BaseException as error:  # raised by `interrupt` when the job had ended already
                if not running.judged:
                    perform.judge(running, error)
            if running.cause is not None:
                _raise_in(me, None)
            self._inbox.put(running)
            running = None

    # --- in the thread of the loop ---

    def _open_loop(self) -> asyncio.AbstractEventLoop:
        self._loop = asyncio.new_event_loop()
        self._loop_thread = threading.Thread(target=self._serve, args=(self._loop,), name="qless-loop", daemon=True)
        self._loop_thread.start()
        return self._loop

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=_CLOSING / 2))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    def _begin(self, running: Running) -> None:
        running.task = asyncio.get_running_loop().create_task(self._run(running))
        if running.cause is not None:  # it came before the task was there
            running.task.cancel()

    async def _run(self, running: Running) -> None:
        try:
            await perform.arun(running)
        except BaseException as error:
            if not running.judged:
                perform.judge(running, error)
        self._inbox.put(running)


def _cancel(running: Running) -> None:
    if running.task is not None and not running.task.done():
        running.task.cancel()


def _raise_in(thread: int, kind: type[Exception] | None) -> None:
    """Let the thread raise `kind` at its next line of Python; None takes back what it has not raised yet."""
    given = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), given)


__all__ = ["Pool"]
