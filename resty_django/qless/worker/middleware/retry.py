"""Retries after certain exceptions, with growing delays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...clients.put_options import checked_options
from ...tasks.retry import LONGEST_DELAY, RetryPolicy
from ..control import RetryLater


class Retry(RetryPolicy):
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
        longest: float = LONGEST_DELAY,
        callback: Callable[[Exception, Any], object] | None = None,
    ) -> None:
        if not exceptions:
            raise TypeError("Retry() needs the exceptions after which to retry a job, such as Retry(OSError).")
        checked_options("Retry(): ", delay=delay)
        if not 0 <= fuzz <= 1:
            raise ValueError("Retry() needs fuzz= from 0 to 1.")
        super().__init__(delay, exceptions, factor=delay if factor is None else factor, jitter=fuzz, longest=longest)
        self.callback = callback

    def next_run(self, job: Any, error: BaseException) -> RetryLater | None:
        """Return the exception that retries the job after this error; None if the job fails."""
        outcome = super().next_run(job, error)
        if outcome is not None and self.callback is not None:
            self.callback(error, job)  # type: ignore[arg-type]
        return outcome
