"""Calls of the core: one course of action for sync and async code.

What an object does is a generator of requests, which gets the reply of each; `twins` makes of it a method and its twin
for asyncio:

    def _length(self) -> Steps[int]:
        return int((yield "length", self.name))

    length, alength = twins(_length)
"""

from __future__ import annotations

import functools
import inspect
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeAlias, TypeVar

from django.core.exceptions import ImproperlyConfigured

from resty_django.redis import Origin, Script, Source, StoreError
from resty_django.redis.keys import acommand, command

from .core import source
from .errors import InvalidArgument, error_of, message_of
from .texts import as_bytes

P = ParamSpec("P")
R = TypeVar("R")

Request: TypeAlias = tuple[Any, ...]
"""A command and its arguments: texts, bytes and numbers."""

Steps: TypeAlias = Generator[Any, Any, R]
"""Yields requests, lists of requests (its replies may be errors then), `Plain`, and functions to be called."""


class Plain(tuple[Any, ...]):
    """A command of the server itself, whose first argument after its name is a key."""


class Caller:
    """Calls commands of the core on one server, under one prefix. Usable in all threads and after a fork."""

    def __init__(
        self, redis: Origin, async_redis: Origin | None, prefix: str, clock: Callable[[], float] = time.time
    ) -> None:
        self.prefix: Final = prefix
        self.clock: Final = clock
        self.source: Final = Source(redis, async_redis)
        self._script: Final = _script(prefix)
        self._keys: Final = (prefix,) if re.search("{.+}", prefix) else ()

    def call(self, command: str, *args: Any) -> Any:
        """One command of the core with the time put in: the reply as the server gives it, texts as bytes.

        Raises `QlessError`, and `StoreDown`, `StoreError` of `resty_django.redis`.
        """
        try:
            return self._script(self.source.sync(), self._keys, self._words(command, args))
        except StoreError as error:
            raise self._told(error) from error.__cause__

    async def acall(self, command: str, *args: Any) -> Any:
        """The same for asyncio."""
        try:
            return await self._script.run(self.source.asynchronous(), self._keys, self._words(command, args))
        except StoreError as error:
            raise self._told(error) from error.__cause__

    def call_many(self, requests: Sequence[Request]) -> list[Any]:
        """The replies of many commands, sent together; in place of a reply the error of that command.

        Raises `StoreDown` where the server did not answer.
        """
        replies = self._script.many(self.source.sync(), self._keys, self._timed(requests))
        return [self._outcome(each) for each in replies]

    async def acall_many(self, requests: Sequence[Request]) -> list[Any]:
        """The same for asyncio."""
        client = self.source.asynchronous()
        replies = await self._script.run_many(client, self._keys, self._timed(requests))
        return [self._outcome(each) for each in replies]

    def run(self, steps: Steps[R]) -> R:
        """Take all steps, and return what the generator returns."""
        try:
            request = next(steps)
            while True:
                if type(request) is tuple:
                    reply = self.call(*request)
                elif isinstance(request, list):
                    reply = self.call_many(request)
                elif isinstance(request, Plain):
                    reply = self._plain(*request)
                else:
                    reply = request()
                    if inspect.isawaitable(reply):
                        if isinstance(reply, Coroutine):
                            reply.close()
                        raise InvalidArgument(
                            "A hook is a coroutine function: it runs with the twin for asyncio alone."
                        )
                request = steps.send(reply)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def arun(self, steps: Steps[R]) -> R:
        """The same for asyncio."""
        try:
            request = next(steps)
            while True:
                if type(request) is tuple:
                    reply = await self.acall(*request)
                elif isinstance(request, list):
                    reply = await self.acall_many(request)
                elif isinstance(request, Plain):
                    reply = await self._aplain(*request)
                else:
                    reply = request()
                    if inspect.isawaitable(reply):
                        reply = await reply
                request = steps.send(reply)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _words(self, command: str, args: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments of the core. Texts become bytes here, since that takes redis-py longer."""
        now = repr(self.clock()).encode()
        try:
            return (
                command.encode(),
                now,
                *[each.encode() if type(each) is str else b"%d" % each if type(each) is int else each for each in args],
            )
        except UnicodeEncodeError:
            return (as_bytes(command), now, *[as_bytes(each) for each in args])

    def _told(self, error: StoreError) -> Exception:
        message = message_of(str(error))
        if message is not None:
            return error_of(message)
        if type(error.__cause__).__name__ == "DataError":  # what redis-py cannot send
            return InvalidArgument(str(error))
        if "non local key" not in str(error):
            return error
        if self._keys:
            return StoreError("the slot of the jobs is on its way to another node of the cluster")
        return ImproperlyConfigured(
            "The job queue is on a cluster, but its prefix has no hash tag. "
            'Set it to "{jobs}ql:" or the like, so that all keys are in one slot.'
        )

    def _outcome(self, reply: Any) -> Any:
        return self._told(reply) if isinstance(reply, StoreError) else reply

    def _timed(self, requests: Sequence[Request]) -> list[Request]:
        return [self._words(command, args) for command, *args in requests]

    def _plain(self, name: str, *args: Any) -> Any:
        return command(self.source.sync(), name, *[as_bytes(each) for each in args])

    async def _aplain(self, name: str, *args: Any) -> Any:
        return await acommand(self.source.asynchronous(), name, *[as_bytes(each) for each in args])


class Calling(Protocol):
    """An object that calls the core."""

    @property
    def client(self) -> Caller: ...


S = TypeVar("S", bound=Calling)


def twins(
    steps: Callable[Concatenate[S, P], Steps[R]],
) -> tuple[Callable[Concatenate[S, P], R], Callable[Concatenate[S, P], Awaitable[R]]]:
    """The method and its twin for asyncio, of a generator method `_name`."""

    @functools.wraps(steps)
    def call(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.client.run(steps(self, *args, **kwargs))

    @functools.wraps(steps)
    async def acall(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self.client.arun(steps(self, *args, **kwargs))

    for made, prefix in ((call, ""), (acall, "a")):
        made.__name__ = prefix + steps.__name__.removeprefix("_")
        made.__qualname__ = f"{steps.__qualname__.rpartition('.')[0]}.{made.__name__}"
    return call, acall  # type: ignore[return-value]


@functools.cache
def _script(prefix: str) -> Script:
    return Script(source(prefix))


__all__ = ["Caller", "Plain", "Request", "Steps", "twins"]
