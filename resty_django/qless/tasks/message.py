"""Conversion of a task call into a job, and back in the worker.

The data of the job is `{"args": [...], "kwargs": {...}}`. It may also contain `expires`, a time, and `from`: the jid of
a job whose result is the first argument, or a list of jids whose results are passed as a list.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypedDict

import msgspec
from django.core.signals import setting_changed
from django.db import transaction

from resty_django.conf import conf

from ..clients.client import Client
from ..clients.default import default_client
from ..clients.job import Job
from ..clients.put_options import list_text
from ..clients.serialization import decode, read, reader
from ..clients.transport import Request, Steps
from ..errors import ResultGone, TaskExpired, UnreadableReply
from . import eager

if TYPE_CHECKING:
    from .base import Task

Source: TypeAlias = "str | list[str] | None"
"""The job or jobs whose results are the first argument."""

UNIQUE: Final = ("unique", "pending")
"""Option of the command `put`: leave a waiting or running job with the same jid unchanged."""


class EnqueueOptions(TypedDict, total=False):
    """Options of `apply_async`, its variants and signatures.

    - `countdown`: seconds until the task may run.
    - `eta`: the time from which it may run; instead of `countdown`.
    - `queue`, `priority`, `retries`: override the task's own.
    - `task_id`: the ID, instead of a random one.
    - `depends`: IDs, results or jobs that must succeed first.
    - `tags`: added to the task's own.
    - `expires`: seconds from now, or a time, after which the task fails instead of starting.
    """

    countdown: float | None
    eta: datetime | None
    queue: str | None
    priority: int | None
    task_id: str | None
    depends: Iterable[Any]
    tags: Iterable[str]
    expires: float | datetime | None
    retries: int | None


@dataclass(frozen=True, kw_only=True)
class PutOptions:
    """Options of the command `put`. None and empty values are not sent, so that the core's defaults apply.

    - `priority`: jobs with higher numbers run first.
    - `tags`: strings.
    - `retries`: how often the job runs again.
    - `depends`: jids of jobs that must succeed first.
    """

    priority: float | None = None
    tags: Sequence[str] = ()
    retries: int | None = None
    depends: Sequence[str] = ()

    @cached_property
    def arguments(self) -> tuple[Any, ...]:
        """Return names and values in turn, as the core expects them."""
        arguments: list[Any] = []
        if self.priority is not None:
            arguments += ("priority", self.priority)
        if self.tags:
            arguments += ("tags", list_text("tags", self.tags))
        if self.retries is not None:
            arguments += ("retries", self.retries)
        if self.depends:
            arguments += ("depends", list_text("depends", self.depends))
        return tuple(arguments)


class Message(NamedTuple):
    """A job to enqueue.

    - `klass`: the path of the task. `data`: JSON.
    - `when`: seconds since the epoch; None: at once.
    - `unique`: whether a waiting or running job with this jid stays unchanged.
    """

    queue: str
    jid: str
    klass: str
    data: str | bytes
    when: float | None
    options: PutOptions
    unique: bool = False
    txid: str | None = None

    def request(self, client: Client) -> Request:
        """Return the command `put` with its arguments."""
        delay = 0 if self.when is None else max(0.0, self.when - client.clock())
        return (
            *("put", client.worker_name, self.queue, self.jid, self.klass, self.data, delay),
            *self.options.arguments,
            *(UNIQUE if self.unique else ()),
            *(() if self.txid is None else ("txid", self.txid)),
        )


PlannedJobs: TypeAlias = "Sequence[tuple[Task[..., Any], Message]]"


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """Enqueues messages as jobs; in eager mode, runs their tasks instead.

    `on_commit`: queues whose jobs wait for the commit of the open transaction.
    """

    client: Client
    eager: bool
    on_commit: frozenset[str] = frozenset()

    def send(self, planned: PlannedJobs) -> None:
        """Enqueue the jobs in order, in one round trip. Raises the error of the first refused job."""
        if self.on_commit and any(waits_for_commit(self.on_commit, message.queue) for _, message in planned):
            self.send_on_commit(planned, None)
        elif self.eager:
            for task, message in planned:
                eager.run(task, message, self.client)
        elif len(planned) == 1:
            self.client.call(*planned[0][1].request(self.client))
        else:
            _raise_first(self.client.call_many([message.request(self.client) for _, message in planned]))

    async def asend(self, planned: PlannedJobs) -> None:
        """Do the same for asyncio, at once: Django has no transactions in async code."""
        if self.eager:
            for task, message in planned:
                await eager.arun(task, message, self.client)
        elif len(planned) == 1:
            await self.client.acall(*planned[0][1].request(self.client))
        else:
            _raise_first(await self.client.acall_many([message.request(self.client) for _, message in planned]))

    def send_on_commit(self, planned: PlannedJobs, using: str | None, robust: bool = False) -> None:
        """Enqueue the jobs on commit, or at once if no transaction is open; never after a rollback."""

        def put() -> None:  # not a partial, which has no name for Django to log
            replace(self, eager=conf.qless.eager, on_commit=frozenset()).send(planned)

        transaction.on_commit(put, using=using, robust=robust)


_dispatcher_class: type[Dispatcher] = Dispatcher


@functools.cache
def dispatcher() -> Dispatcher:
    """Return the dispatcher for the current settings. It is recreated when a setting changes and after a fork."""
    section = conf.qless
    return _dispatcher_class(default_client(), section.eager, frozenset(section.on_commit))


def use_dispatcher(dispatcher_class: type[Dispatcher]) -> type[Dispatcher]:
    """Make all tasks of this process use dispatchers of a class, for tests. Return the class that they used before."""
    global _dispatcher_class
    earlier, _dispatcher_class = _dispatcher_class, dispatcher_class
    dispatcher.cache_clear()
    return earlier


def waits_for_commit(queues: frozenset[str], queue: str) -> bool:
    """Return whether jobs of this queue wait for the commit, by the setting ON_COMMIT."""
    return queue in queues or "*" in queues


def _raise_first(replies: Sequence[Any]) -> None:
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply


class Call(NamedTuple):
    """The arguments of a task call."""

    args: list[Any]
    kwargs: dict[str, Any]


class _ResultReply(msgspec.Struct):
    state: str
    result: str | bool


_RESULT: Final = reader(_ResultReply)


def data_of(args: Sequence[Any], kwargs: Mapping[str, Any], expires: float | None, source: Source) -> dict[str, Any]:
    """Return the data of a job."""
    data: dict[str, Any] = {"args": args, "kwargs": kwargs}
    if expires is not None:
        data["expires"] = expires
    if source is not None:
        data["from"] = source
    return data


def call_of(job: Job) -> Steps[Call]:
    """Return the arguments for the task of a job. Raises `TaskExpired`, `ResultGone`, `UnreadableReply`."""
    data = job.data
    try:
        args, kwargs, expires, source = data["args"], data["kwargs"], data.get("expires"), data.get("from")
        call = Call([*args], {**kwargs})
    except (TypeError, KeyError, AttributeError):
        raise UnreadableReply(
            f'The data of {job.jid} does not look like {{"args": [...], "kwargs": {{...}}}}. '
            "Enqueue tasks with delay() or apply_async()."
        ) from None
    if expires is not None and job.client.clock() > expires:
        raise TaskExpired(f"{job.klass} did not run: it expired before a worker was free.")
    if isinstance(source, str):
        call.args.insert(0, (yield from _result(source)))
    elif source is not None:
        results = []
        for jid in source:
            results.append((yield from _result(jid)))
        call.args.insert(0, results)
    return call


def _result(jid: str) -> Steps[Any]:
    if jid in eager.outcomes:
        return eager.outcomes[jid].get()
    reply = yield "result", jid
    record = None if reply is None else read(reply, _RESULT)
    if record is None or not isinstance(record.result, str):
        raise ResultGone(
            f"The result of {jid}, needed as the first argument, has expired. Raise its result_ttl=, or use si()."
        )
    return decode(record.result)


def _forget_dispatcher(**kwargs: Any) -> None:
    dispatcher.cache_clear()


setting_changed.connect(_forget_dispatcher, dispatch_uid="resty_django.qless.tasks.message")
os.register_at_fork(after_in_child=_forget_dispatcher)
