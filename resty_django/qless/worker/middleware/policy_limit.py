"""Rate and concurrency limits for jobs across all workers, by queue or by job data."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, Final, Protocol

from resty_django.callables import acompleted, call

from ..control import RequeueLater
from .chain import Around

MIN_DELAY: Final = 1.0
"""Minimum delay, in seconds, until a refused job is tried again."""


class Limiter(Protocol):
    """The interface of a limiter. All limiters of `resty_django.limits` have it."""

    def slot(self, key: object, wait: float | None) -> Any:
        """Return a slot for `with` or `async with`. Entering it waits for up to `wait` seconds.

        Entering raises `resty_django.limits.Limited`.
        """


class Limit:
    """Runs a job only if `limiter` allows it; otherwise requeues it for later with its remaining retries.

    `limiter`: a limiter, or the name of a policy of `resty_django.limits`. `key`: a function of the job that returns
    the key; without it, all jobs of a queue are counted together. `wait`: seconds that a job may wait in the worker.
    `key_kind`: "user" or "address" if the keys are IDs of users or addresses, so that their overrides apply.
    """

    def __init__(
        self,
        limiter: Limiter | str,
        key: Callable[[Any], object] = lambda job: job.queue_name,
        *,
        wait: float = 1.0,
        key_kind: str | None = None,
        location: str = "",
    ) -> None:
        from resty_django.limits.statistics.catalog import caller

        self.limiter = limiter
        self.key = key
        self.wait = wait
        self.key_kind = key_kind
        self._location = location or caller()
        self._job_limit: Any = None

    def __call__(self, job: Any) -> Around:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._around(job)
        return self._aaround(job)

    def _around(self, job: Any) -> Generator[None, None, None]:
        from resty_django.limits.errors import Limited

        slot = self._slot(call(self.key, job))
        try:
            slot.__enter__()
        except Limited as refusal:
            raise self._later(job, refusal) from None
        try:
            yield
        finally:
            slot.__exit__(None, None, None)

    async def _aaround(self, job: Any) -> AsyncGenerator[None, None]:
        from resty_django.limits.errors import Limited

        slot = self._slot(await acompleted(self.key(job)))
        try:
            await slot.__aenter__()
        except Limited as refusal:
            raise self._later(job, refusal) from None
        try:
            yield
        finally:
            await slot.__aexit__(None, None, None)

    def _slot(self, key: object) -> Any:
        if self._job_limit is None:
            from resty_django.limits.jobs import JobLimit

            self._job_limit = JobLimit(self.limiter, self._location, self.key_kind)
        return self._job_limit.slot(key, self.wait)

    @staticmethod
    def _later(job: Any, refusal: Any) -> RequeueLater:
        return RequeueLater(max(refusal.decision.retry_after, refusal.decision.delay, MIN_DELAY), job.retries_left)
