"""Task results: `AsyncResult`, by the ID that `delay` returned."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar, cast

import msgspec

from resty_django.conf import conf

from ..clients.client import Client
from ..clients.default import default_client
from ..clients.graph import requeue
from ..clients.job import Job
from ..clients.put_options import read_outcome
from ..clients.replies import JobRecord
from ..clients.serialization import decode, read
from ..clients.transport import Steps, batches, checked, sync_and_async
from ..errors import NoSuchJob, ResultGone, TaskFailed
from . import eager

if TYPE_CHECKING:
    from .group_results import GroupResult

R = TypeVar("R")

PENDING, STARTED, RETRY, SUCCESS, FAILURE = "PENDING", "STARTED", "RETRY", "SUCCESS", "FAILURE"
SKIPPED, GONE = "SKIPPED", "GONE"
"""States of a task: waiting, running, waiting for a retry (after a failure or the loss of its worker), succeeded,
failed, skipped because a task failed for which it waited, and unknown (canceled, expired, or not committed yet)."""

WAITING: Final = object()
"""The outcome of a task or group that has not ended."""


class ResultReply(msgspec.Struct):
    """The state and the result of a job, as the core returns them; false stands for nothing."""

    state: str
    result: str | bool
    progress: float | bool = False
    message: str | bool = False
    skipped: bool = False


class TaskProgress(NamedTuple):
    """The progress that a task has reported: a number and a message."""

    share: float | None
    message: str


class TaskResult:
    """The common part of the results of tasks and groups: their identity."""

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
        return isinstance(other, type(self)) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def _wait(self, steps: Callable[[], Steps[Any]], timeout: float | None, kind: str = "task") -> Any:
        """Return the first outcome of `steps` that is not `WAITING`. Raises `TimeoutError`."""
        for pause in pauses(timeout, self.id, kind):
            outcome = self.client.run(steps())
            if outcome is not WAITING:
                return outcome
            time.sleep(pause)
        raise AssertionError("unreachable")

    async def _await(self, steps: Callable[[], Steps[Any]], timeout: float | None, kind: str = "task") -> Any:
        for pause in pauses(timeout, self.id, kind):
            outcome = await self.client.arun(steps())
            if outcome is not WAITING:
                return outcome
            await asyncio.sleep(pause)
        raise AssertionError("unreachable")


class AsyncResult(TaskResult, Generic[R]):
    """The result of the task with this ID. Each attribute queries the server. Async methods begin with `a`.

    `parent`: in a chain, the result of the previous task.
    """

    __slots__ = ()

    # --- state ---

    def _get_state(self) -> Steps[str]:
        """Return one of the states in `resty_django.qless.tasks.results`."""
        if self.id in eager.outcomes:
            return EAGER_STATES[eager.outcomes[self.id].state]
        reply = yield from self._result_reply()
        if reply is None:
            return GONE
        if reply.skipped:
            return SKIPPED
        if reply.state in STATES:
            return STATES[reply.state]
        job = yield from self._job()
        return RETRY if job is not None and (job.failure or job.retries_left < job.original_retries) else PENDING

    get_state, astate = sync_and_async(_get_state)

    @property
    def state(self) -> str:
        """PENDING, STARTED, RETRY, SUCCESS, FAILURE, SKIPPED or GONE."""
        return self.get_state()

    status = state

    def _ready(self) -> Steps[bool]:
        """Return whether the task has ended: succeeded, failed or was skipped."""
        return (yield from self._get_state()) in (SUCCESS, FAILURE, SKIPPED)

    ready, aready = sync_and_async(_ready)

    def _successful(self) -> Steps[bool]:
        """Return whether the task has succeeded."""
        return (yield from self._get_state()) == SUCCESS

    successful, asuccessful = sync_and_async(_successful)

    def _failed(self) -> Steps[bool]:
        """Return whether the task has failed, or one that it depends on."""
        return (yield from self._get_state()) == FAILURE

    failed, afailed = sync_and_async(_failed)

    def _get_progress(self) -> Steps[TaskProgress]:
        if self.id in eager.outcomes:
            return TaskProgress(*eager.outcomes[self.id].progress)
        reply = yield from self._result_reply()
        if reply is None:
            return TaskProgress(None, "")
        return TaskProgress(
            None if reply.progress is False else float(reply.progress),
            reply.message if isinstance(reply.message, str) else "",
        )

    get_progress, aprogress = sync_and_async(_get_progress)

    @property
    def progress(self) -> TaskProgress:
        """The last progress that the task reported by `update_progress`."""
        return self.get_progress()

    def _job(self) -> Steps[Job | None]:
        """Return the job, with its history, worker, failure and more; None if it does not exist or ran eagerly."""
        if conf.qless.eager:
            return None
        reply = yield "get", self.id
        return None if reply is None else Job(self.client, read(reply, JobRecord))

    job, ajob = sync_and_async(_job)

    # --- outcome ---

    def get(self, timeout: float | None = None) -> R:
        """Return the task's return value. Waits for it, up to `timeout` seconds (None: indefinitely).

        Raises `TaskFailed`, also if a task failed that this one depends on, for the one that failed first;
        `TimeoutError`; `NoSuchJob` if the task was canceled or has expired; `ResultGone` if the result was not kept, or
        has expired. Returns None if the task was skipped.
        """
        return cast(R, self._wait(self._outcome, timeout))

    async def aget(self, timeout: float | None = None) -> R:
        """Do the same for asyncio."""
        return cast(R, await self._await(self._outcome, timeout))

    def _revoke(self, graph: bool = False) -> Steps[None]:
        """Cancel the task, unless it has succeeded. Raises `DependencyError` if others depend on it.

        `graph`: also cancel all tasks that are connected with it: those that it waits for, those that wait for it, the
        members of its groups, and so on. Then raises `NoSuchJob`, and `GraphTooLarge` for more than 10 000.
        """
        if conf.qless.eager:
            return
        was_in_outbox = yield from revoke_in_outbox(self.client, self.id, graph)
        if graph:
            try:
                yield from self.client._cancel_graph(self.id)
            except NoSuchJob:
                if not was_in_outbox:
                    raise
        elif not was_in_outbox:
            yield "cancel", self.id

    revoke, arevoke = sync_and_async(_revoke)

    def _retry(self, graph: bool = False) -> Steps[int]:
        """Enqueue the task again if it has failed; return the number of tasks that were enqueued again.

        Tasks that failed because of it wait for it again. `graph`: instead, enqueue all connected tasks again that
        failed in a run. Raises `NoSuchJob`, and with `graph` `GraphTooLarge` for more than 10 000 connected tasks.
        """
        if conf.qless.eager:
            return 0
        if graph:
            return (yield from self.client._retry_graph(self.id))
        job = yield from self._job()
        if job is None:
            raise NoSuchJob(f"The task {self.id} does not exist: it was canceled, expired, or is not committed yet.")
        return (yield from requeue(self.client, [job] if job.state == "failed" else []))

    retry, aretry = sync_and_async(_retry)

    def _outcome(self) -> Steps[Any]:
        if self.id in eager.outcomes:
            return eager.outcomes[self.id].get()
        reply = yield from self._result_reply()
        if reply is None:
            raise NoSuchJob(f"The task {self.id} does not exist: it was canceled, expired, or is not committed yet.")
        if reply.state == "complete":
            return value_of(self.id, reply)
        if reply.state == "failed":
            yield from self._raise_failure()
        if reply.state == "depends":
            yield from self._raise_failed_dependency()
        return WAITING

    def _raise_failure(self) -> Steps[None]:
        failure = yield from self._failure()
        if failure is not None:
            raise failure

    def _failure(self) -> Steps[TaskFailed | None]:
        """Return the failure of the task, or of the one because of which it did not run; None if it has not failed."""
        job = yield from self._job()
        if job is None or job.state != "failed":
            return None
        if str(job.failure.get("group", "")).endswith("-DependencyFailed"):  # it did not run
            outcome = read_outcome((yield "outcome", self.id))
            if outcome is not None and outcome.blocked is not None:
                first = yield from AsyncResult[Any](outcome.blocked, client=self.client)._job()
                job = first if first is not None and first.state == "failed" else job
        return TaskFailed(job.jid, job.failure.get("group", ""), job.failure.get("message", ""))

    def _raise_failed_dependency(self) -> Steps[None]:
        """Raise `TaskFailed` if a job has failed that this one waits for, directly or indirectly."""
        queue, visited = [self.id], {self.id}
        dependents: dict[str, str] = {}
        while queue:
            job = yield from AsyncResult[Any](jid := queue.pop(), client=self.client)._job()
            if job is not None and job.state == "failed" and jid in dependents:
                yield from self._raise_if_waiting(dependents[jid], jid)
            if job is not None and job.state == "depends":
                others = [other for other in job.dependencies if other not in visited]
                dependents |= dict.fromkeys(others, jid)
                queue += others
                visited.update(others)

    def _raise_if_waiting(self, jid: str, other: str) -> Steps[None]:
        """Raise `TaskFailed` if a job waits until `other`, which has failed, is retried."""
        outcome = read_outcome((yield "outcome", jid))
        job = yield from AsyncResult[Any](jid, client=self.client)._job()  # after its outcome, which its end deletes
        waits = outcome is None or outcome.policies.get(other, outcome.policy) == "wait"
        if waits and job is not None and job.state == "depends" and other in job.dependencies:
            yield from AsyncResult[Any](other, client=self.client)._raise_failure()

    def _result_reply(self) -> Steps[ResultReply | None]:
        if conf.qless.eager:
            return None
        reply = yield from result_reply(self.id)
        if reply is None and conf.qless.outbox.is_used:
            if (yield from is_in_outbox(self.id)):
                return ResultReply(state="outbox", result=False)
            reply = yield from result_reply(self.id)  # it may have been delivered in the meantime
        return reply


def is_in_outbox(name: str) -> Steps[bool]:
    """Return whether a job or group waits in the outbox."""
    if not conf.qless.outbox.is_used:
        return False
    from ..outbox.lookup import find  # needs models

    return bool((yield from find(name)))


def revoke_in_outbox(client: Client, name: str, graph: bool) -> Steps[bool]:
    """Discard what the outbox contains of a job or group. Return whether there was anything."""
    if not conf.qless.outbox.is_used:
        return False
    from ..outbox.lookup import revoke  # needs models

    return (yield from revoke(client, name, graph))


def value_of(jid: str, reply: ResultReply | None) -> Any:
    """Return the return value in a reply. Raises `ResultGone`."""
    if reply is None or not isinstance(reply.result, str):
        raise ResultGone(f"The task {jid} succeeded, but its result was not kept, or has expired.")
    return decode(reply.result)


def result_reply(jid: str) -> Steps[ResultReply | None]:
    """Return the state and the result of a job; None if it does not exist."""
    reply = yield "result", jid
    return None if reply is None else read(reply, ResultReply)


def result_replies(jids: Sequence[str]) -> Steps[list[ResultReply | None]]:
    """Return the same for many jobs, in order."""
    replies: list[ResultReply | None] = []
    for batch in batches(jids, 250):
        for reply in (yield [("result", jid) for jid in batch]):
            replies.append(None if checked(reply) is None else read(reply, ResultReply))
    return replies


STATES: Final = {"running": STARTED, "complete": SUCCESS, "failed": FAILURE, "depends": PENDING, "outbox": PENDING}
EAGER_STATES: Final = {"complete": SUCCESS, "failed": FAILURE, "skipped": SKIPPED, "waiting": PENDING}


def pauses(timeout: float | None, id: str, kind: str = "task") -> Iterator[float]:
    """Yield the seconds to wait before each request for a result. Raises `TimeoutError`."""
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = 0.005
    yield pause
    while deadline is None or time.monotonic() < deadline:
        pause = min(pause * 1.5, 0.25)
        yield pause if deadline is None else max(0.0, min(pause, deadline - time.monotonic()))
    raise TimeoutError(f"The {kind} {id} did not end within {timeout:g} s.")
