"""Calls to the core, written once for sync and async code.

A method is a generator that yields requests and receives their replies; `sync_and_async` turns it into a method and its
asyncio counterpart:

    def _length(self) -> Steps[int]:
        return int((yield "length", self.name))

    length, alength = sync_and_async(_length)
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import re
import time
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, TypeAlias, TypeVar

from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured

from resty_django import extras, sansio
from resty_django.callables import acompleted, completed
from resty_django.redis.errors import NOT_PERMITTED, StoreError

from ..core import source
from ..errors import CLAUSE, LOCK_GONE, InvalidArgument, OutOfOrder, QlessError, error_of, message_of
from .replies import Page
from .serialization import as_bytes, read

if TYPE_CHECKING:
    from resty_django.redis import LuaScript, Origin

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

MAX_REQUESTS_PER_BATCH: Final = 500
"""Maximum number of commands in a round trip."""

Request: TypeAlias = tuple[Any, ...]
"""A command and its arguments: strings, bytes and numbers."""

Steps: TypeAlias = Generator[Any, Any, R]
"""Yields requests, lists of requests (whose replies may be errors), `RedisCommand`s, and `SyncCall`s or other functions
to be called."""


class RedisCommand(tuple[Any, ...]):
    """A command of the server itself. The first argument after its name is a key."""


@dataclass(frozen=True, slots=True)
class SyncCall:
    """A call of sync code, such as a query of the database. Asyncio makes it in the thread of sync code."""

    function: Callable[[], Any]

    def __call__(self) -> Any:
        return self.function()


def checked(reply: Any) -> Any:
    """Return the reply to one of several requests. Raises it if it is an error."""
    if isinstance(reply, Exception):
        raise reply
    return reply


def is_refusal(reply: object) -> bool:
    """Return whether a reply is an error that the same call would get again, because of its arguments or the data.

    Lost locks do not count, nor errors that any call would get now.
    """
    if isinstance(reply, QlessError):
        return not isinstance(reply, (*LOCK_GONE, OutOfOrder))
    # raised by a command inside the core, such as WRONGTYPE for a key that another program wrote
    return type(reply) is StoreError and "user_script:" in str(reply) and not str(reply).startswith(NOT_PERMITTED)


@contextlib.contextmanager
def skipping_refusals(caller_log: logging.Logger, text: str, *args: object) -> Iterator[None]:
    """Log an error in the block, so that a loop continues with the next item. `text`, `args`: what could not be done.

    Raises errors that the next item would get as well, such as `StoreDown`.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, StoreError) and not is_refusal(error):
            raise
        caller_log.warning("%s: %s: %s", text % args, type(error).__name__, error)


def pages(kind: type[Page[T]], command: str, *args: object) -> Steps[list[T]]:
    """Return the contents of all pages of a list of the core."""
    contents, cursor = [], "0"
    while cursor:
        page = read((yield "page", command, cursor, *args), kind)
        contents.append(page.items)
        cursor = page.cursor
    return contents


def batches(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """Return the items in parts of at most `size`, one for each call."""
    return [items[first : first + size] for first in range(0, len(items), size)]


class ScriptClient:
    """Calls commands of the core on one server, under one prefix. Usable in all threads and after a fork.

    Raises `MissingExtra` if redis-py is not installed.
    """

    def __init__(
        self, redis: Origin, async_redis: Origin | None, prefix: str, clock: Callable[[], float] = time.time
    ) -> None:
        extras.require(CLAUSE, "redis")
        from resty_django.redis import ClientSource, keys

        self.prefix: Final = prefix
        self.clock: Final = clock
        self.source: Final = ClientSource(redis, async_redis)
        self._script: Final = _script(prefix)
        self._keys: Final = (prefix,) if re.search("{.+}", prefix) else ()
        self._command: Final = keys.command
        self._acommand: Final = keys.acommand

    def call(self, command: str, *args: object) -> Any:
        """Call one command of the core with the current time; return the server's reply, with strings as bytes.

        Raises `QlessError`, and `StoreDown` and `StoreError` from `resty_django.redis`.
        """
        try:
            return self._script(self.source.ready or self.source.sync(), self._keys, self._arguments((command, *args)))
        except StoreError as error:
            raise self._translated(error) from error.__cause__

    async def acall(self, command: str, *args: object) -> Any:
        """Do the same for asyncio."""
        try:
            return await self._script.run(self.source.asynchronous(), self._keys, self._arguments((command, *args)))
        except StoreError as error:
            raise self._translated(error) from error.__cause__

    def call_many(self, requests: Sequence[Request]) -> list[Any]:
        """Send many commands together; return their replies. The reply to a failed command is its error.

        Raises `StoreDown` if the server does not answer, and `InvalidArgument` if an argument cannot be sent.
        """
        try:
            replies = self._script.many(self.source.sync(), self._keys, [*map(self._arguments, requests)])
        except StoreError as error:
            raise self._translated(error) from error.__cause__
        for number, reply in enumerate(replies):
            if isinstance(reply, StoreError):
                replies[number] = self._translated(reply)
        return replies

    async def acall_many(self, requests: Sequence[Request]) -> list[Any]:
        """Do the same for asyncio."""
        client = self.source.asynchronous()
        try:
            replies = await self._script.run_many(client, self._keys, [*map(self._arguments, requests)])
        except StoreError as error:
            raise self._translated(error) from error.__cause__
        return [self._translated(reply) if isinstance(reply, StoreError) else reply for reply in replies]

    def run(self, steps: Steps[R]) -> R:
        """Take all steps and return the generator's return value."""
        return sansio.run(steps, self.perform)

    async def arun(self, steps: Steps[R]) -> R:
        """Do the same for asyncio."""
        return await sansio.arun(steps, self.aperform)

    def perform(self, request: Any) -> Any:
        """Take one step that `Steps` yielded; return its reply."""
        if isinstance(request, list):
            return self.call_many(request)
        if isinstance(request, RedisCommand):
            return self._command(self.source.sync(), request[0], *map(as_bytes, request[1:]))
        if isinstance(request, tuple):
            return self.call(*request)
        reply = request()
        if isinstance(reply, Coroutine) and asyncio._get_running_loop() is not None:
            reply.close()
            raise InvalidArgument("A hook is a coroutine function. Call the async method, or add a plain function.")
        return completed(reply)

    async def aperform(self, request: Any) -> Any:
        """Do the same for asyncio."""
        if isinstance(request, list):
            return await self.acall_many(request)
        if isinstance(request, RedisCommand):
            return await self._acommand(self.source.asynchronous(), request[0], *map(as_bytes, request[1:]))
        if isinstance(request, tuple):
            return await self.acall(*request)
        if isinstance(request, SyncCall):
            return await sync_to_async(request.function)()
        return await acompleted(request())

    def _arguments(self, request: Request) -> tuple[Any, ...]:
        """Return the arguments for the core, including the time.

        Strings become bytes here: redis-py takes longer for that, and raises for some strings.
        """
        now = repr(self.clock()).encode()
        arguments: list[Any] = [request[0], now, *request[1:]]
        try:
            for number, argument in enumerate(arguments):
                if type(argument) is str:
                    arguments[number] = argument.encode()
                elif type(argument) is int:
                    arguments[number] = b"%d" % argument
        except UnicodeEncodeError:
            return (*map(as_bytes, arguments),)
        return (*arguments,)

    def _translated(self, error: StoreError) -> Exception:
        """Return the `QlessError` for an error of the core; for other errors, one that says how to fix them."""
        message = message_of(str(error))
        if message is not None:
            return error_of(message)
        if type(error.__cause__).__name__ == "DataError":  # what redis-py cannot send
            return InvalidArgument(str(error))
        # what a server returns for a script whose keys are, or may be, on another node of the cluster
        if not re.search("non local key|undeclared keys were accessed during rehashing", str(error)):
            return error
        if self._keys:
            return StoreError("The slot of the jobs is moving to another node of the cluster. Repeat the call.")
        return ImproperlyConfigured(
            "The job queue is on a cluster, but its prefix has no hash tag. "
            'Use a prefix such as "{jobs}ql:", so that all keys are in one slot.'
        )


class HasClient(Protocol):
    """An object whose methods call the core."""

    @property
    def client(self) -> ScriptClient: ...


S = TypeVar("S", bound=HasClient)


def sync_and_async(
    steps: Callable[Concatenate[S, P], Steps[R]],
) -> tuple[Callable[Concatenate[S, P], R], Callable[Concatenate[S, P], Coroutine[Any, Any, R]]]:
    """Return a method and its asyncio counterpart, made from a generator method `_name`."""

    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return sansio.run(steps(self, *args, **kwargs), self.client.perform)

    async def acall(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await sansio.arun(steps(self, *args, **kwargs), self.client.aperform)

    for method, prefix in ((call, ""), (acall, "a")):
        functools.update_wrapper(method, steps)
        method.__name__ = prefix + steps.__name__.removeprefix("_")
        method.__qualname__ = f"{steps.__qualname__.rpartition('.')[0]}.{method.__name__}"
    return call, acall


@functools.cache
def _script(prefix: str) -> LuaScript:
    from resty_django.redis import LuaScript

    return LuaScript(source(prefix))
