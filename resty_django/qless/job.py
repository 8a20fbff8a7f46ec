"""A job."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .call import Steps, twins
from .errors import InvalidArgument
from .facts import Facts
from .options import list_text, options_of
from .texts import as_list, encode, read, reader
from .values import JobRecord, Result

if TYPE_CHECKING:
    from .clients import Client
    from .recurring import RecurringJob

_JOBS: Final = reader(list[JobRecord])
_LIST: Final = reader(list[Any] | dict[str, Any])  # type: ignore[arg-type]


class Job(Facts):
    """A job as it was when the server told of it. A method whose name begins with `a` is the twin for asyncio.

    `data` is what was put; complete, fail, heartbeat and requeue send it as it is then, so that a job may change it.
    """

    __slots__ = ()

    @classmethod
    def build(cls, client: Client, klass: str, **attributes: Any) -> Job:
        """A job of no server, to try a job class with. `attributes`: `data`, and fields of `JobRecord`."""
        data = attributes.pop("data", {})
        given = {
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
        return cls(client, JobRecord(klass=klass, data=encode(data).decode(), **given))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.description()}>"

    def perform(self) -> Any:
        """Call the function of its class. Raises `NotAllowed`, `MethodMissing`, `MethodType`, `ImportError`, and what
        the function raises; one that is a coroutine function runs in a loop of its own."""
        from .classes import perform

        return perform(self)

    async def aperform(self) -> Any:
        """The same for asyncio; a function that is none for asyncio runs in a thread."""
        from .classes import aperform

        return await aperform(self)

    # --- what ends its run ---

    def _complete(
        self, next: str | None = None, delay: float = 0, depends: Iterable[str] = (), *, result: Any = msgspec.UNSET
    ) -> Steps[str]:
        """The job is done; gives "complete". With `next` it goes on to that queue, after `delay` seconds and after the
        jobs in `depends`; gives its state there. `result` is kept with it. Raises `LostLock`, `CannotComplete`,
        `NoSuchJob`, `InvalidArgument`.
        """
        record = self._record
        options: list[Any] = []
        if next is not None:
            options += ("next", next)
        if delay:
            options += ("delay", delay)
        if depends:
            options += ("depends", list_text("depends", depends))
        if result is not msgspec.UNSET:
            options += ("result", encode(result))
        request = ("complete", record.jid, record.worker, record.queue, self.raw_data, *options)
        return str((yield from self._changing("complete", request)), "utf-8")

    complete, acomplete = twins(_complete)

    def _fail(self, group: str, message: str) -> Steps[str]:
        """File the job under the failures of a group; gives its jid. Raises `LostLock`, `CannotFail`, `NoSuchJob`."""
        record = self._record
        yield from self._changing("fail", ("fail", record.jid, record.worker, group, message, *self._data_seen))
        return record.jid

    fail, afail = twins(_fail)

    def _retry(self, delay: float = 0, group: str | None = None, message: str | None = None) -> Steps[int]:
        """Let the job wait again, after `delay` seconds; gives the retries left, less than 0 where it has failed as
        there were none. Its failure then tells `group` and `message`. Raises `LostLock`, `CannotRetry`, `NoSuchJob`.
        """
        if group is None and message is not None:
            raise InvalidArgument(
                "retry() has a message without a group. Give the group that failures are filed under."
            )
        about = [each for each in (group, message) if each is not None]
        record = self._record
        return int(
            (yield from self._changing("retry", ("retry", record.jid, record.queue, record.worker, delay, *about)))
        )

    retry, aretry = twins(_retry)

    def _cancel(self) -> Steps[None]:
        """Delete the job. Raises `DependencyError` where others depend on it."""
        yield from self._changing("cancel", ("cancel", self.jid))

    cancel, acancel = twins(_cancel)

    def _requeue(
        self,
        queue: str,
        *,
        data: Any = msgspec.UNSET,
        delay: float = 0,
        priority: float | None = None,
        tags: Iterable[str] | None = None,
        retries: int | None = None,
        depends: Iterable[str] | None = None,
    ) -> Steps[str]:
        """Move the job to a queue, with what it has where nothing else is given; gives its jid. Raises `NoSuchJob`."""
        record = self._record
        options = options_of(
            record.priority if priority is None else priority,
            self.tags if tags is None else tags,
            record.retries if retries is None else retries,
            self.dependencies if depends is None else depends,
        )
        sent = self.raw_data if data is msgspec.UNSET else encode(data)
        request = ("requeue", self.client.worker_name, queue, record.jid, record.klass, sent, delay, *options)
        yield from self._changing("requeue", request)
        return record.jid

    requeue, arequeue = twins(_requeue)
    move, amove = requeue, arequeue

    # --- while it runs ---

    def _heartbeat(self) -> Steps[float]:
        """Prolong the lock; gives when it expires, in seconds since the epoch. Raises `LostLock`, `NoSuchJob`."""
        record = self._record
        record.expires = float((yield "heartbeat", record.jid, record.worker, *self._data_seen))
        return record.expires

    heartbeat, aheartbeat = twins(_heartbeat)

    def _progress(self, share: float, message: str = "") -> Steps[None]:
        """Note how far the job is, for `result`. Raises `LostLock`, `NoSuchJob`."""
        yield "progress", self.jid, self._record.worker, share, message

    progress, aprogress = twins(_progress)

    def _timeout(self) -> Steps[None]:
        """Take the job from its worker; it goes before all others. Raises `CannotTimeout`, `NoSuchJob`."""
        yield "timeout", self.jid

    timeout, atimeout = twins(_timeout)

    # --- whatever its state ---

    def _result(self) -> Steps[Result | None]:
        """What it has told, as of now; None: it is gone."""
        return (yield from self.client.jobs._result(self.jid))

    result, aresult = twins(_result)

    def _track(self) -> Steps[bool]:
        """Let events tell of it; False: they did already."""
        changed = yield from self.client._track(self.jid)
        self._record.tracked = True
        return changed

    track, atrack = twins(_track)

    def _untrack(self) -> Steps[bool]:
        """The opposite; False: it was not tracked."""
        changed = yield from self.client._untrack(self.jid)
        self._record.tracked = False
        return changed

    untrack, auntrack = twins(_untrack)

    def _tag(self, *tags: str) -> Steps[list[str]]:
        """Add tags; gives those that it has now. Raises `NoSuchJob`."""
        self._record.tags = as_list(read((yield "tag", "add", self.jid, *tags), _LIST))
        return self.tags

    tag, atag = twins(_tag)

    def _untag(self, *tags: str) -> Steps[list[str]]:
        """Take tags away; gives those that it has now. Raises `NoSuchJob`."""
        self._record.tags = as_list(read((yield "tag", "remove", self.jid, *tags), _LIST))
        return self.tags

    untag, auntag = twins(_untag)

    def _depend(self, *jids: str) -> Steps[None]:
        """Wait for more jobs. Raises `DependencyError` where it waits for none yet."""
        yield "depends", self.jid, "on", *jids

    depend, adepend = twins(_depend)

    def _undepend(self, *jids: str, all: bool = False) -> Steps[None]:
        """Wait for these jobs no longer, or for none. Raises `DependencyError` where it waits for none."""
        yield "depends", self.jid, "off", *(("all",) if all else jids)

    undepend, aundepend = twins(_undepend)

    def _log(self, message: str, data: dict[str, Any] | None = None) -> Steps[None]:
        """Add to its history. Raises `NoSuchJob`."""
        yield "log", self.jid, message, *(() if data is None else (encode(data),))

    log, alog = twins(_log)

    def _spawned_from(self) -> Steps[Job | RecurringJob | None]:
        """The recurring job that made it, if there is one still."""
        jid = self.spawned_from_jid
        return (yield from self.client.jobs._get(jid)) if jid else None

    spawned_from, aspawned_from = twins(_spawned_from)


def job_list(client: Client, reply: bytes) -> list[Job]:
    """The jobs of a reply."""
    return [] if reply == b"{}" else [Job(client, record) for record in read(reply, _JOBS)]


__all__ = ["Job", "job_list"]
