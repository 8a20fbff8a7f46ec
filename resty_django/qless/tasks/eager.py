"""Eager mode for tests: tasks run where they are called. RESTY_DJANGO = {"QLESS": {"EAGER": True}}.

Callbacks, groups and the tasks that wait for others follow the rules of the core (outcomes.lua).
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from asgiref.sync import async_to_sync, iscoroutinefunction

from resty_django import sansio
from resty_django.callables import acall, completed
from resty_django.txid import bound, current, current_request_id
from resty_django.txid.context import current_ids

from ..clients.client import Client
from ..clients.replies import Group, JobRecord
from ..clients.serialization import decode, encode
from ..errors import InvalidArgument, ResultGone
from ..middleware.job import WorkerJob
from ..outcomes import JobTimeout, RetryLater
from ..outcomes.error_text import message_of
from .consequences import ANY, Consequences, PlannedJob

if TYPE_CHECKING:
    from .base import Task
    from .message import PlannedGroup, PlannedJobs, TaskMessage

DEFAULT_RETRIES: Final = 5
"""Retries of a job that is put without the option."""
MAX_KEPT: Final = 1000
"""Maximum number of ends to remember, and of groups."""


@dataclass(frozen=True, slots=True)
class EagerEnd:
    """A task's return value or exception, and its progress.

    - `kept`: whether a worker would keep the result.
    - `state`: complete, failed, skipped; or waiting, for a task that would wait for the retry of a failed one.
    - `root`: the ID of the failed task because of which this one did not run; empty if it ran.
    """

    value: Any
    error: Exception | None = None
    kept: bool = True
    progress: tuple[float | None, str] = (None, "")
    state: str = "complete"
    root: str = ""

    def get(self) -> Any:
        if self.error is not None:
            raise self.error
        if not self.kept:
            raise ResultGone("The task has succeeded; its result was not kept. Remove ignore_result to keep it.")
        return self.value

    def passed(self, allow_failure: bool) -> Any:
        """Return the value for the next step. `allow_failure`: None if the task has failed."""
        return None if allow_failure and self.error is not None else self.get()


@dataclass(slots=True)
class EagerGroup:
    """A group: its name, its number of members, and the ends of those that have run, in order."""

    id: str
    name: str
    total: int
    ends: list[tuple[str, EagerEnd]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    reason: str = ""

    @property
    def jids(self) -> list[str]:
        """The IDs of the members."""
        return [jid for jid, _ in self.ends]

    def add(self, jid: str, end: EagerEnd) -> None:
        """Add a member that has ended."""
        self.ends.append((jid, end))
        self.counts[end.state] += 1
        if end.state == "failed" and not self.reason:
            self.reason = jid

    def reply(self) -> Group:
        """Return the state and the counts."""
        done, failed, skipped = (self.counts[state] for state in ("complete", "failed", "skipped"))
        left = self.total - done - failed - skipped
        state = "running" if left else "failed" if failed else "complete"
        return Group(
            id=self.id,
            name=self.name,
            state=state,
            total=self.total,
            done=done,
            failed=failed,
            skipped=skipped,
            canceled=0,
            left=left,
            reason=self.reason or None,
            incomplete=False,
            created_at=0.0,
            ended_at=None,
        )


outcomes: Final[OrderedDict[str, EagerEnd]] = OrderedDict()
"""Ends of tasks by ID, the latest last."""
groups: Final[OrderedDict[str, EagerGroup]] = OrderedDict()
"""Groups by ID, the latest last."""


class EagerJob(WorkerJob):
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

    def limit(self, seconds: float, kill_after: float | EllipsisType | None = ...) -> None:
        """Do nothing: `time_limit` limits the run."""

    def retire_worker(self) -> None:
        """Do nothing: there is no worker."""


def run_all(planned: PlannedJobs, new_groups: Sequence[PlannedGroup], client: Client) -> None:
    """Run tasks in order, and their callbacks. In the end, raise the error of the last task or group if it failed, else
    the first error of a callback."""
    sansio.run(_steps(planned, new_groups), lambda job: run(job.task, job.message, client))


async def arun_all(planned: PlannedJobs, new_groups: Sequence[PlannedGroup], client: Client) -> None:
    """Do the same for asyncio."""
    await sansio.arun(_steps(planned, new_groups), lambda job: arun(job.task, job.message, client))


_Steps: TypeAlias = Generator[PlannedJob, None, list[Exception]]
"""Yields jobs to run, and returns the errors of callbacks."""


def _steps(planned: PlannedJobs, new_groups: Sequence[PlannedGroup]) -> Generator[PlannedJob, None, None]:
    sizes = Counter(message.consequences.group for _, message in planned if message.consequences is not None)
    callbacks: dict[str, Consequences] = {}
    errors: list[Exception] = []
    for group in new_groups:
        callbacks[group.id] = group.callbacks
        groups[group.id] = EagerGroup(group.id, group.name, sizes[group.id])
        _limit(groups)
        if not sizes[group.id]:
            errors += yield from _group_callbacks(group.id, group.callbacks)
    for task, message in planned:
        errors += yield from _job_steps(task, message)
        if message.consequences is not None and message.consequences.group:
            group_id = message.consequences.group
            groups[group_id].add(message.jid, outcomes[message.jid])
            if groups[group_id].reply().state != "running":
                errors += yield from _group_callbacks(group_id, callbacks[group_id])
    if planned:
        _, last = planned[-1]
        ends = [outcomes[last.jid]]
        if last.consequences is not None and last.consequences.group:
            ends = [end for _, end in groups[last.consequences.group].ends]
        errors = [end.error for end in ends if end.error is not None] + errors
    if errors:
        raise errors[0]


def _job_steps(task: Task[..., Any], message: TaskMessage) -> _Steps:
    """Run a task and its callbacks, unless one that it waits for has failed."""
    consequences = message.consequences or Consequences()
    cause = _cause(message, consequences)
    if cause is not None:
        policy, root = cause
        error = outcomes[root].error if root in outcomes else None
        if policy == "skip":
            _remember(message.jid, EagerEnd(None, state="skipped"))
        else:
            state = "waiting" if policy == "wait" else "failed"
            _remember(message.jid, EagerEnd(None, error, state=state, root=root))
    else:
        try:
            yield PlannedJob(task, message)
        except Exception as error:
            if message.jid not in outcomes or outcomes[message.jid].error is None:
                _remember(message.jid, EagerEnd(None, error, state="failed"))
    end = outcomes[message.jid]
    if end.state == "waiting":
        return []
    failure = None
    if end.error is not None:
        kind = "DependencyFailed" if end.root else type(end.error).__name__
        failure = {"group": f"{message.queue}-{kind}", "message": str(end.error)}
    record = {
        "jid": message.jid,
        "klass": message.klass,
        "state": end.state,
        "failure": failure,
        "result": end.value if end.error is None else None,
    }
    return (yield from _callbacks(consequences, end.state, record))


def _cause(message: TaskMessage, consequences: Consequences) -> tuple[str, str] | None:
    """Return the policy to apply, and the ID of the task that failed first; None if the task may run."""
    for jid in message.options.depends:
        state, root = "complete", jid
        if jid in groups:
            reply = groups[jid].reply()
            state = "failed" if reply.state == "failed" else "complete"
            root = reply.reason if isinstance(reply.reason, str) else jid
        elif jid in outcomes:
            state = outcomes[jid].state
        policy = consequences.policies.get(jid, consequences.policies.get(ANY, "wait"))
        if state == "skipped" and policy in ("fail", "skip"):
            return "skip", jid
        if state in ("failed", "waiting") and policy != "release":
            end = outcomes.get(root)
            return "wait" if state == "waiting" else policy, end.root or root if end is not None else root
    return None


def _callbacks(consequences: Consequences, state: str, record: dict[str, Any]) -> _Steps:
    """Run the callbacks of an end, and return their errors."""
    errors: list[Exception] = []
    ends = {"complete": consequences.success, "failed": consequences.failure}
    for callback in (*ends.get(state, ()), *consequences.complete):
        message, number = callback.message, 1
        jid = message.jid
        while jid in outcomes:
            number += 1
            jid = f"{message.jid}-{number}"
        data = encode({"outcome": record, **msgspec.json.decode(message.data)})
        errors += yield from _job_steps(callback.task, msgspec.structs.replace(message, jid=jid, data=data))
        error = outcomes[jid].error
        errors += [] if error is None else [error]
    return errors


def _group_callbacks(group_id: str, consequences: Consequences) -> _Steps:
    reply = groups[group_id].reply()
    record = {**asdict(reply), "group": group_id}
    return (yield from _callbacks(consequences, reply.state, record))


def run(task: Task[..., Any], message: TaskMessage, client: Client) -> None:
    """Run a task now, keep its outcome, and raise what it raises. Retries follow at once."""
    if iscoroutinefunction(task.function):
        async_to_sync(arun)(task, message, client)
        return

    def perform(job: EagerJob) -> Any:
        with time_limit(task.options.timeout):
            return completed(task.perform(job))

    with bound(current(), request_id=current_request_id()):
        sansio.run(_runs(task, message, client), perform)


async def arun(task: Task[..., Any], message: TaskMessage, client: Client) -> None:
    """Do the same for asyncio."""
    if not iscoroutinefunction(task.function):
        await acall(run, task, message, client)
        return
    with bound(current(), request_id=current_request_id()):
        await sansio.arun(_runs(task, message, client), lambda job: _within(task.options.timeout, task.perform(job)))


def _runs(task: Task[..., Any], message: TaskMessage, client: Client) -> Generator[EagerJob, Any, None]:
    """Yield the job for each run of the task, until one succeeds or no retries are left."""
    job = _job(task, message, client)
    while True:
        try:
            value = yield job
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
    from ..outcomes.interruption import checkpoint, raise_in_thread  # ctypes is loaded only where it is needed

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


def _job(task: Task[..., Any], message: TaskMessage, client: Client) -> EagerJob:
    options = message.options
    retries = DEFAULT_RETRIES if options.retries is None else options.retries
    return EagerJob.build(
        client,
        message.klass,
        jid=message.jid,
        queue=message.queue,
        data=msgspec.json.decode(message.data),
        priority=options.priority or 0,
        tags=[str(tag) for tag in options.tags],
        retries=retries,
        remaining=retries,
        **current_ids(),
    )


def _note(task: Task[..., Any], job: EagerJob, value: Any) -> None:
    """Store the result as a worker would: as JSON, or not at all. Raises `InvalidArgument`."""
    try:
        value = decode(encode(value, "result").decode()) if task.keep_result else None
        _remember(job.jid, EagerEnd(value, kept=task.keep_result, progress=job.reported_progress))
    except InvalidArgument as error:
        _remember(job.jid, EagerEnd(None, error, progress=job.reported_progress, state="failed"))
        raise


def _remember(jid: str, outcome: EagerEnd) -> None:
    outcomes[jid] = outcome
    _limit(outcomes)


def _limit(kept: OrderedDict[str, Any]) -> None:
    if len(kept) > MAX_KEPT:
        kept.popitem(last=False)


def _failure(task: Task[..., Any], job: EagerJob, error: Exception) -> Exception | None:
    """Return the error with which the task has failed, or None if it runs again."""
    failure = error
    if isinstance(error, RetryLater) and not math.isfinite(error.delay):
        failure = InvalidArgument(f'Retry(): Arg "delay" not a number: {error.delay}')
    elif isinstance(error, RetryLater) or task.retry_policy.covers(error):
        if job.retries_left > 0:
            job._record.remaining -= 1
            job._record.failure = {"message": message_of(error)}
            return None
        if isinstance(error, RetryLater):
            failure = InvalidArgument(f"{job.klass} has no retries left. Raise retries=, or pass exc= to retry().")
    _remember(job.jid, EagerEnd(None, failure, progress=job.reported_progress, state="failed"))
    return failure
