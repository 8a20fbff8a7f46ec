"""Commands that a worker sends to the core: the commands that end a job, and the batch of one pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar

from ..clients.transport import Request


class EndCommand:
    """A command that ends a job. `request`: its name and arguments, as the client sends them."""

    __slots__ = ("request",)

    name: ClassVar[str]
    needs_lease_check: ClassVar[bool] = False
    """Whether the core accepts it from any worker, so that a heartbeat must first show that the lease is held."""

    def __init__(self, *arguments: Any) -> None:
        self.request: Request = (self.name, *arguments)

    @staticmethod
    def from_request(request: Request) -> EndCommand:
        """Return the command of a request that another process has made. Raises `KeyError` for other requests."""
        kind = {kind.name: kind for kind in (CompleteJob, FailJob, RetryJob, RequeueJob)}[request[0]]
        command = kind.__new__(kind)
        command.request = request
        return command


class CompleteJob(EndCommand):
    """Complete the job. `options`: names and values, such as `"result"` and its JSON."""

    __slots__ = ()
    name = "complete"

    _MAX_JOINED: ClassVar[int] = 10_000
    """Maximum characters of the data and the result of a job that is completed together with others."""

    def __init__(self, jid: str, worker: str, queue: str, data: Any, *options: Any) -> None:
        self.request = ("complete", jid, worker, queue, data, "pending", 1, *options)

    @property
    def entry(self) -> Request:
        """The job's arguments of `complete.many`; empty if its data or result are too large for a joint call."""
        jid, data = self.request[1], self.request[4]
        result, ttl = (*self.request[8::2], "", "")[:2]
        texts = isinstance(data, str | bytes) and isinstance(result, str | bytes)
        return (jid, data, result, ttl) if texts and len(data) + len(result) <= self._MAX_JOINED else ()


class FailJob(EndCommand):
    """Fail the job. `data`: its data as JSON, or nothing, to keep the server's copy."""

    __slots__ = ()
    name = "fail"
    _WITHOUT_DATA: ClassVar[int] = 5
    """Number of parts of the request without the data."""

    def __init__(self, jid: str, worker: str, group: str, message: str, *data: Any) -> None:
        super().__init__(jid, worker, group, message, *data)

    def drop_data(self) -> bool:
        """Omit the data. Return False if there were none."""
        if len(self.request) == self._WITHOUT_DATA:
            return False
        self.request = self.request[: self._WITHOUT_DATA]
        return True


class RetryJob(EndCommand):
    """Retry the job after `delay` seconds, using up a retry. `failure`: its group and message, if any."""

    __slots__ = ()
    name = "retry"

    def __init__(self, jid: str, queue: str, worker: str, delay: Any, *failure: Any) -> None:
        super().__init__(jid, queue, worker, delay, *failure)


class RequeueJob(EndCommand):
    """Requeue the job, to run after `delay` seconds. `options`: names and values."""

    __slots__ = ()
    name = "requeue"
    needs_lease_check = True

    def __init__(self, jid: str, queue: str, worker: str, klass: str, data: Any, delay: Any, *options: Any) -> None:
        super().__init__(worker, queue, jid, klass, data, delay, *options)


@dataclass(slots=True)
class CommandBatch:
    """The requests of one pipeline, each with the handler of its reply.

    `ends`: the number of jobs whose ends it reports.
    """

    requests: list[Request] = field(default_factory=list)
    ends: int = 0
    _handlers: list[tuple[Callable[..., object], int]] = field(default_factory=list)

    def add(self, on_reply: Callable[..., object], *requests: Request) -> None:
        """Append requests. `on_reply` is called with one reply per request; failed requests have an error as reply."""
        self.requests += requests
        self._handlers.append((on_reply, len(requests)))

    def apply(self, replies: Sequence[Any]) -> None:
        """Call the handlers, in the order of the requests."""
        remaining = iter(replies)
        for on_reply, count in self._handlers:
            on_reply(*islice(remaining, count))
