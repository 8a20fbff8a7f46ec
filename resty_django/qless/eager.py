"""Tasks that run where they are called, for tests of a site: RESTY_DJANGO = {"QLESS": {"EAGER": True}}."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async

from resty_django.txid import bound, current

from .clients import Client
from .errors import InvalidArgument
from .job import Job
from .texts import encode
from .values import JobRecord

if TYPE_CHECKING:
    from .message import Message
    from .task import Task

KEPT: Final = 1000
"""Outcomes that are remembered."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a task returned, or raised."""

    value: Any
    error: Exception | None = None

    def get(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


outcomes: Final[OrderedDict[str, Outcome]] = OrderedDict()
"""By the ID of the task, the latest last."""


class EagerJob(Job):
    """A job of no server. What a task does to it while it runs is remembered, or does nothing."""

    __slots__ = ("told",)

    def __init__(self, client: Client, record: JobRecord) -> None:
        super().__init__(client, record)
        self.told: tuple[float, str] | None = None

    def progress(self, share: float, message: str = "") -> None:
        self.told = (share, message)

    async def aprogress(self, share: float, message: str = "") -> None:
        self.told = (share, message)

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
        """It is never lost."""


def run(task: Task[..., Any], message: Message, client: Client) -> None:
    """Run a task now; what it raises is remembered, and raised. Retries come at once."""
    if iscoroutinefunction(task.function):
        async_to_sync(arun)(task, message, client)
        return
    job = _job(task, message, client)
    with bound(current()):
        while True:
            try:
                value = task._perform(job)
            except Exception as error:
                if not _again(task, job, error):
                    raise
            else:
                _note(job.jid, value)
                return


async def arun(task: Task[..., Any], message: Message, client: Client) -> None:
    """The same for asyncio."""
    if not iscoroutinefunction(task.function):
        await sync_to_async(run)(task, message, client)
        return
    job = _job(task, message, client)
    with bound(current()):
        while True:
            try:
                value = await task._aperform(job)
            except Exception as error:
                if not _again(task, job, error):
                    raise
            else:
                _note(job.jid, value)
                return


def _job(task: Task[..., Any], message: Message, client: Client) -> EagerJob:
    options = dict(zip(message.options[::2], message.options[1::2], strict=True))
    retries = int(options.get("retries", 5))
    job = EagerJob.build(
        client,
        message.klass,
        jid=message.jid,
        queue=message.queue,
        data=msgspec.json.decode(message.data),
        priority=options.get("priority", 0),
        tags=msgspec.json.decode(options.get("tags", "[]")),
        retries=retries,
        remaining=retries,
        txid=current(),
    )
    return job  # type: ignore[return-value]


def _note(jid: str, value: Any) -> None:
    outcomes[jid] = Outcome(msgspec.json.decode(encode(value)))
    if len(outcomes) > KEPT:
        outcomes.popitem(last=False)


def _again(task: Task[..., Any], job: EagerJob, error: Exception) -> bool:
    from .worker.outcomes import RetryLater

    wanted = isinstance(error, RetryLater) or task.retries_after(error)
    if wanted and job.retries_left > 0:
        job._record.remaining -= 1
        return True
    if isinstance(error, RetryLater):
        error = InvalidArgument(f"{job.klass} has no retries left. Give it more, or pass exc= to retry().")
    outcomes[job.jid] = Outcome(None, error)
    return False


__all__ = ["KEPT", "EagerJob", "Outcome", "arun", "outcomes", "run"]
