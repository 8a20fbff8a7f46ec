"""A thread that prolongs the locks of the jobs of its process, and looks after their time limits."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from resty_django.redis import StoreError

from ..clients import Client
from ..errors import LostLock, QlessError
from ..worker.outcomes import JobTimeout
from ..worker.pool import _raise_in
from ..worker.running import Running

if TYPE_CHECKING:
    from .taken import TakenJob

log = logging.getLogger("resty_django.qless.bridge")

AGAIN: Final = 0.5
"""Seconds until a heartbeat is sent again that the server did not answer."""
SHARE: Final = 3
"""A lock is prolonged when this part of it is over."""
NEVER: Final = float("inf")
IDLE: Final = 5.0
"""Seconds."""


class Keeper:
    """One for the process. The thread is made when the first job begins, and sleeps while nothing is to be done."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: dict[Running, tuple[Client, float]] = {}
        self._limits: dict[Running, tuple[float, float]] = {}
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0

    @contextmanager
    def keeps(self, client: Client, running: Running, length: float) -> Iterator[None]:
        """Within the block the lock, of `length` seconds, is prolonged."""
        with self._changed:
            self._held[running] = (client, length)
            running.thread = threading.get_ident()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="qless-keeper", daemon=True)
                self._thread.start()
            elif running.beat_at < self._wakes_at:
                self._changed.notify()
        try:
            yield
        finally:
            self.forget(running)
            if running.cause is not None:
                _raise_in(threading.get_ident(), None)

    def forget(self, running: Running) -> None:
        """It has ended."""
        with self._changed:
            running.thread = 0
            self._held.pop(running, None)
            self._limits.pop(running, None)

    def limit(self, running: Running, seconds: float) -> None:
        """Interrupt the job in so many seconds after its start."""
        with self._changed:
            self._limits[running] = (running.since + seconds, seconds)
            self._changed.notify()

    def _run(self) -> None:
        idle = False
        while True:
            with self._changed:
                now = time.monotonic()
                due = [(running, *kept) for running, kept in self._held.items() if running.beat_at <= now]
                for running, (at, seconds) in list(self._limits.items()):
                    if at <= now:
                        del self._limits[running]
                        self._interrupt(running, JobTimeout(seconds))
                if not due:
                    ends = [each.beat_at for each in self._held] + [at for at, _ in self._limits.values()]
                    if ends or not idle:
                        # after the last job for a moment more: then most that begin need not wake this thread
                        self._wakes_at = min(ends, default=now + IDLE)
                    else:
                        self._wakes_at = NEVER
                    idle = not ends
                    self._changed.wait(None if self._wakes_at == NEVER else max(0.0, self._wakes_at - now))
                    continue
            for running, client, length in due:
                self._beat(running, client, length)

    def _beat(self, running: Running, client: Client, length: float) -> None:
        job: TakenJob = running.job
        now = time.monotonic()
        try:
            client.call("heartbeat", running.jid, job.worker_name)
        except StoreError as error:
            log.warning("the lock of %s could not be prolonged, again in %.1f s: %s", running.jid, AGAIN, error)
            running.beat_at = now + AGAIN
        except QlessError as error:
            running.beat_at = NEVER
            if not job.state_changed and not running.judged:
                log.warning("job %s has lost its lock: %s", running.jid, error)
                job.lost = True
                running.cause = running.cause or LostLock(str(error))
        else:
            running.beat_at, running.lease_end = now + length / SHARE, now + length

    def _interrupt(self, running: Running, cause: Exception) -> None:
        if running.cause is None and running.thread and not running.judged:
            running.cause = cause
            _raise_in(running.thread, type(cause))


keeper: Keeper = Keeper()


def _in_child() -> None:
    keeper.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_in_child)

__all__ = ["Keeper", "keeper"]
