"""The executor of `runqless --via celery`: sends jobs to Celery, where a process takes them over.

A job that was sent still belongs to this worker, which extends its lock. The process that starts to run it takes over
the lock (with the core's command `take`); this worker is notified and forgets the job. So the broker never holds more
jobs than the worker has slots, and a job whose process dies returns to its queue when its lock expires. A job that no
process has taken is sent again after a while, since its message may be lost. Only one of several messages for a job can
take it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from resty_django.text import logger

from ...clients.job import Job
from ...errors import LostLock
from ...outcomes import Stopping
from ...worker.executor import Pool
from ...worker.running_job import Inbox, RunningJob

log = logger("resty_django.qless.integrations.celery")

EARLY_SECONDS: Final = 2.0
"""Time for which the notification that an unknown job was taken is kept: the reply to its pop may still arrive."""


class CeleryDispatcher(Pool):
    """Sends jobs with `send(job)`, which is called in one thread and repeated until it does not raise.

    `resend_after`: seconds after which a job that no process has taken is sent again.
    """

    min_free_share = 0.25

    def __init__(self, inbox: Inbox, send: Callable[[Job], None], resend_after: float = 300.0) -> None:
        super().__init__(inbox)
        self._resend_after = resend_after
        self._send = send
        self._outbox: SimpleQueue[RunningJob | None] = SimpleQueue()
        self._sent: dict[str, RunningJob] = {}
        self._sent_at: dict[str, float] = {}
        """Used only by the sending thread; sorted by time."""
        self._early: dict[str, float] = {}
        self._changing = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._send_all, name="qless-handover", daemon=True)

    def start(self, running: RunningJob) -> None:
        if self._thread.ident is None:
            self._thread.start()
        with self._changing:
            early = self._early.pop(running.jid, 0.0) > time.monotonic() - EARLY_SECONDS
            if not early:
                self._sent[running.jid] = running
        if early:
            self._release(running)
        else:
            self._outbox.put(running)

    def ended(self, running: RunningJob) -> None:
        """Do nothing: the worker loop counts the slots."""

    def taken(self, jid: str) -> None:
        """Note that another process has the lock now. Callable from any thread."""
        with self._changing:
            running = self._sent.pop(jid, None)
            if running is None:  # it was just popped, and the reply has not arrived yet
                now = time.monotonic()
                self._early = {taken_jid: at for taken_jid, at in self._early.items() if at > now - EARLY_SECONDS}
                self._early[jid] = now
                return
        self._release(running)

    def interrupt(self, running: RunningJob, cause: Exception, *, in_thread: bool) -> None:
        running.cause = running.cause or cause
        with self._changing:
            if self._sent.get(running.jid) is running:
                del self._sent[running.jid]
        if isinstance(cause, Stopping):
            running.end = "returned"
        elif isinstance(cause, LostLock) and not running.end:
            self._release(running)

    def close(self) -> None:
        self._closed.set()
        self._outbox.put(None)

    def _release(self, running: RunningJob) -> None:
        running.end = "handed over"
        self.inbox.put(running)

    def _send_all(self) -> None:
        while not self._closed.is_set():
            try:
                running = self._outbox.get(timeout=self._resend_after / 10)
            except Empty:
                self._resend()
                continue
            if running is None:
                return
            self._send_until_accepted(running)
            if len(self._sent_at) > 2 * len(self._sent) + 100:
                self._resend()

    def _send_until_accepted(self, running: RunningJob) -> None:
        pause = 0.1
        while not running.end and not self._closed.is_set():
            try:
                self._send(running.job)
            except Exception as error:
                log.error("job %s could not be sent; next attempt in %.1f s: %s", running.jid, pause, error)
                self._closed.wait(pause)
                pause = min(pause * 2, 5.0)
            else:
                self._sent_at.pop(running.jid, None)
                self._sent_at[running.jid] = time.monotonic()
                return

    def _resend(self) -> None:
        """Resend jobs that no process has taken for a long time, and forget jobs that were taken."""
        self._sent_at = {jid: at for jid, at in self._sent_at.items() if jid in self._sent}
        latest = time.monotonic() - self._resend_after
        for jid in [jid for jid, at in self._sent_at.items() if at <= latest]:
            running = self._sent.get(jid)
            if running is not None:
                log.warning("no process has taken job %s for %.0f s; sending it again", jid, self._resend_after)
                self._send_until_accepted(running)
