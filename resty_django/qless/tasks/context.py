"""The first argument of tasks with `bind=True`: the task, and its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

from ..clients.put_options import checked_options
from ..errors import MaxRetriesExceeded, QlessError
from ..middleware.retries import retry_outcome
from .options import timestamp

if TYPE_CHECKING:
    from .base import Task
    from .canvas import Signature
    from .options import EnqueueKeywords
    from .results import AsyncResult


class TaskContext:
    """One run of a task.

    `task`: the task. `job`: the job; None if the task was called as a plain function. `args`, `kwargs`: the arguments
    of the call. `request`: this object itself, for code written for Celery.
    """

    def __init__(self, task: Task[..., Any], job: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        self.task = task
        self.job = job
        self.args = args
        self.kwargs = kwargs

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.task.path} ({self.id})>"

    @property
    def request(self) -> TaskContext:
        return self

    @property
    def path(self) -> str:
        """The dotted path of the task."""
        return self.task.path

    @property
    def id(self) -> str | None:
        """The ID of the task; None if it was called as a plain function."""
        return None if self.job is None else self.job.jid

    @property
    def attempt(self) -> int:
        """The number of this run, starting at 1."""
        return 1 if self.job is None else self.job.original_retries - self.job.retries_left + 1

    @property
    def retries(self) -> int:
        """The number of earlier runs."""
        return self.attempt - 1

    @property
    def hostname(self) -> str | None:
        """The name of the worker."""
        return None if self.job is None else self.job.worker_name

    @property
    def called_directly(self) -> bool:
        """Whether the task was called as a plain function."""
        return self.job is None

    def retry(
        self,
        *,
        exc: BaseException | None = None,
        countdown: float | None = None,
        eta: datetime | None = None,
        max_retries: int | None = None,
    ) -> NoReturn:
        """End this run and run the task again after `countdown` seconds, at `eta`, or after its backoff.

        Raises `RetryLater`, which the worker handles. If no retry is left, or this run is number `max_retries` + 1,
        raises `exc` if given, else `MaxRetriesExceeded`. Outside a worker, raises `exc` if given, else `QlessError`.
        """
        checked_options(countdown=countdown, eta=eta, max_retries=max_retries)
        job = self.job
        if job is None:
            if exc is not None:
                raise exc
            raise QlessError(f"{self.task.path} was called as a plain function and cannot be retried. Use delay().")
        if job.retries_left <= 0 or (max_retries is not None and self.retries >= max_retries):
            if exc is not None:
                raise exc
            raise MaxRetriesExceeded(f"{self.task.path} ({job.jid}) has no retries left after {self.attempt} runs.")
        if eta is not None:
            delay = max(0.0, timestamp(eta) - job.client.clock())
        else:
            delay = self.task.retry_policy.delay_after(self.attempt) if countdown is None else countdown
        raise retry_outcome(job, delay, exc) from exc

    def update_progress(self, share: float, message: str = "") -> None:
        """Report the progress, for `result.progress`: a share from 0 to 1, and a message. Raises `LostLock`."""
        if self.job is not None:
            self.job.progress(share, message)

    async def aupdate_progress(self, share: float, message: str = "") -> None:
        """Do the same for asyncio."""
        if self.job is not None:
            await self.job.aprogress(share, message)

    @property
    def lost(self) -> bool:
        """Whether this worker has lost the job: it was revoked, or its lock expired. For long tasks."""
        return self.job is not None and bool(getattr(self.job, "lost", False))

    def check(self) -> None:
        """Raise `LostLock` if this worker has lost the job. For long tasks, between two steps."""
        if self.job is not None:
            self.job.check()

    # --- enqueuing the task again ---

    def delay(self, *args: Any, **kwargs: Any) -> AsyncResult[Any]:
        """Call `Task.delay`."""
        return self.task.delay(*args, **kwargs)

    async def adelay(self, *args: Any, **kwargs: Any) -> AsyncResult[Any]:
        """Call `Task.adelay`."""
        return await self.task.adelay(*args, **kwargs)

    def apply_async(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Unpack[EnqueueKeywords]
    ) -> AsyncResult[Any]:
        """Call `Task.apply_async`."""
        return self.task.apply_async(args, kwargs, **options)

    async def aapply_async(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Unpack[EnqueueKeywords]
    ) -> AsyncResult[Any]:
        """Call `Task.aapply_async`."""
        return await self.task.aapply_async(args, kwargs, **options)

    def s(self, *args: Any, **kwargs: Any) -> Signature:
        """Call `Task.s`."""
        return self.task.s(*args, **kwargs)

    def si(self, *args: Any, **kwargs: Any) -> Signature:
        """Call `Task.si`."""
        return self.task.si(*args, **kwargs)
