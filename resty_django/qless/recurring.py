"""A recurring job: the template of jobs that are made at an interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from .call import Plain, Steps, twins
from .errors import InvalidArgument
from .options import class_name
from .texts import as_list, decode, encode, read, reader
from .values import RecurringRecord

if TYPE_CHECKING:
    from .clients import Client
    from .job import Job
    from .queue import Queue

FIELDS: Final = frozenset(("priority", "interval", "retries", "data", "klass", "queue", "backlog"))
_RECORD: Final = reader(RecurringRecord)
_TAGS: Final = reader(list[Any] | dict[str, Any])  # type: ignore[arg-type]


class RecurringJob:
    """As it was when the server told of it. To assign to an attribute changes it on the server; `update` does the same,
    several at once, and has a twin for asyncio."""

    __slots__ = ("_record", "client")

    def __init__(self, client: Client, record: RecurringRecord) -> None:
        self.client = client
        self._record = record

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.klass_name} ({self.jid} / {self.queue_name})>"

    @property
    def jid(self) -> str:
        return self._record.jid

    @property
    def state(self) -> str:
        """Always "recur"."""
        return self._record.state

    @property
    def tags(self) -> list[str]:
        return [str(each) for each in as_list(self._record.tags)]

    @property
    def count(self) -> int:
        """How many jobs it has made."""
        return self._record.count

    @property
    def klass_name(self) -> str:
        return self._record.klass

    @property
    def queue_name(self) -> str:
        return self._record.queue

    def queue(self) -> Queue:
        return self.client.queues[self._record.queue]

    @property
    def priority(self) -> float:
        return self._record.priority

    @priority.setter
    def priority(self, value: float) -> None:
        self.update(priority=value)

    @property
    def retries(self) -> int:
        return int(self._record.retries)

    @retries.setter
    def retries(self, value: int) -> None:
        self.update(retries=value)

    @property
    def interval(self) -> float:
        """Seconds between two jobs."""
        return self._record.interval

    @interval.setter
    def interval(self, value: float) -> None:
        self.update(interval=value)

    @property
    def backlog(self) -> int:
        """How many that are late are made besides the latest; 0: all."""
        return int(self._record.backlog)

    @backlog.setter
    def backlog(self, value: int) -> None:
        self.update(backlog=value)

    @property
    def klass(self) -> str:
        return self._record.klass

    @klass.setter
    def klass(self, value: Any) -> None:
        self.update(klass=value)

    @property
    def data(self) -> Any:
        return decode(self._record.data)

    @data.setter
    def data(self, value: Any) -> None:
        self.update(data=value)

    def _update(self, /, **changes: Any) -> Steps[None]:
        """Change any of `priority`, `interval`, `retries`, `data`, `klass`, `queue`, `backlog`, for jobs made from now
        on. Raises `NoSuchJob`, `InvalidArgument`."""
        unknown = sorted(changes.keys() - FIELDS)
        if unknown:
            raise InvalidArgument(f"A recurring job has no {unknown[0]} to change. It has {', '.join(sorted(FIELDS))}.")
        values: Mapping[str, Any] = {name: _sent(name, value) for name, value in changes.items()}
        yield "recur.update", self.jid, *[part for pair in values.items() for part in pair]
        for name, value in values.items():
            setattr(self._record, name, value.decode() if isinstance(value, bytes) else value)

    update, aupdate = twins(_update)

    def _move(self, queue: str) -> Steps[None]:
        """Make its jobs in another queue from now on. Raises `NoSuchJob`."""
        yield from self._update(queue=queue)

    move, amove = twins(_move)
    requeue, arequeue = move, amove

    def _cancel(self) -> Steps[None]:
        """Make no more jobs; those that were made stay."""
        yield "unrecur", self.jid

    cancel, acancel = twins(_cancel)

    def _tag(self, *tags: str) -> Steps[list[str]]:
        """Add tags for jobs made from now on; gives all. Raises `NoSuchJob`."""
        self._record.tags = as_list(read((yield "recur.tag", self.jid, *tags), _TAGS))
        return self.tags

    tag, atag = twins(_tag)

    def _untag(self, *tags: str) -> Steps[list[str]]:
        """Take tags away; gives those left. Raises `NoSuchJob`."""
        self._record.tags = as_list(read((yield "recur.untag", self.jid, *tags), _TAGS))
        return self.tags

    untag, auntag = twins(_untag)

    def _next(self) -> Steps[float | None]:
        """When the next job is due, in seconds since the epoch; None: it was canceled."""
        place = f"{self.client.prefix}q:{self._record.queue}-recur"
        found = yield Plain(("ZSCORE", place, self.jid))
        return None if found is None else float(found)

    next, anext = twins(_next)

    @property
    def last_spawned_jid(self) -> str | None:
        """The jid of the job that it made last, as of when the server told of it."""
        return f"{self.jid}-{self.count}" if self.count else None

    def _last_spawned_job(self) -> Steps[Job | RecurringJob | None]:
        """That job, if it is there still."""
        jid = self.last_spawned_jid
        return (yield from self.client.jobs._get(jid)) if jid else None

    last_spawned_job, alast_spawned_job = twins(_last_spawned_job)


def of_reply(client: Client, reply: bytes | None) -> RecurringJob | None:
    """The recurring job of a reply."""
    return None if reply is None else RecurringJob(client, read(reply, _RECORD))


def _sent(name: str, value: Any) -> Any:
    if name == "data":
        return encode(value)
    return class_name(value) if name == "klass" else value


__all__ = ["RecurringJob", "of_reply"]
