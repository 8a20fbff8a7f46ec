"""A job: `client.jobs[jid]`, or what a queue's `pop` returns.

job = client.queues["mail"].pop()
job.data  # {"order": 7}
job.complete()
"""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeAlias, TypeVar

import msgspec

from .. import job_classes
from ..errors import InvalidArgument
from .put_options import DEPENDS_AT_ONCE, DEPENDS_PER_CALL, JobOutcome, checked_options, list_text, options_of
from .replies import JobRecord, JobResult, RecurringRecord
from .serialization import as_list, decode, encode, read_list
from .transport import Request, Steps, batches, sync_and_async

if TYPE_CHECKING:
    from .client import Client
    from .queue import Queue
    from .recurring import RecurringJob

JOBS_PER_CALL: Final = 50
"""Maximum number of jobs that one call returns: each may have a hundred history entries."""
_UNREAD: Final = object()

Hook: TypeAlias = "Callable[[Job], Awaitable[None] | None]"
"""A function that takes the job."""
Record = TypeVar("Record", JobRecord, RecurringRecord)
H = TypeVar("H", bound=Callable[..., Any])


class _HookDecorator:
    """Registers functions, also as a decorator. They are called with the job, in the order of registration."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, job: Job, owner: type | None = None) -> Callable[[H], H]:
        return functools.partial(job.add_hook, self.name)


class StoredJob(Generic[Record]):
    """The attributes that jobs and recurring jobs have in common, as the server returned them."""

    __slots__ = ("_record", "client")
    client: Client
    _record: Record

    @property
    def jid(self) -> str:
        return self._record.jid

    @property
    def state(self) -> str:
        return self._record.state

    @property
    def queue_name(self) -> str:
        """The name of the queue; empty once the job is complete."""
        return self._record.queue

    @property
    def tags(self) -> list[str]:
        return [str(tag) for tag in as_list(self._record.tags)]

    def queue(self) -> Queue:
        return self.client.queues[self._record.queue]


class Job(StoredJob[JobRecord]):
    """A job, as the server returned it. Methods that begin with `a` are for asyncio.

    `complete`, `fail`, `heartbeat` and `requeue` send the current `data`, so a job may change it. `complete`, `fail`,
    `retry`, `heartbeat` and `progress` are for the worker that has the job: they raise `LostLock` unless that is
    `client.worker_name`. `requeue`, `cancel` and `timeout` take it from any worker.
    """

    __slots__ = ("_data", "_hooks", "state_changed")

    before_complete, after_complete = _HookDecorator(), _HookDecorator()
    before_fail, after_fail = _HookDecorator(), _HookDecorator()
    before_cancel, after_cancel = _HookDecorator(), _HookDecorator()
    before_requeue, after_requeue = _HookDecorator(), _HookDecorator()
    before_retry, after_retry = _HookDecorator(), _HookDecorator()

    def __init__(self, client: Client, record: JobRecord) -> None:
        self.client = client
        self._record = record
        self._data: object = _UNREAD
        self._hooks: dict[str, list[Hook]] | None = None
        self.state_changed = False
        """Whether this object has completed, failed, canceled, requeued or retried the job."""

    @classmethod
    def build(cls, client: Client, klass: str, **attributes: Any) -> Self:
        """Return a job without a server, for tests of a job class. `attributes`: `data`, and fields of `JobRecord`."""
        data = attributes.pop("data", {})
        fields = {
            "jid": client.generate_jid(),
            "state": "running",
            "queue": "mock_queue",
            "worker": "mock_worker",
            "priority": 0,
            "retries": 5,
            "remaining": 5,
            "expires": time.time() + 3600,
            "tags": [],
            **attributes,
        }
        return cls(client, JobRecord(klass=klass, data=encode(data).decode(), **fields))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.description()}>"

    # --- attributes, as the server returned them ---

    @property
    def klass(self) -> str:
        """The name of the job class, as it was put."""
        return self._record.klass

    @property
    def worker_name(self) -> str:
        return self._record.worker

    @property
    def data(self) -> Any:
        """The arguments, parsed on first access. Raises `UnreadableReply` if they are not JSON."""
        if self._data is _UNREAD:
            self._data = decode(self._record.data)
        return self._data

    @data.setter
    def data(self, value: object) -> None:
        self._data = value

    @property
    def raw_data(self) -> str:
        """The data as JSON: the stored text until `data` is accessed."""
        return self._record.data if self._data is _UNREAD else encode(self._data).decode()

    @property
    def _accessed_data(self) -> tuple[str, ...]:
        """The data for calls in which it is optional: nothing until `data` is accessed."""
        return () if self._data is _UNREAD else (self.raw_data,)

    @property
    def priority(self) -> float:
        return self._record.priority

    @priority.setter
    def priority(self, value: float) -> None:
        self.set_priority(value)

    @property
    def original_retries(self) -> int:
        return int(self._record.retries)

    @property
    def retries_left(self) -> int:
        return int(self._record.remaining)

    @property
    def expires_at(self) -> float:
        """When the lock expires, in seconds since the epoch; 0 without a lock."""
        return self._record.expires

    @property
    def tracked(self) -> bool:
        return self._record.tracked

    @property
    def dependencies(self) -> list[str]:
        """The jids of the jobs that this job waits for."""
        return as_list(self._record.dependencies)

    @property
    def dependents(self) -> list[str]:
        """The jids of the jobs that wait for this job."""
        return as_list(self._record.dependents)

    @property
    def spawned_from_jid(self) -> str | None:
        """The jid of the recurring job that spawned it."""
        jid = self._record.spawned_from_jid
        return jid if isinstance(jid, str) and jid else None

    @property
    def failure(self) -> dict[str, Any]:
        """The `group`, `message`, `when` and `worker` of the last failure, or an empty dict."""
        return self._record.failure if isinstance(self._record.failure, dict) else {}

    @property
    def raw_queue_history(self) -> list[dict[str, Any]]:
        """The history, oldest first: entries with `when` (seconds since the epoch), `what`, and more."""
        return as_list(self._record.history)

    @property
    def txid(self) -> str | None:
        """The transaction ID under which the job was put."""
        return self._record.txid

    @property
    def request_id(self) -> str | None:
        """The caller's ID for the request that put the job."""
        return self._record.request_id

    def description(self) -> str:
        return f"{self.klass} ({self.jid} / {self.queue_name} / {self.state})"

    def ttl(self) -> float:
        """Return the seconds until the lock expires, negative after that."""
        return self._record.expires - self.client.clock()

    # --- running the job's function ---

    def perform(self) -> object:
        """Call the function of the job's class; a coroutine function runs in a new event loop.

        Raises `NotAllowed`, `MethodMissing`, `MethodType`, `ImportError`, and the function's own errors.
        """
        return job_classes.perform(self)

    async def aperform(self) -> object:
        """Do the same for asyncio; a function that is not a coroutine function runs in a thread."""
        return await job_classes.aperform(self)

    # --- hooks ---

    def add_hook(self, name: str, hook: H) -> H:
        if self._hooks is None:
            self._hooks = {}
        self._hooks.setdefault(name, []).append(hook)
        return hook

    def _changing(self, what: str, request: Request) -> Steps[Any]:
        """Send a request that changes the state, and call its hooks."""
        hooks = self._hooks or {}
        for hook in hooks.get(f"before_{what}", ()):
            yield functools.partial(hook, self)
        reply = yield request
        self.state_changed = True
        for hook in hooks.get(f"after_{what}", ()):
            yield functools.partial(hook, self)
        return reply

    # --- ending a run ---

    def _complete(
        self, next: str | None = None, delay: float = 0, depends: object = (), *, result: object = msgspec.UNSET
    ) -> Steps[str]:
        """Complete the job, or with `next` move it to that queue; return its new state.

        `delay`: seconds before it starts to wait there; `depends`: the jobs that it waits for there. `result` is
        stored with the job. Raises `LostLock`, `CannotComplete`, `NoSuchJob`, `InvalidArgument`.
        """
        record = self._record
        given = checked_options(queue=next, delay=delay, depends=depends)
        options: list[object] = []
        if next is not None:
            options += ("next", next)
        if delay:
            options += ("delay", delay)
        if given["depends"]:
            options += ("depends", list_text(given["depends"]))
        if result is not msgspec.UNSET:
            options += ("result", encode(result, "result"))
        if next is None:
            options += ("pending", 1)
        request = ("complete", record.jid, self.client.worker_name, record.queue, self.raw_data, *options)
        reply = str((yield from self._changing("complete", request)), "utf-8")
        if reply != "pending":
            return reply
        yield from self.client._tidy()
        return "complete"

    complete, acomplete = sync_and_async(_complete)

    def _fail(self, group: str, message: str) -> Steps[str]:
        """Fail the job under a group; return its jid. Raises `LostLock`, `CannotFail`, `NoSuchJob`."""
        record = self._record
        yield from self._changing(
            "fail", ("fail", record.jid, self.client.worker_name, group, message, *self._accessed_data)
        )
        return record.jid

    fail, afail = sync_and_async(_fail)

    def _retry(self, delay: float = 0, group: str | None = None, message: str | None = None) -> Steps[int]:
        """Put the job back into its queue after `delay` seconds; return the number of retries left.

        A negative number means that none were left and the job has failed, with `group` and `message`. Raises
        `LostLock`, `CannotRetry`, `NoSuchJob`.
        """
        if group is None and message is not None:
            raise InvalidArgument(
                "retry() got a message without a group. Pass the group under which failures are filed."
            )
        checked_options(delay=delay)
        failure = [text for text in (group, message) if text is not None]
        record = self._record
        request = ("retry", record.jid, record.queue, self.client.worker_name, delay, *failure)
        return int((yield from self._changing("retry", request)))

    retry, aretry = sync_and_async(_retry)

    def _cancel(self) -> Steps[None]:
        """Delete the job. Raises `DependencyError` if other jobs depend on it."""
        yield from self._changing("cancel", ("cancel", self.jid))

    cancel, acancel = sync_and_async(_cancel)

    def _requeue(
        self,
        queue: str,
        *,
        data: object = msgspec.UNSET,
        delay: float = 0,
        priority: float | None = None,
        tags: Iterable[str] | None = None,
        retries: int | None = None,
        depends: object = None,
    ) -> Steps[str]:
        """Move the job to a queue; omitted options keep their values. Return its jid. Raises `NoSuchJob`."""
        record = self._record
        given = checked_options(
            queue=queue, delay=delay, priority=priority, tags=tags, retries=retries, depends=depends
        )
        options = options_of(
            record.priority if priority is None else priority,
            self.tags if tags is None else given["tags"],
            record.retries if retries is None else retries,
            self.dependencies if depends is None else given["depends"],
        )
        sent = self.raw_data if data is msgspec.UNSET else encode(data)
        request = ("requeue", self.client.worker_name, queue, record.jid, record.klass, sent, delay, *options)
        yield from self._changing("requeue", request)
        return record.jid

    requeue, arequeue = sync_and_async(_requeue)
    move, amove = requeue, arequeue

    # --- during a run ---

    def _heartbeat(self) -> Steps[float]:
        """Extend the lock; return its expiry in seconds since the epoch. Raises `LostLock`, `NoSuchJob`."""
        record = self._record
        record.expires = float((yield "heartbeat", record.jid, self.client.worker_name, *self._accessed_data))
        return record.expires

    heartbeat, aheartbeat = sync_and_async(_heartbeat)

    def _progress(self, share: float, message: str = "") -> Steps[None]:
        """Record the progress, which `result` returns. Raises `LostLock`, `NoSuchJob`."""
        yield "progress", self.jid, self.client.worker_name, share, message

    progress, aprogress = sync_and_async(_progress)

    def _timeout(self) -> Steps[None]:
        """Take the job from its worker and requeue it ahead of all others. Raises `CannotTimeout`, `NoSuchJob`."""
        yield "timeout", self.jid

    timeout, atimeout = sync_and_async(_timeout)

    # --- in any state ---

    def _result(self) -> Steps[JobResult | None]:
        """Return the job's current result and progress; None if the job no longer exists."""
        return (yield from self.client.jobs._result(self.jid))

    result, aresult = sync_and_async(_result)

    def _outcome(self) -> Steps[JobOutcome | None]:
        """Return the job's callbacks, policies and groups; None if it has none, or is complete."""
        return (yield from self.client.jobs._outcome(self.jid))

    outcome, aoutcome = sync_and_async(_outcome)

    def _track(self) -> Steps[bool]:
        """Announce the job's changes as events. Return False if they were already."""
        changed = yield from self.client._track(self.jid)
        self._record.tracked = True
        return changed

    track, atrack = sync_and_async(_track)

    def _untrack(self) -> Steps[bool]:
        """Stop announcing the job's changes. Return False if they were not announced."""
        changed = yield from self.client._untrack(self.jid)
        self._record.tracked = False
        return changed

    untrack, auntrack = sync_and_async(_untrack)

    def _set_priority(self, value: float) -> Steps[None]:
        """Change the priority; a waiting job goes ahead of all others with the same priority. Raises `NoSuchJob`."""
        yield "priority", self.jid, checked_options(priority=value)["priority"]
        self._record.priority = value

    set_priority, aset_priority = sync_and_async(_set_priority)

    def _tag(self, *tags: str) -> Steps[list[str]]:
        """Add tags; return all tags of the job. Raises `NoSuchJob`."""
        self._record.tags = read_list((yield "tag", "add", self.jid, *tags), object)
        return self.tags

    tag, atag = sync_and_async(_tag)

    def _untag(self, *tags: str) -> Steps[list[str]]:
        """Remove tags; return the tags left. Raises `NoSuchJob`."""
        self._record.tags = read_list((yield "tag", "remove", self.jid, *tags), object)
        return self.tags

    untag, auntag = sync_and_async(_untag)

    def _depend(self, *others: object) -> Steps[None]:
        """Add dependencies: IDs, results or jobs; more than 1000 are sent in batches.

        Raises `DependencyError` if the job is not waiting for others, also between two batches.
        """
        jids = checked_options(depends=others)["depends"]
        for batch in batches(jids, DEPENDS_PER_CALL):
            yield "depends", self.jid, "on", *batch
        if len(jids) > DEPENDS_AT_ONCE:
            yield from self.client._tidy()

    depend, adepend = sync_and_async(_depend)

    def _undepend(self, *others: object, all: bool = False) -> Steps[None]:
        """Remove these dependencies, or all. Raises `DependencyError` if the job is not waiting for others."""
        jids = checked_options(depends=others)["depends"]
        if all:
            yield "depends", self.jid, "off", "all"
        for batch in batches([] if all else jids, DEPENDS_PER_CALL):
            yield "depends", self.jid, "off", *batch
        if len(jids) > DEPENDS_AT_ONCE or (all and len(self.dependencies) > DEPENDS_AT_ONCE):
            yield from self.client._tidy()

    undepend, aundepend = sync_and_async(_undepend)

    def _log(self, message: str, data: dict[str, Any] | None = None) -> Steps[None]:
        """Add an entry to the history. Raises `NoSuchJob`."""
        yield "log", self.jid, message, *(() if data is None else (encode(data),))

    log, alog = sync_and_async(_log)

    def _spawned_from(self) -> Steps[Job | RecurringJob | None]:
        """Return the recurring job that spawned this one; None if none did or it no longer exists."""
        jid = self.spawned_from_jid
        return (yield from self.client.jobs._get(jid)) if jid else None

    spawned_from, aspawned_from = sync_and_async(_spawned_from)


def job_list(client: Client, reply: bytes) -> list[Job]:
    """Return the jobs in a reply."""
    return [Job(client, record) for record in read_list(reply, JobRecord)]
