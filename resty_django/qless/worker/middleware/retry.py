"""Retries after certain exceptions, with growing delays."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from typing import Any

from ...clients.put_options import checked_options
from ..control import Outcome, RetryLater
from ..error_text import message_of


class Retry:
    """Retries a job that raised one of `exceptions` while it has retries left; after that, the job fails.

    The delay before the n-th retry is `delay * factor ** (n - 1)` seconds, at most `longest`, randomly varied by the
    share `fuzz`. `factor`: None means the same as `delay`. `callback(error, job)` is called before each retry.
    """

    def __init__(
        self,
        *exceptions: type[Exception],
        delay: float = 2.0,
        factor: float | None = None,
        fuzz: float = 0.0,
        longest: float = 86_400.0,
        callback: Callable[[Exception, Any], object] | None = None,
    ) -> None:
        if not exceptions:
            raise TypeError("Retry() needs the exceptions after which to retry a job, such as Retry(OSError).")
        checked_options("Retry(): ", delay=delay)
        if not 0 <= fuzz <= 1:
            raise ValueError("Retry() needs fuzz= from 0 to 1.")
        self.exceptions = exceptions
        self.delay = delay
        self.factor = delay if factor is None else factor
        self.fuzz = fuzz
        self.longest = longest
        self.callback = callback

    def pause(self, attempt: int) -> float:
        """Return the seconds to wait after run number `attempt`, counted from 1."""
        try:
            pause = self.delay * float(self.factor) ** (attempt - 1)
        except OverflowError:
            pause = self.longest
        pause *= 1 + random.uniform(-self.fuzz, self.fuzz)  # noqa: S311 (no secret)
        return min(pause, self.longest)

    def next_run(self, job: Any, error: BaseException) -> RetryLater | None:
        """Return the exception that retries the job after this error; None if the job fails."""
        if job.retries_left <= 0 or not isinstance(error, self.exceptions):
            return None
        if self.callback is not None:
            self.callback(error, job)
        group = f"{job.queue_name}-{type(error).__name__}"
        return RetryLater(self.pause(job.attempt), group, message_of(error))

    def __call__(self, job: Any) -> Generator[None, None, None]:
        try:
            yield
        except Outcome:
            raise
        except self.exceptions as error:
            outcome = self.next_run(job, error)
            if outcome is None:
                raise
            raise outcome from error
