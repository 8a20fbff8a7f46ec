"""Retries of tasks and job classes after exceptions: as a policy, and as middleware that retries or requeues."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

from ..clients.put_options import checked_options
from ..errors import LostLock, MaxRetriesExceeded, ResultGone, TaskExpired
from ..outcomes import Outcome, RequeueLater, RetryLater, Stopping
from ..outcomes.error_text import message_of

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


class Requeue:
    """Requeues a job that raised one of `exceptions`, up to `most` times for each of them; after that, the job fails.

    The delay is random, from `least` to `longest` seconds. `callback(error, job)` is called before each requeue. The
    requeues are counted in the job's data, which must be a dict, under "requeues_by_exception".
    """

    def __init__(
        self,
        *exceptions: type[Exception],
        least: float = 0.0,
        longest: float = 30.0,
        most: int = 5,
        callback: Callable[[Exception, Any], object] | None = None,
    ) -> None:
        if not exceptions:
            raise TypeError("Requeue() needs the exceptions after which to requeue a job, such as Requeue(OSError).")
        if not 0 <= least <= longest:
            raise ValueError("Requeue() needs least= of 0 or more, and longest= that is not smaller than least=.")
        self.exceptions = exceptions
        self.least, self.longest = least, longest
        self.most = most
        self.callback = callback

    def __call__(self, job: Any) -> Generator[None, None, None]:
        try:
            yield
        except Outcome:
            raise
        except self.exceptions as error:
            kind = next(kind for kind in self.exceptions if isinstance(error, kind)).__name__
            if not isinstance(job.data, dict):
                raise
            counts = job.data.setdefault("requeues_by_exception", {})
            if counts.get(kind, 0) >= self.most:
                raise
            counts[kind] = counts.get(kind, 0) + 1
            if self.callback is not None:
                self.callback(error, job)
            raise RequeueLater(random.uniform(self.least, self.longest)) from error  # noqa: S311 (no secret)
