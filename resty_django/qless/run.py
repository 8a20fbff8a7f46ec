"""What a task with `bind=True` gets as its first argument: itself, and this run of it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from django.utils import timezone

from .errors import QlessError
from .job import Job

if TYPE_CHECKING:
    from .task import Task


class MaxRetriesExceeded(QlessError):
    """`retry()` was called in the last run that the task may have."""


class Run:
    """One run of a task. It has what the task has, and `request`, which is this object, where Celery has it.

    `job`: the job (None where the task was called as a plain function); `args`, `kwargs`: with what it was called.
    """

    def __init__(self, task: Task[..., Any], job: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        self.task = task
        self.job = job
        self.args = args
        self.kwargs = kwargs

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.task.path} ({self.id})>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.task, name)

    @property
    def request(self) -> Run:
        return self

    @property
    def id(self) -> str | None:
        """The ID of the task; None where it was called as a plain function."""
        return None if self.job is None else self.job.jid

    @property
    def attempt(self) -> int:
        """Which run this is, from 1 on."""
        return 1 if self.job is None else self.job.original_retries - self.job.retries_left + 1

    @property
    def retries(self) -> int:
        """How many runs there were before."""
        return self.attempt - 1

    @property
    def hostname(self) -> str | None:
        """The worker."""
        return None if self.job is None else self.job.worker_name

    @property
    def called_directly(self) -> bool:
        return self.job is None

    def retry(
        self,
        *,
        exc: BaseException | None = None,
        countdown: float | None = None,
        eta: datetime | None = None,
        max_retries: int | None = None,
    ) -> NoReturn:
        """End this run; the task is run again after `countdown` seconds, or at `eta`, or after its backoff.

        Raises always: what the worker understands; or, where no retry is left or this run is number `max_retries` + 1,
        `exc`, else `MaxRetriesExceeded`. Called outside of a worker it raises `exc`, or what is under way.
        """
        from .worker.outcomes import RetryLater
        from .worker.perform import message_of

        job: Job | None = self.job
        if job is None:
            if exc is not None:
                raise exc
            raise QlessError(f"{self.task.path} was called as a plain function, and cannot be retried.")
        if job.retries_left <= 0 or (max_retries is not None and self.retries >= max_retries):
            if exc is not None:
                raise exc
            raise MaxRetriesExceeded(f"{self.task.path} ({job.jid}) has no retries left after {self.attempt} runs.")
        if eta is not None:
            delay = max(0.0, timestamp(eta) - job.client.clock())
        else:
            delay = self.task.pause(self.attempt) if countdown is None else countdown
        group = f"{job.queue_name}-{type(exc).__name__ if exc is not None else 'Retry'}"
        raise RetryLater(delay, group, message_of(exc) if exc is not None else "retry() was called") from exc

    def update_progress(self, share: float, message: str = "") -> None:
        """Tell whoever asks how far the task is: `result.progress`. Raises `LostLock`."""
        if self.job is not None:
            self.job.progress(share, message)

    async def aupdate_progress(self, share: float, message: str = "") -> None:
        """The same for asyncio."""
        if self.job is not None:
            await self.job.aprogress(share, message)

    def check(self) -> None:
        """For long tasks, between two steps. Raises `LostLock` once the job is no longer this worker's."""
        if self.job is not None:
            self.job.check()


def timestamp(at: datetime) -> float:
    """Seconds since the epoch; a time without zone is in Django's current time zone."""
    return (timezone.make_aware(at) if timezone.is_naive(at) else at).timestamp()


__all__ = ["MaxRetriesExceeded", "Run", "timestamp"]
