"""Eager mode for tests: tasks run where they are called. RESTY_DJANGO = {"QLESS": {"EAGER": True}}."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async

from resty_django.txid import bound, current

from ..clients.client import Client
from ..clients.job import Job
from ..clients.replies import JobRecord
from ..clients.serialization import decode, encode
from ..errors import InvalidArgument, ResultGone
from ..worker.control import JobTimeout, RetryLater

if TYPE_CHECKING:
    from .base import Task
    from .message import Message

DEFAULT_RETRIES: Final = 5
"""Retries of a job that is put without the option."""
KEPT: Final = 1000
"""Number of outcomes kept."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A task's return value or exception, and its progress. `kept`: whether a worker would keep the result."""

    value: Any
    error: Exception | None = None
    kept: bool = True
    progress: tuple[float | None, str] = (None, "")

    def get(self) -> Any:
        if self.error is not None:
            raise self.error
        if not self.kept:
            raise ResultGone("The task has succeeded; its result was not kept. Remove ignore_result to keep it.")
        return self.value


outcomes: Final[OrderedDict[str, Outcome]] = OrderedDict()
"""Outcomes by task ID, the latest last."""


class EagerJob(Job):
    """A job without a server. Its methods store what a task reports, or do nothing."""

    __slots__ = ("reported_progress",)

    def __init__(self, client: Client, record: JobRecord) -> None:
        super().__init__(client, record)
        self.reported_progress: tuple[float | None, str] = (None, "")

    def progress(self, share: float, message: str = "") -> None:
        self.reported_progress = (share, message)

    async def aprogress(self, share: float, message: str = "") -> None:
        self.reported_progress = (share, message)

    def heartbeat(self) -> float:
        return self.expires_at

    async def aheartbeat(self) -> float:
        return self.expires_at

    def log(self, message: str, data: dict[str, Any] | None = None) -> None:
        """There is no history."""

    async def alog(self, message: str, data: dict[str, Any] | None = None) -> None:
        """There is no history."""

    @property
    def attempt(self) -> int:
        return self.original_retries - self.retries_left + 1

    def check(self) -> None:
        """Do nothing: an eager job is never lost."""


def run(task: Task[..., Any], message: Message, client: Client) -> None:
    """Run a task now, keep its outcome, and raise what it raises. Retries follow at once."""
    if iscoroutinefunction(task.function):
        async_to_sync(arun)(task, message, client)
        return
    job = _job(task, message, client)
    with bound(current()):
        while True:
            try:
                with time_limit(task.timeout):
                    value = task._perform(job)
            except Exception as error:
                failure = _failure(task, job, error)
                if failure is error:
                    raise
                if failure is not None:
                    raise failure from error
            else:
                _note(task, job, value)
                return


async def arun(task: Task[..., Any], message: Message, client: Client) -> None:
    """Do the same for asyncio."""
    if not iscoroutinefunction(task.function):
        await sync_to_async(run)(task, message, client)
        return
    job = _job(task, message, client)
    with bound(current()):
        while True:
            try:
                value = await _within(task.timeout, task._aperform(job))
            except Exception as error:
                failure = _failure(task, job, error)
                if failure is error:
                    raise
                if failure is not None:
                    raise failure from error
            else:
                _note(task, job, value)
                return


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise `JobTimeout` in the block after `seconds` (None: never), as a worker does: at the next line of Python."""
    if seconds is None:
        yield
        return
    from ..worker.executor import checkpoint, raise_in_thread  # sites that enqueue do not need it

    thread, lock = threading.get_ident(), threading.Lock()
    states: list[str] = []

    def interrupt() -> None:
        with lock:
            if not states:
                states.append("interrupted")
                raise_in_thread(thread, JobTimeout)

    timer = threading.Timer(seconds, interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    except JobTimeout:
        raise JobTimeout(seconds) from None
    finally:
        with lock:
            states.append("ended")
        timer.cancel()
        if states[0] == "interrupted":
            with suppress(JobTimeout):  # set when the block had ended
                checkpoint()


async def _within(seconds: float | None, awaitable: Awaitable[Any]) -> Any:
    try:
        async with asyncio.timeout(seconds) as limit:
            return await awaitable
    except TimeoutError:
        if seconds is None or not limit.expired():
            raise
        raise JobTimeout(seconds) from None


def _job(task: Task[..., Any], message: Message, client: Client) -> EagerJob:
    options = message.options
    retries = DEFAULT_RETRIES if options.retries is None else options.retries
    job = EagerJob.build(
        client,
        message.klass,
        jid=message.jid,
        queue=message.queue,
        data=msgspec.json.decode(message.data),
        priority=options.priority or 0,
        tags=[str(tag) for tag in options.tags],
        retries=retries,
        remaining=retries,
        txid=current(),
    )
    return job  # type: ignore[return-value]


def _note(task: Task[..., Any], job: EagerJob, value: Any) -> None:
    """Store the result as a worker would: as JSON, or not at all. Raises `InvalidArgument`."""
    try:
        value = decode(encode(value, "result").decode()) if task.keep_result else None
        _remember(job.jid, Outcome(value, kept=task.keep_result, progress=job.reported_progress))
    except InvalidArgument as error:
        _remember(job.jid, Outcome(None, error, progress=job.reported_progress))
        raise


def _remember(jid: str, outcome: Outcome) -> None:
    outcomes[jid] = outcome
    if len(outcomes) > KEPT:
        outcomes.popitem(last=False)


def _failure(task: Task[..., Any], job: EagerJob, error: Exception) -> Exception | None:
    """Return the error with which the task has failed, or None if it runs again."""
    failure = error
    if isinstance(error, RetryLater) and not math.isfinite(error.delay):
        failure = InvalidArgument(f'Retry(): Arg "delay" not a number: {error.delay}')
    elif isinstance(error, RetryLater) or task.retry_policy.covers(error):
        if job.retries_left > 0:
            job._record.remaining -= 1
            return None
        if isinstance(error, RetryLater):
            failure = InvalidArgument(f"{job.klass} has no retries left. Raise retries=, or pass exc= to retry().")
    _remember(job.jid, Outcome(None, failure, progress=job.reported_progress))
    return failure
