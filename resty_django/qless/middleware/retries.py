"""Retries of jobs after exceptions.

    class SendInvoice:
        middleware = [Retry(OSError, delay=5, factor=2)]  # again after 5, 10, 20... seconds

    @task(retries=3, backoff=5)                           # the same for a task, by a `RetryPolicy`
    def send_invoice(order): ...

A job has a number of retries, which the server counts down. `RetryPolicy` and its subclass `Retry` use one up each
time; if none is left, the job fails. `Requeue` leaves them alone, and counts for itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence

from ..clients.job import Job
from ..clients.put_options import checked_options
from ..errors import LostLock, MaxRetriesExceeded, ResultGone, TaskExpired
from ..outcomes import Outcome, RequeueLater, RetryLater, Stopping
from ..outcomes.error_text import message_of
from .job import WorkerJob


class RetryPolicy:
    """Retries a job that raised one of `exceptions` while it has retries left; after that, the job fails.

    - `backoff`: seconds before the first retry; or a list of the seconds before each retry, whose last entry applies to
      all further ones.
    - `factor`: by what each further delay is multiplied, unless `backoff` is a list.
    - `jitter`: the share by which such a delay is randomly lengthened or shortened, so that jobs that failed together
      spread out.
    - `max_delay`: the maximum delay in seconds.
    - `where`: the beginning of messages.

    Raises `TypeError` and `ValueError` for a wrong `backoff`.
    """

    def __init__(
        self,
        backoff: float | Sequence[float],
        exceptions: tuple[type[Exception], ...],
        *,
        factor: float = 2.0,
        jitter: float = 0.1,
        max_delay: float = 86_400.0,
        where: str = "",
    ) -> None:
        delays = backoff if isinstance(backoff, Sequence) else [backoff]
        if not delays:
            raise ValueError("backoff= is an empty list. Add the seconds before each retry.")
        for delay in delays:
            checked_options(where, backoff=delay)
        self.backoff = backoff
        self.exceptions = exceptions
        self.factor = factor
        self.jitter = jitter
        self.max_delay = max_delay

    def __call__(self, job: WorkerJob) -> Generator[None, None, None]:
        """Run the job, as middleware."""
        try:
            yield
        except Exception as error:
            retry = self.next_run(job, error)
            if retry is None:
                raise
            raise retry from error

    def next_run(self, job: WorkerJob, error: Exception) -> RetryLater | None:
        """Return the exception that reschedules the job after this error; None if the job fails."""
        if not self.covers(error) or job.retries_left <= 0:
            return None
        return retry_later(job, self.delay(job.attempt), error)

    def covers(self, error: Exception) -> bool:
        """Return whether a job that raised this error runs again if it has retries left."""
        # a run after one of these would end in the same way, or the job has chosen its end itself
        final = (LostLock, MaxRetriesExceeded, Outcome, ResultGone, Stopping, TaskExpired)
        return isinstance(error, self.exceptions) and not isinstance(error, final)

    def delay(self, attempt: int) -> float:
        """Return the seconds to wait after run number `attempt`, counted from 1."""
        if isinstance(self.backoff, Sequence):
            return self.backoff[min(attempt, len(self.backoff)) - 1]
        try:
            delay = self.backoff * float(self.factor) ** (attempt - 1)
        except OverflowError:
            delay = self.max_delay
        return min(delay * (1 + random.uniform(-self.jitter, self.jitter)), self.max_delay)  # noqa: S311 (no secret)


class Retry(RetryPolicy):
    """Retries a job that raised one of `exceptions` while it has retries left; after that, the job fails.

    The delay before the n-th retry is `delay * factor ** (n - 1)` seconds, at most `max_delay`, randomly varied by the
    share `jitter`. `factor`: None means the same as `delay`. `callback(error, job)` is called before each retry.
    """

    def __init__(
        self,
        *exceptions: type[Exception],
        delay: float = 2.0,
        factor: float | None = None,
        jitter: float = 0.0,
        max_delay: float = 86_400.0,
        callback: Callable[[Exception, WorkerJob], object] | None = None,
    ) -> None:
        if not exceptions:
            raise TypeError("Retry() needs the exceptions after which to retry a job, such as Retry(OSError).")
        checked_options("Retry(): ", delay=delay)
        if not 0 <= jitter <= 1:
            raise ValueError("Retry() needs jitter= from 0 to 1.")
        factor = delay if factor is None else factor
        super().__init__(delay, exceptions, factor=factor, jitter=jitter, max_delay=max_delay)
        self.callback = callback

    def next_run(self, job: WorkerJob, error: Exception) -> RetryLater | None:
        retry = super().next_run(job, error)
        if retry is not None and self.callback is not None:
            self.callback(error, job)
        return retry


class Requeue:
    """Requeues a job that raised one of `exceptions`, up to `max_requeues` times for each; after that, the job fails.

    The delay is random, from `min_delay` to `max_delay` seconds. `callback(error, job)` is called before each requeue.
    The requeues are counted in the job's data, which must be a dict, under "requeues_by_exception".
    """

    def __init__(
        self,
        *exceptions: type[Exception],
        min_delay: float = 0.0,
        max_delay: float = 30.0,
        max_requeues: int = 5,
        callback: Callable[[Exception, WorkerJob], object] | None = None,
    ) -> None:
        if not exceptions:
            raise TypeError("Requeue() needs the exceptions after which to requeue a job, such as Requeue(OSError).")
        if not 0 <= min_delay <= max_delay:
            raise ValueError("Requeue() needs min_delay= of 0 or more, and max_delay= that is not smaller.")
        self.exceptions = exceptions
        self.min_delay = min_delay
        self.max_delay = max_delay
        self.max_requeues = max_requeues
        self.callback = callback

    def __call__(self, job: WorkerJob) -> Generator[None, None, None]:
        """Run the job, as middleware."""
        try:
            yield
        except Outcome:
            raise
        except self.exceptions as error:
            kind = next(kind for kind in self.exceptions if isinstance(error, kind)).__name__
            if not isinstance(job.data, dict):
                raise
            counts = job.data.setdefault("requeues_by_exception", {})
            if counts.get(kind, 0) >= self.max_requeues:
                raise
            counts[kind] = counts.get(kind, 0) + 1
            if self.callback is not None:
                self.callback(error, job)
            raise RequeueLater(random.uniform(self.min_delay, self.max_delay)) from error  # noqa: S311 (no secret)


def retry_later(job: Job, delay: float, error: BaseException | None = None) -> RetryLater:
    """Return the exception that reschedules the job after `delay` seconds, with the group and message of its failure.

    `error`: the reason for the retry; None if the task called `retry()`.
    """
    if error is None:
        return RetryLater(delay, f"{job.queue_name}-Retry", "retry() was called")
    return RetryLater(delay, f"{job.queue_name}-{type(error).__name__}", message_of(error))
