"""A thread that extends the locks of the borrowed jobs of its process, and enforces their time limits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from resty_django.processes.forks import after_fork
from resty_django.redis.errors import StoreError
from resty_django.text import logger

from ...clients.client import Client
from ...errors import LostLock, QlessError
from ...outcomes import JobTimeout
from ...outcomes.interruption import checkpoint, raise_in_thread
from ...worker.running_job import RENEWALS_PER_LEASE, RunningJob

if TYPE_CHECKING:
    pass

log = logger("resty_django.qless.integrations.celery")

RETRY_AFTER: Final = 0.5
"""Seconds until a heartbeat that the server did not answer is sent again."""
NEVER: Final = float("inf")
IDLE: Final = 5.0
"""Seconds for which the thread stays awake after the last job."""


def extend(running: RunningJob, length: float, now: float) -> None:
    """Record that its lock lasts `length` seconds from `now`."""
    running.renew_at = now + length / RENEWALS_PER_LEASE
    running.lease_end = now + length


class LeaseKeeper:
    """Extends the locks of this process's jobs. The thread starts with the first job, and sleeps while idle."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._leases: dict[RunningJob, tuple[Client, float]] = {}
        self._limits: dict[RunningJob, tuple[float, float]] = {}
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0

    @contextmanager
    def keeps(self, client: Client, running: RunningJob, length: float) -> Iterator[None]:
        """Keep extending the lock, by `length` seconds each time, within the block."""
        with self._changed:
            self._leases[running] = (client, length)
            running.thread = threading.get_ident()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="qless-keeper", daemon=True)
                self._thread.start()
            elif running.renew_at < self._wakes_at:
                self._changed.notify()
        try:
            yield
        finally:
            while True:
                try:
                    self.forget(running)
                    checkpoint()
                except BaseException as error:
                    if running.cause is None or type(error) is not type(running.cause):
                        raise
                else:  # at the latest on the second attempt: it is interrupted only once
                    break

    def forget(self, running: RunningJob) -> None:
        """Record that the job has ended."""
        with self._changed:
            running.thread = 0
            self._leases.pop(running, None)
            self._limits.pop(running, None)

    def limit(self, running: RunningJob, seconds: float) -> None:
        """Interrupt the job `seconds` after its start."""
        with self._changed:
            self._limits[running] = (running.started_at + seconds, seconds)
            self._changed.notify()

    def _run(self) -> None:
        idle = False
        while True:
            with self._changed:
                now = time.monotonic()
                due = [(running, *lease) for running, lease in self._leases.items() if running.renew_at <= now]
                for running, (at, seconds) in list(self._limits.items()):
                    if at <= now:
                        del self._limits[running]
                        self._interrupt(running, JobTimeout(seconds))
                if not due:
                    ends = [running.renew_at for running in self._leases] + [at for at, _ in self._limits.values()]
                    if ends or not idle:
                        # stay awake a little longer after the last job, so that most new jobs need not wake the thread
                        self._wakes_at = min(ends, default=now + IDLE)
                    else:
                        self._wakes_at = NEVER
                    idle = not ends
                    self._changed.wait(None if self._wakes_at == NEVER else max(0.0, self._wakes_at - now))
                    continue
            for running, client, length in due:
                self._beat(running, client, length)

    def _beat(self, running: RunningJob, client: Client, length: float) -> None:
        job = running.job
        now = time.monotonic()
        try:
            client.call("heartbeat", running.jid, job.worker_name)
        except StoreError as error:
            log.warning(
                "the lock of job %s could not be extended; next attempt in %.1f s: %s", running.jid, RETRY_AFTER, error
            )
            running.renew_at = now + RETRY_AFTER
        except QlessError as error:
            running.renew_at = NEVER
            if not job.state_changed and not running.end:
                log.warning("job %s has lost its lock: %s", running.jid, error)
                job.lost = True
                running.cause = running.cause or LostLock(str(error))
        else:
            extend(running, length, now)

    def _interrupt(self, running: RunningJob, cause: Exception) -> None:
        if running.cause is None and running.thread and not running.end:
            running.cause = cause
            raise_in_thread(running.thread, type(cause))


keeper: LeaseKeeper = LeaseKeeper()


def _after_fork() -> None:
    keeper.__init__()  # type: ignore[misc]


after_fork(_after_fork)
