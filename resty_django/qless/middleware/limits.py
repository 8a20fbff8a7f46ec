"""Rate and concurrency limits for jobs across all workers: by queue, by job data, or for the jobs of a task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Protocol

from resty_django.callables import acompleted, call, caller
from resty_django.job_limits import JobLimitProtocol, JobSlotProtocol, job_limit

from ..outcomes import RequeueLater
from .chain import Around
from .job import WorkerJob


class JobLimiter(Protocol):
    """The interface of a limiter. All limiters of `resty_django.limits` have it."""

    def slot(self, key: object, wait: float | None) -> object:
        """Return a slot for `with` or `async with`. Entering it waits for up to `wait` seconds.

        Entering raises `resty_django.limits.Limited`.
        """


class Limit:
    """Runs a job only if `limiter` allows it; otherwise requeues it for later with its remaining retries.

    `limiter`: a limiter, or the name of a policy of `resty_django.limits`. `key`: a function of the job that returns
    the key; without it, all jobs of a queue are counted together. `wait`: seconds that a job may wait in the worker.
    `key_kind`: "user" or "address" if the keys are IDs of users or addresses, so that their overrides apply.
    """

    name: str | None = None
    """The name of a limit by a rate."""

    def __init__(
        self,
        limiter: JobLimiter | str,
        key: Callable[[WorkerJob], object] = lambda job: job.queue_name,
        *,
        wait: float = 1.0,
        key_kind: str | None = None,
    ) -> None:
        self.limiter: JobLimiter | str | float = limiter
        self.key = key
        self.wait = wait
        self.key_kind = key_kind
        self._location = caller()
        self._limit: JobLimitProtocol | None = None

    def __call__(self, job: WorkerJob) -> Around:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._around(job)
        return self._aaround(job)

    def _around(self, job: WorkerJob) -> Generator[None, None, None]:
        slot = self._slot(call(self.key, job))
        _requeue_if_refused(job, slot.enter())
        try:
            yield
        finally:
            slot.leave()

    async def _aaround(self, job: WorkerJob) -> AsyncGenerator[None, None]:
        slot = self._slot(await acompleted(self.key(job)))
        _requeue_if_refused(job, await slot.aenter())
        try:
            yield
        finally:
            await slot.aleave()

    def _slot(self, key: object) -> JobSlotProtocol:
        if self._limit is None:
            self._limit = job_limit(self.limiter, self._location, self.key_kind, self.name)
        return self._limit.slot(key, self.wait)


class Rate(Limit):
    """Limits jobs to `rate`: a text such as "10/m", or the name of a policy of `resty_django.limits`.

    `name`: the key under which they are counted. Jobs are spread evenly. A job that would have to wait longer than a
    second is requeued for later.
    """

    def __init__(self, rate: str | float, name: str) -> None:
        super().__init__("", lambda job: name)
        self.limiter, self.name = rate, name


def _requeue_if_refused(job: WorkerJob, seconds: float | None) -> None:
    if seconds is not None:
        raise RequeueLater(max(seconds, 1.0), job.retries_left)
