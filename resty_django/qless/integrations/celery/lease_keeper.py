"""A thread that extends the locks of the borrowed jobs of its process, and enforces their time limits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from resty_django.processes.forks import after_fork
from resty_django.redis.errors import StoreError
from resty_django.text import logger

from ...clients.client import Client
from ...errors import LostLock, QlessError
from ...outcomes import JobTimeout
from ...outcomes.interruption import checkpoint, raise_in_thread
from ...worker.running_job import RENEWALS_PER_LEASE, RunningJob

log = logger("resty_django.qless.integrations.celery")

NEVER: Final = float("inf")


class _Lease(NamedTuple):
    client: Client
    seconds: float


class _TimeLimit(NamedTuple):
    """`at`: when the job is interrupted, by the monotonic clock. `seconds`: after its start."""

    at: float
    seconds: float


def extend(running: RunningJob, seconds: float, now: float) -> None:
    """Record that its lock lasts `seconds` from `now`."""
    running.renew_at = now + seconds / RENEWALS_PER_LEASE
    running.lease_end = now + seconds


class LeaseKeeper:
    """Extends the locks of this process's jobs. The thread starts with the first job, and sleeps while idle."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all jobs and the thread, as in a new process."""
        self._changed = threading.Condition()
        self._leases: dict[RunningJob, _Lease] = {}
        self._limits: dict[RunningJob, _TimeLimit] = {}
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0

    @contextmanager
    def keeps(self, client: Client, running: RunningJob) -> Iterator[None]:
        """Extend the lock of a job that has just been taken, again and again while the block runs."""
        with self._changed:
            self._leases[running] = _Lease(client, running.lease_end - running.started_at)
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
            self._limits[running] = _TimeLimit(running.started_at + seconds, seconds)
            self._changed.notify()

    def _run(self) -> None:
        idle = False
        while True:
            with self._changed:
                now = time.monotonic()
                due = {running: lease for running, lease in self._leases.items() if running.renew_at <= now}
                for running, limit in list(self._limits.items()):
                    if limit.at <= now:
                        del self._limits[running]
                        self._interrupt(running, JobTimeout(limit.seconds))
                if not due:
                    ends = [running.renew_at for running in self._leases]
                    ends += [limit.at for limit in self._limits.values()]
                    if ends or not idle:
                        # stay awake 5 s longer after the last job, so that most new jobs need not wake the thread
                        self._wakes_at = min(ends, default=now + 5)
                    else:
                        self._wakes_at = NEVER
                    idle = not ends
                    self._changed.wait(None if self._wakes_at == NEVER else max(0.0, self._wakes_at - now))
                    continue
            for running, lease in due.items():
                self._beat(running, lease)

    def _beat(self, running: RunningJob, lease: _Lease) -> None:
        job = running.job
        now = time.monotonic()
        try:
            lease.client.call("heartbeat", running.jid, job.worker_name)
        except StoreError as error:
            log.warning("the lock of job %s could not be extended; next attempt in 0.5 s: %s", running.jid, error)
            running.renew_at = now + 0.5
        except QlessError as error:
            running.renew_at = NEVER
            if not job.state_changed and not running.end:
                log.warning("job %s has lost its lock: %s", running.jid, error)
                job.lost = True
                running.cause = running.cause or LostLock(str(error))
        else:
            extend(running, lease.seconds, now)

    def _interrupt(self, running: RunningJob, cause: Exception) -> None:
        if running.cause is None and running.thread and not running.end:
            running.cause = cause
            raise_in_thread(running.thread, type(cause))


keeper: LeaseKeeper = LeaseKeeper()
after_fork(keeper.reset)
