"""Commands that a worker sends to the core: how a job ends, and the batch of one pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any, ClassVar, Final, NamedTuple

from ..clients.transport import Request
from ..errors import InvalidArgument

MAX_ARGUMENT_BYTES: Final = 512 * 1024 * 1024
"""A Redis server closes the connection without a reply if one argument is longer."""


@dataclass(slots=True, kw_only=True)
class EndCommand:
    """A command that ends the job `jid` of the worker `worker`: one of the subclasses below.

    Fields that are None are not sent.
    """

    jid: str
    worker: str

    name: ClassVar[str]
    needs_lease_check: ClassVar[bool] = False
    """Whether the core accepts it from any worker, so that a heartbeat must first show that the lease is held."""

    @property
    def request(self) -> Request:
        """The command and its arguments, in the core's order."""
        raise NotImplementedError

    def pack(self) -> dict[str, Any]:
        """Return plain values from which `unpack` makes the command again, in another process."""
        return {"name": self.name, **{each.name: getattr(self, each.name) for each in fields(self)}}

    @staticmethod
    def unpack(packed: dict[str, Any]) -> EndCommand:
        """Return the command that was packed."""
        name = packed.pop("name")
        return next(kind for kind in (CompleteJob, FailJob, RetryJob, RequeueJob) if kind.name == name)(**packed)


@dataclass(slots=True, kw_only=True)
class CompleteJob(EndCommand):
    """Complete the job, and store its result as JSON for `result_ttl` seconds."""

    name: ClassVar[str] = "complete"
    queue: str
    data: str | bytes
    result: str | bytes | None = None
    result_ttl: float | None = None

    @property
    def request(self) -> Request:
        request: Request = (self.name, self.jid, self.worker, self.queue, self.data, "pending", 1)
        if self.result is not None:
            request += ("result", self.result)
        if self.result_ttl is not None:
            request += ("ttl", self.result_ttl)
        return request

    @property
    def is_small(self) -> bool:
        """Whether the job may be completed together with others in one call, which blocks the server for longer."""
        return len(self.data) + len(self.result or "") <= 10_000

    @property
    def arguments_of_many(self) -> Request:
        """The job's arguments of the command `complete.many`."""
        return (self.jid, self.data, self.result or "", "" if self.result_ttl is None else self.result_ttl)


@dataclass(slots=True, kw_only=True)
class FailJob(EndCommand):
    """Fail the job, with the group and the message of its failure. Without data, the server keeps its copy."""

    name: ClassVar[str] = "fail"
    group: str
    message: str
    data: str | bytes | None = None

    @property
    def request(self) -> Request:
        request: Request = (self.name, self.jid, self.worker, self.group, self.message)
        return request if self.data is None else (*request, self.data)


@dataclass(slots=True, kw_only=True)
class RetryJob(EndCommand):
    """Retry the job after `delay` seconds, using up a retry; with the group and the message of a failure, if any."""

    name: ClassVar[str] = "retry"
    queue: str
    delay: float
    group: str | None = None
    message: str | None = None

    @property
    def request(self) -> Request:
        request: Request = (self.name, self.jid, self.queue, self.worker, self.delay)
        return request if self.group is None else (*request, self.group, self.message or "")


@dataclass(slots=True, kw_only=True)
class RequeueJob(EndCommand):
    """Requeue the job, to run after `delay` seconds. `tags`: a JSON list."""

    name: ClassVar[str] = "requeue"
    needs_lease_check: ClassVar[bool] = True
    queue: str
    klass: str
    data: str | bytes
    delay: float
    priority: float
    tags: str | bytes
    retries: int

    @property
    def request(self) -> Request:
        return (
            *(self.name, self.worker, self.queue, self.jid, self.klass, self.data, self.delay),
            *("priority", self.priority, "tags", self.tags, "retries", self.retries),
        )


def plain(argument: object) -> Any:
    """Return the argument as `str`, `bytes`, `int` or `float`, not as a subclass.

    Raises `InvalidArgument` for other types, and for texts that are too long for the server.
    """
    value: str | bytes
    if isinstance(argument, str):
        value = str.__str__(argument)
    elif isinstance(argument, bytes) and type(argument) is bytes:
        value = argument
    elif isinstance(argument, int) and type(argument) is not bool:
        return int.__int__(argument)
    elif isinstance(argument, float):
        return float.__float__(argument)
    else:
        kind = f"{type(argument).__module__}.{type(argument).__qualname__}"
        raise InvalidArgument(f"The job ended with a value of the type {kind}. Use a string or a number.")
    if len(value) > MAX_ARGUMENT_BYTES:
        raise InvalidArgument(
            f"The job's data or result has {len(value)} bytes. The server accepts at most {MAX_ARGUMENT_BYTES}."
        )
    return value


class _ReplyHandler(NamedTuple):
    """The function that gets the replies to the next `request_count` requests of a batch."""

    request_count: int
    on_reply: Callable[..., object]


@dataclass(slots=True)
class CommandBatch:
    """The requests of one pipeline, each with the handler of its reply.

        batch.add(("pop", "mail", "worker-1", 5), on_reply=start_jobs)
        batch.apply(client.call_many(batch.requests))

    `ends`: the number of jobs whose ends it reports.
    """

    requests: list[Request] = field(default_factory=list)
    ends: int = 0
    _handlers: list[_ReplyHandler] = field(default_factory=list)

    def add(self, *requests: Request, on_reply: Callable[..., object]) -> None:
        """Append requests. `on_reply` is called with one reply per request: an exception if the request failed."""
        self.requests += requests
        self._handlers.append(_ReplyHandler(len(requests), on_reply))

    def apply(self, replies: Sequence[object]) -> None:
        """Call the handlers, in the order of the requests."""
        remaining = iter(replies)
        for handler in self._handlers:
            handler.on_reply(*islice(remaining, handler.request_count))
