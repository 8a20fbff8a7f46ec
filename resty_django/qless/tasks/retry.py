"""Retry policies of tasks and job classes."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from typing import Any, Final

from ..clients.put_options import checked_options
from ..errors import LostLock, MaxRetriesExceeded, ResultGone, TaskExpired
from ..worker.control import Outcome, RetryLater, Stopping
from ..worker.error_text import message_of

LONGEST_DELAY: Final = 86_400.0
"""Seconds."""
FINAL_ERRORS: Final = (LostLock, MaxRetriesExceeded, Outcome, ResultGone, Stopping, TaskExpired)
"""Exceptions that never cause a retry: the task chose its own outcome, or another run would end in the same way."""


class RetryPolicy:
    """Decides whether and when a job runs again after an exception. Also a middleware.

    `backoff`: seconds before the first retry, multiplied by `factor` for each further retry, at most `longest`; or a
    list of the seconds before each retry, whose last entry applies to all further ones. `jitter`: the share by which a
    delay that is not from a list is randomly lengthened or shortened, so that jobs that failed together spread out.
    `exceptions`: exceptions after which the job runs again; if empty, never. `where`: the beginning of messages.
    """

    def __init__(
        self,
        backoff: float | Sequence[float],
        exceptions: tuple[type[Exception], ...],
        where: str = "",
        *,
        factor: float = 2.0,
        jitter: float = 0.1,
        longest: float = LONGEST_DELAY,
    ) -> None:
        delays = [*backoff] if isinstance(backoff, Sequence) else [backoff]
        if not delays:
            raise ValueError("backoff= is an empty list. Add the seconds before each retry.")
        for delay in delays:
            checked_options(where, backoff=delay)
        self._grows = isinstance(backoff, int | float)
        self._delays = delays
        self._factor = factor
        self._jitter = jitter
        self._longest = longest
        self.exceptions = exceptions

    def delay(self, attempt: int) -> float:
        """Return the seconds to wait after run number `attempt`, counted from 1."""
        if not self._grows:
            return self._delays[min(attempt, len(self._delays)) - 1]
        try:
            delay = self._delays[0] * float(self._factor) ** (attempt - 1)
        except OverflowError:
            delay = self._longest
        return min(delay * (1 + random.uniform(-self._jitter, self._jitter)), self._longest)  # noqa: S311 (no secret)

    def covers(self, error: BaseException) -> bool:
        """Return whether a job that raised this error runs again if it has retries left."""
        return isinstance(error, self.exceptions) and not isinstance(error, FINAL_ERRORS)

    def next_run(self, job: Any, error: BaseException) -> RetryLater | None:
        """Return the exception that reschedules the job after this error; None if the job fails."""
        if not self.covers(error) or job.retries_left <= 0:
            return None
        return retry_later(job, self.delay(job.attempt), error)

    def __call__(self, job: Any) -> Generator[None, None, None]:
        try:
            yield
        except Exception as error:
            outcome = self.next_run(job, error)
            if outcome is None:
                raise
            raise outcome from error


def retry_later(job: Any, delay: float, error: BaseException | None = None) -> RetryLater:
    """Return the exception that reschedules the job after `delay` seconds, with the group and message of its failure.

    `error`: the reason for the retry; None if the task called `retry()`.
    """
    kind, message = ("Retry", "retry() was called") if error is None else (type(error).__name__, message_of(error))
    return RetryLater(delay, f"{job.queue_name}-{kind}", message)
