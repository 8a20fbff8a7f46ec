"""What became of a task: `AsyncResult`, by the ID that `delay` gave."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

import msgspec

from . import eager
from .call import Steps, twins
from .clients import Client
from .default import default_client
from .errors import NoSuchJob, QlessError
from .job import Job
from .message import ResultGone
from .texts import decode, read, reader
from .values import JobRecord

R = TypeVar("R")

FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.25
"""Seconds between two looks while something waits for a result."""

PENDING, STARTED, RETRY, SUCCESS, FAILURE, GONE = "PENDING", "STARTED", "RETRY", "SUCCESS", "FAILURE", "GONE"
"""States of a task: it waits, runs, waits after it has failed or was lost, has ended well, has failed, or is unknown:
canceled, forgotten, or not committed yet."""

_JOB: Final = reader(JobRecord)
_WAITING: Final = object()


class TaskFailed(QlessError):
    """The task, or one that it depends on, has failed. `str()` is the message with the traceback; `group` and `jid` say
    which failure."""

    def __init__(self, jid: str, group: str, message: str) -> None:
        super().__init__(message)
        self.jid = jid
        self.group = group


class Progress(NamedTuple):
    """How far a task said it is: a number, and a text."""

    share: float | None
    message: str


class _Told(msgspec.Struct):
    state: str
    result: str | bool
    progress: float | bool
    message: str | bool


_TOLD: Final = reader(_Told)


class AsyncResult(Generic[R]):
    """The outcome of the task with this ID. Each attribute asks the server; methods that begin with `a` are the twins.

    `parent`: in a chain, the outcome of the task before.
    """

    __slots__ = ("client", "id", "parent")

    def __init__(
        self, id: str, *, client: Client | None = None, parent: AsyncResult[Any] | GroupResult | None = None
    ) -> None:
        self.id = id
        self.client: Client = default_client() if client is None else client
        self.parent = parent

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    def __str__(self) -> str:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncResult) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    # --- how it is ---

    def _get_state(self) -> Steps[str]:
        """One of the states in `resty_django.qless.results`."""
        if self.id in eager.outcomes:
            return SUCCESS if eager.outcomes[self.id].error is None else FAILURE
        told = yield from self._told()
        if told is None:
            return GONE
        if told.state in _STATES:
            return _STATES[told.state]
        job = yield from self._job()
        return RETRY if job is not None and (job.failure or job.retries_left < job.original_retries) else PENDING

    get_state, astate = twins(_get_state)

    @property
    def state(self) -> str:
        """PENDING, STARTED, RETRY, SUCCESS, FAILURE or GONE."""
        return self.get_state()

    status = state

    def _ready(self) -> Steps[bool]:
        """Whether it has ended, well or not."""
        return (yield from self._get_state()) in (SUCCESS, FAILURE)

    ready, aready = twins(_ready)

    def _successful(self) -> Steps[bool]:
        return (yield from self._get_state()) == SUCCESS

    successful, asuccessful = twins(_successful)

    def _failed(self) -> Steps[bool]:
        return (yield from self._get_state()) == FAILURE

    failed, afailed = twins(_failed)

    def _get_progress(self) -> Steps[Progress]:
        told = yield from self._told()
        if told is None:
            return Progress(None, "")
        return Progress(
            None if told.progress is False else float(told.progress),
            told.message if isinstance(told.message, str) else "",
        )

    get_progress, aprogress = twins(_get_progress)

    @property
    def progress(self) -> Progress:
        """What the task last said by `update_progress`."""
        return self.get_progress()

    def _job(self) -> Steps[Job | None]:
        """The job, with its history, worker, failure and more; None: there is none."""
        reply = yield "get", self.id
        return None if reply is None else Job(self.client, read(reply, _JOB))

    job, ajob = twins(_job)

    # --- what came of it ---

    def get(self, timeout: float | None = None) -> R:
        """What the task returned. Waits for it, up to `timeout` seconds (None: for as long as it takes).

        Raises `TaskFailed`, also where a task has failed that this one depends on; `TimeoutError`; `NoSuchJob` where it
        was canceled or forgotten; `ResultGone` where the result was not kept, or not for so long.
        """
        for pause in _pauses(timeout, self.id):
            found = self.client.run(self._outcome())
            if found is not _WAITING:
                return cast(R, found)
            time.sleep(pause)
        raise AssertionError("unreachable")

    async def aget(self, timeout: float | None = None) -> R:
        """The same for asyncio."""
        for pause in _pauses(timeout, self.id):
            found = await self.client.arun(self._outcome())
            if found is not _WAITING:
                return cast(R, found)
            await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    def _revoke(self) -> Steps[None]:
        """Cancel it. One that has ended well is left as it is. Raises `DependencyError` where others depend on it."""
        yield "cancel", self.id

    revoke, arevoke = twins(_revoke)

    def _outcome(self) -> Steps[Any]:
        if self.id in eager.outcomes:
            return eager.outcomes[self.id].get()
        told = yield from self._told()
        if told is None:
            raise NoSuchJob(f"There is no task {self.id}: it was canceled or forgotten, or is not committed yet.")
        if told.state == "complete":
            if not isinstance(told.result, str):
                raise ResultGone(f"The task {self.id} has ended well; its result was not kept, or not for so long.")
            return decode(told.result)
        if told.state == "failed":
            yield from self._raise_failure()
        if told.state == "depends":
            yield from self._look_at_dependencies()
        return _WAITING

    def _raise_failure(self) -> Steps[None]:
        job = yield from self._job()
        if job is not None and job.state == "failed":
            raise TaskFailed(job.jid, job.failure.get("group", ""), job.failure.get("message", ""))

    def _look_at_dependencies(self) -> Steps[None]:
        """Raises where one has failed that this one waits for, however far away."""
        left, seen = [self.id], {self.id}
        while left:
            reply = yield "get", left.pop()
            job = None if reply is None else Job(self.client, read(reply, _JOB))
            if job is not None and job.state == "failed":
                raise TaskFailed(job.jid, job.failure.get("group", ""), job.failure.get("message", ""))
            if job is not None and job.state == "depends":
                left += [jid for jid in job.dependencies if jid not in seen]
                seen.update(job.dependencies)

    def _told(self) -> Steps[_Told | None]:
        reply = yield "result", self.id
        return None if reply is None else read(reply, _TOLD)


class GroupResult:
    """The outcomes of the tasks of a group, in its order."""

    __slots__ = ("results",)

    def __init__(self, results: Iterable[AsyncResult[Any]]) -> None:
        self.results: Sequence[AsyncResult[Any]] = tuple(results)

    def __iter__(self) -> Iterator[AsyncResult[Any]]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)}>"

    def get(self, timeout: float | None = None) -> list[Any]:
        """What all returned; as `get` of one."""
        until = None if timeout is None else time.monotonic() + timeout
        return [each.get(_left(until)) for each in self.results]

    async def aget(self, timeout: float | None = None) -> list[Any]:
        """The same for asyncio."""
        until = None if timeout is None else time.monotonic() + timeout
        return [await each.aget(_left(until)) for each in self.results]

    def ready(self) -> bool:
        """Whether all have ended."""
        return all(each.ready() for each in self.results)

    def successful(self) -> bool:
        """Whether all have ended well."""
        return all(each.successful() for each in self.results)

    def failed(self) -> bool:
        """Whether one has failed."""
        return any(each.failed() for each in self.results)

    def completed_count(self) -> int:
        """How many have ended well."""
        return sum(each.successful() for each in self.results)


_STATES: Final = {"running": STARTED, "complete": SUCCESS, "failed": FAILURE, "depends": PENDING}


def _pauses(timeout: float | None, id: str) -> Iterator[float]:
    until = None if timeout is None else time.monotonic() + timeout
    pause = FIRST_PAUSE
    yield pause
    while until is None or time.monotonic() < until:
        pause = min(pause * 1.5, LONGEST_PAUSE)
        yield pause if until is None else max(0.0, min(pause, until - time.monotonic()))
    raise TimeoutError(f"The task {id} has not ended within {timeout:g} s.")


def _left(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - time.monotonic())


__all__ = [
    "FAILURE",
    "GONE",
    "PENDING",
    "RETRY",
    "STARTED",
    "SUCCESS",
    "AsyncResult",
    "GroupResult",
    "Progress",
    "TaskFailed",
]
