"""Where the jobs of `runqless --via celery` go: instead of being run they are sent, until somebody takes them.

A job that was sent stays this worker's: its lock is prolonged here. Whoever begins to run it takes the lock (the
command `take` of the core), of which this worker hears, and then forgets the job. So no more jobs are under way in the
broker than the worker has places; and a job whose taker dies comes back by its lock. A job that nobody has taken is
sent again after a while, since its message may be lost: of several messages one alone can take it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final

from ..errors import LostLock
from ..worker.outcomes import Stopping
from ..worker.pool import Pool
from ..worker.running import RETURNED, Running

log = logging.getLogger("resty_django.qless.bridge")

HANDED: Final = "handed over"
AGAIN: Final = 300.0
"""Seconds after which a job is sent again that nobody has taken."""
EARLY: Final = 2.0
"""Seconds after which it is no answer to a pop that was told of a job nobody knew."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds until a message is sent again that the broker did not accept."""


class HandOver(Pool):
    """`send(job)` sends one; it is called in one thread, again and again until it does not raise."""

    share = 0.25

    def __init__(self, inbox: SimpleQueue[Any], send: Callable[[Any], None], again: float = AGAIN) -> None:
        super().__init__(inbox)
        self._again = again
        self._send = send
        self._out: SimpleQueue[Running | None] = SimpleQueue()
        self._sent: dict[str, Running] = {}
        self._sent_at: dict[str, float] = {}
        """Of the thread that sends alone; in the order of the times."""
        self._early: dict[str, float] = {}
        self._changing = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._post, name="qless-handover", daemon=True)

    def start(self, running: Running) -> None:
        if self._thread.ident is None:
            self._thread.start()
        with self._changing:
            early = self._early.pop(running.jid, 0.0) > time.monotonic() - EARLY
            if not early:
                self._sent[running.jid] = running
        if early:
            self._let_go(running)
        else:
            self._out.put(running)

    def ended(self, running: Running) -> None:
        """There is no place to be freed but that of the desk."""

    def taken(self, jid: str) -> None:
        """Somebody else has the lock now. From any thread."""
        with self._changing:
            running = self._sent.pop(jid, None)
            if running is None:  # it was popped just now, and the answer is still on its way
                now = time.monotonic()
                self._early = {each: at for each, at in self._early.items() if at > now - EARLY}
                self._early[jid] = now
                return
        self._let_go(running)

    def interrupt(self, running: Running, cause: Exception, *, in_thread: bool) -> None:
        running.cause = running.cause or cause
        with self._changing:
            if self._sent.get(running.jid) is running:
                del self._sent[running.jid]
        if isinstance(cause, Stopping):
            running.judged, running.end = True, RETURNED
        elif isinstance(cause, LostLock) and not running.judged:
            self._let_go(running)

    def close(self) -> None:
        self._closed.set()
        self._out.put(None)

    def _let_go(self, running: Running) -> None:
        running.judged, running.end = True, HANDED
        self._inbox.put(running)

    def _post(self) -> None:
        while not self._closed.is_set():
            try:
                running = self._out.get(timeout=self._again / 10)
            except Empty:
                self._post_again()
                continue
            if running is None:
                return
            self._post_one(running)
            if len(self._sent_at) > 2 * len(self._sent) + 100:
                self._post_again()

    def _post_one(self, running: Running) -> None:
        pause = FIRST_PAUSE
        while not running.judged and not self._closed.is_set():
            try:
                self._send(running.job)
            except Exception as error:
                log.error("job %s could not be sent, again in %.1f s: %s", running.jid, pause, error)
                self._closed.wait(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                self._sent_at.pop(running.jid, None)
                self._sent_at[running.jid] = time.monotonic()
                return

    def _post_again(self) -> None:
        """Those that nobody has taken for long; the rest is forgotten here as well."""
        self._sent_at = {jid: at for jid, at in self._sent_at.items() if jid in self._sent}
        late = time.monotonic() - self._again
        for jid in [jid for jid, at in self._sent_at.items() if at <= late]:
            running = self._sent.get(jid)
            if running is not None:
                log.warning("nobody has taken job %s for %.0f s; it is sent again", jid, self._again)
                self._post_one(running)


__all__ = ["HANDED", "HandOver"]
