"""Conversion of a task call into a job, and back in the worker.

The data of the job is `{"args": [...], "kwargs": {...}}`. It may also contain `expires`, a time, and the source of the
first argument:

- `from`: the jid of a job, for its result
- `from_group`: the ID of a group, for the list of its results
- `pass`: in a callback, `outcome` or `result`, for the outcome that the core has added, or the result in it; `value`,
  for an outcome whose result is unwrapped: jobs of Django's tasks return `{"value": ...}`

With `allow_failure`, results that do not exist are passed as None.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import itertools
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from asgiref.sync import sync_to_async
from django.core.signals import setting_changed
from django.db import transaction

from resty_django.conf import conf
from resty_django.redis.errors import StoreError

from ..clients.client import Client
from ..clients.default import default_client
from ..clients.job import Job
from ..clients.put_options import list_text
from ..clients.serialization import decode, encode, ordered
from ..clients.transport import MAX_REQUESTS_PER_BATCH, Request, Steps, checked
from ..errors import InvalidArgument, QlessError, ResultGone, TaskExpired, UnreadableReply
from . import eager
from .consequences import Consequences, PlannedJob
from .outcomes import TaskOutcome, outcome_of
from .results import ResultReply, result_replies, result_reply

if TYPE_CHECKING:
    from .options import EnqueueOptions

USING_NEEDS: Final = "using= needs the outbox, or a queue in ON_COMMIT. Call apply_async_on_commit()."


class ArgumentSource(NamedTuple):
    """Where the first argument comes from: a field of the data and its value, see above."""

    field: Literal["from", "from_group", "pass"]
    value: str
    allow_failure: bool = False


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

    def updated(self, call: EnqueueOptions) -> PutOptions:
        """Return the options of a task's job, given the options of the call."""
        if call.priority is None and call.retries is None and not call.tags and not call.depends:
            return self
        return PutOptions(
            priority=self.priority if call.priority is None else call.priority,
            tags=[*self.tags, *call.tags],
            retries=self.retries if call.retries is None else call.retries,
            depends=call.depends,
        )

    @cached_property
    def arguments(self) -> Request:
        """Return names and values in turn, as the core expects them."""
        arguments: Request = ()
        if self.tags:
            arguments += ("tags", list_text(self.tags))
        if self.depends:
            arguments += ("depends", list_text(self.depends))
        if self.priority is not None:
            arguments += ("priority", self.priority)
        if self.retries is not None:
            arguments += ("retries", self.retries)
        return arguments


class TaskMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A job to enqueue, made from a call of a task.

    - `klass`: the path of the task. `data`: JSON.
    - `when`: seconds since the epoch; None: at once.
    - `unique`: whether a waiting or running job with this jid stays unchanged.
    - `ids`: the txid and the caller's request ID, as `current_ids` returns them.
    - `consequences`: the consequences of its end; None if there are none.

    A struct: with a named tuple, `Task.message` would take 20 % longer.
    """

    queue: str
    jid: str
    klass: str
    data: str | bytes
    when: float | None
    options: PutOptions
    unique: bool = False
    ids: dict[str, str] = {}
    consequences: Consequences | None = None

    def request(self, client: Client, for_outbox: bool = False) -> Request:
        """Return the command `put` with its arguments.

        `for_outbox`: with the time of the start in place of the delay; 0: at once.
        """
        delay = self.when or 0
        if delay and not for_outbox:
            delay = max(0.0, delay - client.clock())
        request: Request = ("put", client.worker_name, self.queue, self.jid, self.klass, self.data, delay)
        request += self.options.arguments
        if self.unique:
            request += ("unique", "pending")  # a waiting or running job with the same jid stays unchanged
        request += (*itertools.chain(*self.ids.items()),)
        if self.consequences is not None:
            request += ("outcome", encode(self.consequences.texts()))
        return request

    def with_consequences(self, **changes: Any) -> TaskMessage:
        """Return a copy with some fields of its `Consequences` changed."""
        consequences = replace(self.consequences or Consequences(), **changes)
        return msgspec.structs.replace(self, consequences=consequences)


class PlannedGroup(NamedTuple):
    """A group to create. Its members name it in their `consequences`."""

    id: str
    name: str
    callbacks: Consequences

    def opening(self) -> Request:
        """Return the command that creates the group."""
        texts = self.callbacks.callback_texts()
        return ("group.open", self.id, self.name, *(argument for pair in texts.items() for argument in pair))


PlannedJobs: TypeAlias = Sequence[PlannedJob]


@dataclass(frozen=True, slots=True)
class TaskDispatcher:
    """Enqueues messages as jobs; in eager mode, runs their tasks instead.

    - `on_commit`: queues whose jobs wait for the commit of the open transaction.
    - `outbox`: queues whose jobs go through the outbox.
    """

    client: Client
    eager: bool
    on_commit: frozenset[str] = frozenset()
    outbox: frozenset[str] = frozenset()

    def send(self, planned: PlannedJobs, groups: Sequence[PlannedGroup] = (), using: str | None = None) -> None:
        """Create the groups, and enqueue the jobs in order. Raises the error of the first refused job; then the groups
        fail once the members that were enqueued have ended.

        `using`: the database whose transaction the jobs belong to.
        """
        if self.outbox and covers(self.outbox, planned, groups):
            write_to_outbox([job.message for job in planned], groups, using)
        elif self.on_commit and covers(self.on_commit, planned, groups):
            self.send_on_commit(planned, using, groups=groups)
        elif using is not None:
            raise InvalidArgument(USING_NEEDS)
        elif self.eager:
            eager.run_all(planned, groups, self.client)
        elif len(planned) == 1 and not groups:
            self.client.call(*planned[0].message.request(self.client))
        else:
            self.client.run(_enqueue(planned, groups, self.client))

    async def asend(self, planned: PlannedJobs, groups: Sequence[PlannedGroup] = (), using: str | None = None) -> None:
        """Do the same for asyncio. Without the outbox, it does so at once: Django has no transactions in async code."""
        if self.outbox and covers(self.outbox, planned, groups):
            await sync_to_async(self.send)(planned, groups, using)
        elif using is not None:
            raise InvalidArgument("using= needs the outbox in async code.")
        elif self.eager:
            await eager.arun_all(planned, groups, self.client)
        elif len(planned) == 1 and not groups:
            await self.client.acall(*planned[0].message.request(self.client))
        else:
            await self.client.arun(_enqueue(planned, groups, self.client))

    def send_on_commit(
        self, planned: PlannedJobs, using: str | None, robust: bool = False, groups: Sequence[PlannedGroup] = ()
    ) -> None:
        """Enqueue the jobs on commit, or at once if no transaction is open; never after a rollback."""
        if self.outbox and covers(self.outbox, planned, groups):
            self.send(planned, groups, using)
            return

        def put() -> None:  # not a partial, which has no name for Django to log
            replace(self, eager=conf.qless.eager, on_commit=frozenset()).send(planned, groups)

        transaction.on_commit(put, using=using, robust=robust)


def covers(queues: Collection[str], planned: PlannedJobs, groups: Sequence[PlannedGroup] = ()) -> bool:
    """Return whether any of the jobs is in one of these queues; a group without jobs is in all of them."""
    if not planned and groups:
        return "*" in queues
    return any(includes(queues, job.message.queue) for job in planned)


def includes(queues: Collection[str], queue: str) -> bool:
    """Return whether a setting that lists queues, or "*" for all of them, includes one."""
    return queue in queues or "*" in queues


def write_to_outbox(messages: Sequence[TaskMessage], groups: Sequence[PlannedGroup], using: str | None = None) -> None:
    """Write jobs and groups to the outbox. Raises `InvalidArgument`, `django.db.DatabaseError`."""
    from ..outbox.entries import Call  # needs models
    from ..outbox.outbox import default_outbox

    outbox = default_outbox()
    first = messages[0] if messages else None
    call = Call(
        commands=[
            *(group.opening() for group in groups),
            *(message.request(outbox.client, for_outbox=True) for message in messages),
            *(("group.close", group.id) for group in groups),
        ],
        jids=[message.jid for message in messages],
        groups=[group.id for group in groups],
        depends=[jid for message in messages for jid in message.options.depends],
        klass="" if first is None else first.klass,
        queue="" if first is None else first.queue,
    )
    outbox.write(call, using)


def _enqueue(planned: PlannedJobs, groups: Sequence[PlannedGroup], client: Client) -> Steps[None]:
    """Send the commands in batches. Groups are closed once all jobs are accepted, so that a group of which a part is
    missing never completes."""
    try:
        puts = (job.message.request(client) for job in planned)
        yield from _send(itertools.chain((group.opening() for group in groups), puts))
        yield from _send(("group.close", group.id) for group in groups)
    except Exception:
        if groups:
            with suppress(QlessError, StoreError):  # if this fails, too, the core does it after an hour
                yield [("group.close", group.id, "incomplete") for group in groups]
        raise


def _send(requests: Iterator[Request]) -> Steps[None]:
    while batch := list(itertools.islice(requests, MAX_REQUESTS_PER_BATCH)):
        for reply in (yield batch):
            checked(reply)


_dispatcher_class: type[TaskDispatcher] = TaskDispatcher


@functools.cache
def dispatcher() -> TaskDispatcher:
    """Return the dispatcher for the current settings. It is recreated when a setting changes and after a fork."""
    section = conf.qless
    outbox = () if section.eager else section.outbox.queues
    return _dispatcher_class(default_client(), section.eager, frozenset(section.on_commit), frozenset(outbox))


def use_dispatcher(dispatcher_class: type[TaskDispatcher]) -> type[TaskDispatcher]:
    """Make all tasks of this process use dispatchers of a class, for tests. Return the class that they used before."""
    global _dispatcher_class
    earlier, _dispatcher_class = _dispatcher_class, dispatcher_class
    dispatcher.cache_clear()
    return earlier


class Parameters:
    """The parameters of `function`, the function of the task `name`; with `bind`, without the first one.

    `unique`: whether jobs with equal arguments are the same, or the names of the arguments to compare. Raises
    `TypeError` if the function has no such argument.
    """

    def __init__(
        self, function: Callable[..., object], path: str, name: str, bind: bool, unique: bool | Sequence[str]
    ) -> None:
        self._path = path
        self._name = name
        signature = inspect.signature(function)
        parameters = [*signature.parameters.values()][1 if bind else 0 :]
        self.signature = signature.replace(parameters=parameters)
        self.names = [parameter.name for parameter in parameters]
        required = [parameter for parameter in parameters if parameter.default is parameter.empty]
        are_positional = all(parameter.kind <= parameter.POSITIONAL_OR_KEYWORD for parameter in parameters)
        self._positional_counts = range(len(required), len(parameters) + 1) if are_positional else range(0)
        self._compared = self.names if isinstance(unique, bool) else unique
        unknown = sorted({*self._compared} - {*self.names})
        if unknown:
            raise TypeError(f"{path}: unique= names {unknown[0]!r}, which is not an argument of the function.")

    def check(self, args: Sequence[object], kwargs: Mapping[str, object], source: ArgumentSource | None = None) -> None:
        """Raise `TypeError` if the function does not accept these arguments; `source` adds one in front."""
        if not kwargs and len(args) + (source is not None) in self._positional_counts:
            return  # `bind` would take half of the time of `Task.message`
        try:
            self.signature.bind(*(() if source is None else (source,)), *args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self._path}{self.signature}: invalid arguments: {error}.") from None

    def digest(self, args: Sequence[object], kwargs: Mapping[str, object], source: ArgumentSource | None = None) -> str:
        """Return 32 hexadecimal digits, the same for equal values of the compared arguments, by position or by name."""
        bound = self.signature.bind(*(() if source is None else (source.value,)), *args, **kwargs)
        bound.apply_defaults()
        try:
            identity = [self._name, [[name, ordered(bound.arguments[name])] for name in self._compared]]
            text = msgspec.json.encode(msgspec.json.decode(encode(identity)), order="deterministic")
        except TypeError as error:
            raise InvalidArgument(str(error)) from None
        except RecursionError:
            raise InvalidArgument("Job data must be JSON: it is nested too deeply, or contains itself.") from None
        return hashlib.sha256(text).hexdigest()[:32]


def data_of(
    args: Sequence[object],
    kwargs: Mapping[str, object],
    expires: float | None = None,
    source: ArgumentSource | None = None,
) -> dict[str, object]:
    """Return the data of a job."""
    data: dict[str, object] = {"args": args, "kwargs": kwargs}
    if expires is not None:
        data["expires"] = expires
    if source is not None:
        data[source.field] = source.value
        if source.allow_failure:
            data["allow_failure"] = True
    return data


def arguments_of(job: Job) -> Steps[tuple[list[Any], dict[str, Any]]]:
    """Return the arguments for the task of a job, by position and by name. The first one may be another job's result,
    read from the server. Raises `TaskExpired`, `ResultGone`, `UnreadableReply`."""
    data = job.data
    try:
        args, kwargs, expires = data["args"], data["kwargs"], data.get("expires")
        args, kwargs = [*args], {**kwargs}
    except (TypeError, KeyError, AttributeError):
        raise UnreadableReply(
            f'The data of {job.jid} does not look like {{"args": [...], "kwargs": {{...}}}}. '
            "Enqueue tasks with delay() or apply_async()."
        ) from None
    if expires is not None and job.client.clock() > expires:
        raise expired(job, data)
    if data.get("from") is not None:
        args.insert(0, (yield from _result(data["from"], bool(data.get("allow_failure")))))
    elif data.get("from_group") is not None:
        results = yield from _group_results(job.client, data["from_group"], bool(data.get("allow_failure")))
        args.insert(0, results)
    elif data.get("pass") is not None:
        outcome = outcome_of(data.get("outcome"))
        if data["pass"] == "value" and isinstance(outcome, TaskOutcome) and outcome.result:  # noqa: S105 (no password)
            outcome = replace(outcome, result=outcome.result["value"])
        wants_result = data["pass"] == "result"  # noqa: S105
        args.insert(0, data["outcome"].get("result") if wants_result else outcome)
    return args, kwargs


def expired(job: Job, data: Mapping[str, Any]) -> TaskExpired:
    """Return the error of a task that has expired, with its last error if it ran before."""
    runs = job.original_retries - job.retries_left or int(data.get("retries", 0))
    last_error = job.failure.get("message") or data.get("error")
    if runs > 0:
        text = f"{job.klass} ran {'once' if runs == 1 else f'{runs} times'} and was not retried: it has expired."
    elif last_error or sum(entry.get("what") == "popped" for entry in job.raw_queue_history) > 1:
        text = f"{job.klass} did not run this time: it has expired."
    else:
        text = f"{job.klass} did not run: it expired before a worker was free."
    error = TaskExpired(text)
    if last_error:
        error.add_note(f"\nIts last error was:\n\n{str(last_error).rstrip()}")
    return error


def _result(jid: str, allow_failure: bool) -> Steps[Any]:
    if jid in eager.outcomes:
        return eager.outcomes[jid].passed(allow_failure)
    return _value(jid, (yield from result_reply(jid)), allow_failure)


def _group_results(client: Client, group: str, allow_failure: bool) -> Steps[list[Any]]:
    if group in eager.groups:
        return [end.passed(allow_failure) for _, end in eager.groups[group].ends]
    jids = [jid for jid, _ in (yield from client.groups._jobs(group, 0, -1))]
    replies = yield from result_replies(jids)
    return [_value(jid, reply, allow_failure) for jid, reply in zip(jids, replies, strict=True)]


def _value(jid: str, reply: ResultReply | None, allow_failure: bool) -> Any:
    if reply is not None and reply.state == "complete" and isinstance(reply.result, str):
        return decode(reply.result)
    if allow_failure and (reply is None or reply.state != "complete"):
        return None
    raise ResultGone(
        f"The result of {jid}, needed as the first argument, has expired. Raise its result_ttl=, or use si()."
    )


def _forget_dispatcher(**kwargs: Any) -> None:
    dispatcher.cache_clear()


setting_changed.connect(_forget_dispatcher, dispatch_uid="resty_django.qless.tasks.message")
os.register_at_fork(after_in_child=_forget_dispatcher)
