"""Jobs under a limit of all workers together: so many a minute, so many at once, by queue or by their data."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, Final, Protocol

from ..chain import Around
from ..outcomes import RequeueLater

SHORTEST: Final = 1.0
"""Seconds at least until a job that was refused is tried again."""


class Limiter(Protocol):
    """What is needed of a limiter. All those of `resty_django.limits` have it."""

    def slot(self, key: object, wait: float | None) -> Any:
        """A place for the time of a `with` or `async with`, for which it waits so many seconds at most.

        Entering it raises `resty_django.limits.Limited`.
        """


class Limit:
    """Runs a job only if `limiter` lets it; else puts it again, for when there may be room, with the retries it has.

    `limiter`: a limiter, or the name of a policy of `resty_django.limits`. `key`: a function of the job; without it all
    jobs of a queue are counted together. `wait`: seconds that a job may wait in the worker for its turn.
    """

    def __init__(
        self, limiter: Limiter | str, key: Callable[[Any], object] = lambda job: job.queue_name, *, wait: float = 1.0
    ) -> None:
        self.limiter = limiter
        self.key = key
        self.wait = wait

    def __call__(self, job: Any) -> Around:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._around(job)
        return self._aaround(job)

    def _around(self, job: Any) -> Generator[None, None, None]:
        from resty_django.limits.errors import Limited

        place = self._limiter().slot(self.key(job), self.wait)
        try:
            place.__enter__()
        except Limited as refusal:
            raise self._later(job, refusal) from None
        try:
            yield
        finally:
            place.__exit__(None, None, None)

    async def _aaround(self, job: Any) -> AsyncGenerator[None, None]:
        from resty_django.limits.errors import Limited

        place = self._limiter().slot(self.key(job), self.wait)
        try:
            await place.__aenter__()
        except Limited as refusal:
            raise self._later(job, refusal) from None
        try:
            yield
        finally:
            await place.__aexit__(None, None, None)

    def _limiter(self) -> Limiter:
        if not isinstance(self.limiter, str):
            return self.limiter
        from resty_django.limits import policy

        found = policy.named(self.limiter)
        if found is None:
            raise LookupError(f"There is no policy {self.limiter!r} of resty_django.limits for the jobs.")
        return found.limiter

    @staticmethod
    def _later(job: Any, refusal: Any) -> RequeueLater:
        return RequeueLater(max(refusal.decision.retry_after, refusal.decision.delay, SHORTEST), job.retries_left)


__all__ = ["Limit", "Limiter"]
