"""Task results: `AsyncResult`, by the ID that `delay` returned."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

import msgspec

from resty_django.conf import conf

from ..clients.client import Client
from ..clients.default import default_client
from ..clients.job import Job
from ..clients.replies import JobRecord
from ..clients.serialization import decode, read, reader
from ..clients.transport import Steps, sync_and_async
from ..errors import NoSuchJob, ResultGone, TaskFailed
from . import eager

R = TypeVar("R")

FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.25
"""Seconds between two requests while waiting for a result: at first, and at most."""

PENDING, STARTED, RETRY, SUCCESS, FAILURE, GONE = "PENDING", "STARTED", "RETRY", "SUCCESS", "FAILURE", "GONE"
"""States of a task: waiting, running, waiting for a retry (after a failure or the loss of its worker), succeeded,
failed, and unknown (canceled, expired, or not committed yet)."""

_JOB: Final = reader(JobRecord)
_WAITING: Final = object()


class Progress(NamedTuple):
    """The progress that a task has reported: a number and a message."""

    share: float | None
    message: str


class _ResultReply(msgspec.Struct):
    state: str
    result: str | bool
    progress: float | bool
    message: str | bool


_RESULT: Final = reader(_ResultReply)


class AsyncResult(Generic[R]):
    """The result of the task with this ID. Each attribute queries the server. Async methods begin with `a`.

    `parent`: in a chain, the result of the previous task.
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

    # --- state ---

    def _get_state(self) -> Steps[str]:
        """Return one of the states in `resty_django.qless.tasks.results`."""
        if self.id in eager.outcomes:
            return SUCCESS if eager.outcomes[self.id].error is None else FAILURE
        reply = yield from self._result_reply()
        if reply is None:
            return GONE
        if reply.state in _STATES:
            return _STATES[reply.state]
        job = yield from self._job()
        return RETRY if job is not None and (job.failure or job.retries_left < job.original_retries) else PENDING

    get_state, astate = sync_and_async(_get_state)

    @property
    def state(self) -> str:
        """PENDING, STARTED, RETRY, SUCCESS, FAILURE or GONE."""
        return self.get_state()

    status = state

    def _ready(self) -> Steps[bool]:
        """Return whether the task has ended, in success or failure."""
        return (yield from self._get_state()) in (SUCCESS, FAILURE)

    ready, aready = sync_and_async(_ready)

    def _successful(self) -> Steps[bool]:
        return (yield from self._get_state()) == SUCCESS

    successful, asuccessful = sync_and_async(_successful)

    def _failed(self) -> Steps[bool]:
        return (yield from self._get_state()) == FAILURE

    failed, afailed = sync_and_async(_failed)

    def _get_progress(self) -> Steps[Progress]:
        if self.id in eager.outcomes:
            return Progress(*eager.outcomes[self.id].progress)
        reply = yield from self._result_reply()
        if reply is None:
            return Progress(None, "")
        return Progress(
            None if reply.progress is False else float(reply.progress),
            reply.message if isinstance(reply.message, str) else "",
        )

    get_progress, aprogress = sync_and_async(_get_progress)

    @property
    def progress(self) -> Progress:
        """The last progress that the task reported by `update_progress`."""
        return self.get_progress()

    def _job(self) -> Steps[Job | None]:
        """Return the job, with its history, worker, failure and more; None if it does not exist or ran eagerly."""
        if conf.qless.eager:
            return None
        reply = yield "get", self.id
        return None if reply is None else Job(self.client, read(reply, _JOB))

    job, ajob = sync_and_async(_job)

    # --- outcome ---

    def get(self, timeout: float | None = None) -> R:
        """Return the task's return value. Waits for it, up to `timeout` seconds (None: indefinitely).

        Raises `TaskFailed`, also if a task failed that this one depends on; `TimeoutError`; `NoSuchJob` if the task was
        canceled or has expired; `ResultGone` if the result was not kept, or has expired.
        """
        for pause in _pauses(timeout, self.id):
            outcome = self.client.run(self._outcome())
            if outcome is not _WAITING:
                return cast(R, outcome)
            time.sleep(pause)
        raise AssertionError("unreachable")

    async def aget(self, timeout: float | None = None) -> R:
        """Do the same for asyncio."""
        for pause in _pauses(timeout, self.id):
            outcome = await self.client.arun(self._outcome())
            if outcome is not _WAITING:
                return cast(R, outcome)
            await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    def _revoke(self) -> Steps[None]:
        """Cancel the task, unless it has succeeded. Raises `DependencyError` if others depend on it."""
        if not conf.qless.eager:
            yield "cancel", self.id

    revoke, arevoke = sync_and_async(_revoke)

    def _outcome(self) -> Steps[Any]:
        if self.id in eager.outcomes:
            return eager.outcomes[self.id].get()
        reply = yield from self._result_reply()
        if reply is None:
            raise NoSuchJob(f"The task {self.id} does not exist: it was canceled, expired, or is not committed yet.")
        if reply.state == "complete":
            if not isinstance(reply.result, str):
                raise ResultGone(f"The task {self.id} succeeded, but its result was not kept, or has expired.")
            return decode(reply.result)
        if reply.state == "failed":
            yield from self._raise_failure()
        if reply.state == "depends":
            yield from self._raise_failed_dependency()
        return _WAITING

    def _raise_failure(self) -> Steps[None]:
        job = yield from self._job()
        if job is not None and job.state == "failed":
            raise TaskFailed(job.jid, job.failure.get("group", ""), job.failure.get("message", ""))

    def _raise_failed_dependency(self) -> Steps[None]:
        """Raise `TaskFailed` if a job has failed that this one waits for, directly or indirectly."""
        queue, visited = [self.id], {self.id}
        while queue:
            reply = yield "get", queue.pop()
            job = None if reply is None else Job(self.client, read(reply, _JOB))
            if job is not None and job.state == "failed":
                raise TaskFailed(job.jid, job.failure.get("group", ""), job.failure.get("message", ""))
            if job is not None and job.state == "depends":
                queue += [jid for jid in job.dependencies if jid not in visited]
                visited.update(job.dependencies)

    def _result_reply(self) -> Steps[_ResultReply | None]:
        if conf.qless.eager:
            return None
        reply = yield "result", self.id
        return None if reply is None else read(reply, _RESULT)


class GroupResult:
    """The results of a group's tasks, in the group's order."""

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
        """Return a list of all return values. Waits and raises like `AsyncResult.get`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        return [result.get(_remaining(deadline)) for result in self.results]

    async def aget(self, timeout: float | None = None) -> list[Any]:
        """Do the same for asyncio."""
        deadline = None if timeout is None else time.monotonic() + timeout
        return [await result.aget(_remaining(deadline)) for result in self.results]

    def ready(self) -> bool:
        """Return whether all have ended."""
        return all(result.ready() for result in self.results)

    def successful(self) -> bool:
        """Return whether all have succeeded."""
        return all(result.successful() for result in self.results)

    def failed(self) -> bool:
        """Return whether at least one has failed."""
        return any(result.failed() for result in self.results)

    def completed_count(self) -> int:
        """Return the number of tasks that have succeeded."""
        return sum(result.successful() for result in self.results)


_STATES: Final = {"running": STARTED, "complete": SUCCESS, "failed": FAILURE, "depends": PENDING}


def _pauses(timeout: float | None, id: str) -> Iterator[float]:
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = FIRST_PAUSE
    yield pause
    while deadline is None or time.monotonic() < deadline:
        pause = min(pause * 1.5, LONGEST_PAUSE)
        yield pause if deadline is None else max(0.0, min(pause, deadline - time.monotonic()))
    raise TimeoutError(f"The task {id} did not end within {timeout:g} s.")


def _remaining(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
