"""Retries of jobs after exceptions.

    class SendInvoice:
        middleware = [Retry(OSError, backoff=5, factor=2)]  # again after 5, 10, 20... seconds

    @task(retries=3, backoff=5)                             # the same for a task, varied by 10 %
    def send_invoice(order): ...

| class | for | counts |
|---|---|---|
| `Retry` | job classes and functions, as middleware | the job's retries, which the server counts down |
| `RetryPolicy` | tasks, which make it of their options `retries`, `backoff` and `retry_on` | the same |
| `Requeue` | job classes and functions, as middleware | requeues, in the job's data; all retries are restored |

If the count is used up, the job fails. To retry or requeue a job, a middleware raises an `Outcome` to the worker,
`RetryLater` or `RequeueLater`.
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
    """Decides which exceptions lead to a retry, if the job has retries left, and after how many seconds.

    - `exceptions`: the classes that lead to a retry, with their subclasses.
    - `backoff`: seconds before the first retry; or a list of the seconds before each retry, whose last entry applies to
      all further ones.
    - `factor`: each delay is the previous one times `factor`, unless `backoff` is a list.
    - `jitter`: the share (0 to 1) by which such a delay is randomly lengthened or shortened, so that jobs that failed
      together do not run again together.
    - `max_delay`: the maximum delay in seconds.
    - `where`: begins the messages of errors in these arguments, such as "shop.tasks.send_invoice: ".

    The defaults suit tasks; `Retry` has others.

    Raises `TypeError` and `ValueError` for a wrong `backoff` or `jitter`.
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
        delays = [*backoff] if isinstance(backoff, Sequence) else [backoff]
        if not delays:
            raise ValueError(f"{where}backoff= is an empty list. Add the seconds before each retry.")
        for delay in delays:
            checked_options(where, backoff=delay)
        if not 0 <= jitter <= 1:
            raise ValueError(f"{where}jitter= must be a number from 0 to 1.")
        self.backoff = delays if isinstance(backoff, Sequence) else backoff
        self.exceptions = exceptions
        self.factor = factor
        self.jitter = jitter
        self.max_delay = max_delay

    def __call__(self, job: WorkerJob) -> Generator[None, None, None]:
        """Run the job, as middleware."""
        try:
            yield
        except Exception as error:
            retry = self.decide_retry(job, error)
            if retry is None:
                raise
            raise retry from error

    def decide_retry(self, job: WorkerJob, error: Exception) -> RetryLater | None:
        """Return the exception that makes the worker retry the job after this error; None if the job fails.

        The worker also calls it itself, after the process of a job has died with the middleware in it.
        """
        if not self.covers(error) or job.retries_left <= 0:
            return None
        return retry_outcome(job, self.delay_after(job.attempt), error)

    def covers(self, error: Exception) -> bool:
        """Return whether a job that raised this error runs again if it has retries left."""
        # `Outcome`: the job has chosen its end. `LostLock`, `Stopping`: this worker has lost the job, or returns it.
        # The others: another run would end in the same way.
        final = (Outcome, LostLock, Stopping, MaxRetriesExceeded, ResultGone, TaskExpired)
        return isinstance(error, self.exceptions) and not isinstance(error, final)

    def delay_after(self, attempt: int) -> float:
        """Return the seconds to wait after run number `attempt`, counted from 1."""
        if isinstance(self.backoff, Sequence):
            return self.backoff[min(attempt, len(self.backoff)) - 1]
        try:
            delay = self.backoff * float(self.factor) ** (attempt - 1)
        except OverflowError:
            delay = self.max_delay
        return min(delay * (1 + random.uniform(-self.jitter, self.jitter)), self.max_delay)  # noqa: S311 (no secret)


class Retry(RetryPolicy):
    """Middleware that retries a job after one of `exceptions` while it has retries left.

    The delay before the n-th retry is `backoff * factor ** (n - 1)` seconds, at most `max_delay`, randomly varied by
    the share `jitter`. The default of `factor` is the number of `backoff`: 2 makes the delays 2, 4, 8... seconds, and
    0.5 lets them shrink. `callback(error, job)` is called before each retry.

    By default, delays follow from `backoff` alone, without the random variation that tasks have.
    """

    def __init__(
        self,
        *exceptions: type[Exception],
        backoff: float = 2.0,
        factor: float | None = None,
        jitter: float = 0.0,
        max_delay: float = 86_400.0,
        callback: Callable[[Exception, WorkerJob], object] | None = None,
    ) -> None:
        if not exceptions:
            raise TypeError("Retry() needs the exceptions after which to retry a job, such as Retry(OSError).")
        checked_options("Retry(): ", backoff=backoff)
        factor = backoff if factor is None else factor
        super().__init__(backoff, exceptions, factor=factor, jitter=jitter, max_delay=max_delay, where="Retry(): ")
        self.callback = callback

    def decide_retry(self, job: WorkerJob, error: Exception) -> RetryLater | None:
        retry = super().decide_retry(job, error)
        if retry is not None and self.callback is not None:
            self.callback(error, job)
        return retry


class Requeue:
    """Middleware that requeues a job after one of `exceptions`, up to `max_requeues` times for each of them.

    The job gets all its retries again. The delay is random, from `min_delay` to `max_delay` seconds.
    `callback(error, job)` is called before each requeue.
    The requeues are counted in the job's data, which must be a dict, under "requeues_by_exception", by the name of the
    class in `exceptions`: classes with the same name share a count.
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
        except Outcome:  # the job has chosen its end; all other exceptions may requeue it, as that costs no retry
            raise
        except self.exceptions as error:
            kind = next(kind for kind in self.exceptions if isinstance(error, kind)).__name__
            if not isinstance(job.data, dict):
                raise
            counts = job.data.get("requeues_by_exception", {})
            if counts.get(kind, 0) >= self.max_requeues:
                raise
            job.data["requeues_by_exception"] = {**counts, kind: counts.get(kind, 0) + 1}
            if self.callback is not None:
                self.callback(error, job)
            raise RequeueLater(random.uniform(self.min_delay, self.max_delay)) from error  # noqa: S311 (no secret)


def retry_outcome(job: Job, delay: float, error: BaseException | None = None) -> RetryLater:
    """Return the exception that makes the worker retry the job after `delay` seconds.

    `error`: the reason for the retry; None if the task called `retry()`. Should no retry be left, the job fails in the
    failure group `<queue>-<class of the error>` instead, with the error as its message.
    """
    if error is None:
        return RetryLater(delay, f"{job.queue_name}-Retry", "retry() was called")
    return RetryLater(delay, f"{job.queue_name}-{type(error).__name__}", message_of(error))
