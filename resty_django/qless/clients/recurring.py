"""A recurring job: the template of jobs that are put at an interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from django.utils.translation import gettext as _

from ..errors import InvalidArgument, NoSuchJob
from .job import StoredJob
from .put_options import checked_options, class_name
from .replies import RecurringRecord
from .serialization import decode, encode, read, read_list
from .transport import RedisCommand, Steps, sync_and_async

if TYPE_CHECKING:
    from .client import Client
    from .job import Job

PAUSE_SECONDS: Final = 1e10
"""Time by which a pause puts off the next job: 317 years. So the core needs no state for pauses."""
Read = TypeVar("Read")
Assigned = TypeVar("Assigned")


class _Field(Generic[Read, Assigned]):
    """An attribute that `update` changes on the server. `convert` takes the value that the server returned."""

    def __init__(self, convert: Callable[[Any], Read] = lambda value: value) -> None:
        self._convert = convert

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, job: RecurringJob, owner: type | None = None) -> Read:
        return self._convert(getattr(job._record, self._name))

    def __set__(self, job: RecurringJob, value: Assigned) -> None:
        job.update(**{self._name: value})


class RecurringJob(StoredJob[RecurringRecord]):
    """A recurring job, as the server returned it. Its `state` is always "recur".

    Assigning to an attribute changes the job on the server; `update` changes several at once, and has a twin for
    asyncio.
    """

    __slots__ = ()

    def __init__(self, client: Client, record: RecurringRecord) -> None:
        self.client = client
        self._record = record

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.klass_name} ({self.jid} / {self.queue_name})>"

    @property
    def count(self) -> int:
        """The number of jobs spawned so far."""
        return self._record.count

    @property
    def klass_name(self) -> str:
        return self._record.klass

    priority = _Field[float, float]()
    retries = _Field[int, int](int)
    interval = _Field[float, float]()
    """Seconds between two jobs."""
    backlog = _Field[int, int](int)
    """Number of overdue jobs to create in addition to the latest; 0: all."""
    klass = _Field[str, object]()
    data = _Field[Any, object](decode)

    def _update(self, /, **changes: object) -> Steps[None]:
        """Change fields of the jobs spawned from now on.

        `changes`: any of `priority`, `interval`, `retries`, `data`, `klass`, `queue`, `backlog`. Raises `NoSuchJob`,
        `InvalidArgument`.
        """
        known = ("backlog", "data", "interval", "klass", "priority", "queue", "retries")
        unknown = sorted(changes.keys() - {*known})
        if unknown:
            raise InvalidArgument(
                f"update() got the unknown field {unknown[0]!r}. A recurring job has {', '.join(known)}."
            )
        values: Mapping[str, Any] = {name: _sent(name, value) for name, value in changes.items()}
        yield "recur.update", self.jid, *[argument for pair in values.items() for argument in pair]
        for name, value in values.items():
            setattr(self._record, name, value.decode() if isinstance(value, bytes) else value)

    update, aupdate = sync_and_async(_update)

    def _move(self, queue: str) -> Steps[None]:
        """Spawn jobs in another queue from now on. Raises `NoSuchJob`."""
        yield from self._update(queue=queue)

    move, amove = sync_and_async(_move)
    requeue, arequeue = move, amove

    def _cancel(self) -> Steps[None]:
        """Stop spawning jobs; those already spawned stay."""
        yield "unrecur", self.jid

    cancel, acancel = sync_and_async(_cancel)

    def _tag(self, *tags: str) -> Steps[list[str]]:
        """Add tags to jobs spawned from now on; return all tags. Raises `NoSuchJob`."""
        self._record.tags = read_list((yield "recur.tag", self.jid, *tags), object)
        return self.tags

    tag, atag = sync_and_async(_tag)

    def _untag(self, *tags: str) -> Steps[list[str]]:
        """Remove tags; return the tags left. Raises `NoSuchJob`."""
        self._record.tags = read_list((yield "recur.untag", self.jid, *tags), object)
        return self.tags

    untag, auntag = sync_and_async(_untag)

    def _next(self) -> Steps[float | None]:
        """Return when the next job is due, in seconds since the epoch; None if the recurring job is paused, or was
        canceled."""
        due = yield from self._due()
        return None if due is None or is_paused(due) else due

    next, anext = sync_and_async(_next)

    def _paused(self) -> Steps[bool]:
        """Return whether it is paused."""
        due = yield from self._due()
        return due is not None and is_paused(due)

    paused, apaused = sync_and_async(_paused)

    def _pause(self) -> Steps[None]:
        """Create no more jobs until `resume`. Changes of the interval or the queue do not end the pause; declaring the
        recurring job again does. Raises `NoSuchJob`."""
        due = yield from self._due()
        if due is not None and not is_paused(due):
            # a script: redis-py before 8 expects an integer from ZADD, and ZINCRBY would bring a canceled job back
            script = "return redis.call('ZADD', KEYS[1], 'XX', 'INCR', ARGV[1], ARGV[2])"
            due = yield RedisCommand(("EVAL", script, 1, self._key(), PAUSE_SECONDS, self.jid))
        if due is None:
            raise NoSuchJob(_("The recurring job %(jid)s does not exist: it was canceled.") % {"jid": self.jid})

    pause, apause = sync_and_async(_pause)

    def _resume(self) -> Steps[None]:
        """Create jobs again. Times that have passed since the pause are skipped. Raises `NoSuchJob`."""
        due = yield from self._due()
        if due is None:
            raise NoSuchJob(_("The recurring job %(jid)s does not exist: it was canceled.") % {"jid": self.jid})
        if is_paused(due):
            later = next_due(due % PAUSE_SECONDS, self.interval, self.client.clock())
            yield RedisCommand(("ZADD", self._key(), "XX", later, self.jid))

    resume, aresume = sync_and_async(_resume)

    def _due(self) -> Steps[float | None]:
        score = yield RedisCommand(("ZSCORE", self._key(), self.jid))
        return None if score is None else float(score)

    def _key(self) -> str:
        return f"{self.client.prefix}q:{self._record.queue}-recur"

    @property
    def last_spawned_jid(self) -> str | None:
        """The jid of the last spawned job, as the server returned it."""
        return f"{self.jid}-{self.count}" if self.count else None

    def _last_spawned_job(self) -> Steps[Job | RecurringJob | None]:
        """Return the last spawned job, or None."""
        jid = self.last_spawned_jid
        return (yield from self.client.jobs._get(jid)) if jid else None

    last_spawned_job, alast_spawned_job = sync_and_async(_last_spawned_job)


def is_paused(due: float) -> bool:
    """Return whether a recurring job that is due then, by its queue's sorted set, is paused."""
    return due >= PAUSE_SECONDS


def next_due(due: float, interval: float, now: float) -> float:
    """Return the first time of a schedule that is not over."""
    return due if due >= now else due + math.ceil((now - due) / interval) * interval


def of_reply(client: Client, reply: bytes | None) -> RecurringJob | None:
    """Return the recurring job in a reply."""
    return None if reply is None else RecurringJob(client, read(reply, RecurringRecord))


def _sent(name: str, value: object) -> Any:
    if name == "data":
        return encode(value)
    return class_name(value) if name == "klass" else checked_options(**{name: value})[name]
