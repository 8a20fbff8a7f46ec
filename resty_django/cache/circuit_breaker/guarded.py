"""A shared dictionary behind the circuit breaker of its store."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from typing import Any, cast

from resty_django.redis.errors import StoreDown
from resty_django.shdict import NoMemory, SharedDict, Unavailable

from .breaker import StoreBreaker, breaker_of

Call = Callable[..., Any]
AsyncCall = Callable[..., Awaitable[Any]]


class Kind(enum.Enum):
    """Kinds of calls, which a store may refuse separately."""

    READ = "read"
    STORE = "store"
    DELETE = "delete"


class GuardedDict:
    """The calls of a shared dictionary that caches make. While the store is down, they raise `Unavailable` at once.

    A full Redis counts as down for writes, a full LMDB dictionary does not: it evicts, and other values may fit.
    """

    def __init__(self, dictionary: SharedDict) -> None:
        self.dictionary = dictionary
        self.name = dictionary.name
        self.engine = dictionary.engine
        self.breaker = breaker_of(dictionary)
        self._faults: tuple[type[Exception], ...] = (Unavailable,)
        if dictionary.engine == "redis":
            self._faults = (Unavailable, NoMemory)
        self.get, self.aget = self._reading()

    def _reading(self) -> tuple[Call, AsyncCall]:
        """Return `get` and `aget`. As closures they are the fastest: each hit of L2 calls one of them."""
        dictionary, breaker = self.dictionary, self.breaker

        def get(key: object) -> Any:
            if breaker.down:
                return self.guard(dictionary.get, (key,), Kind.READ)
            try:
                return dictionary.get(key)
            except Unavailable as error:
                if has_lost_connection(error):
                    return self.guard(dictionary.get, (key,), Kind.READ)
                breaker.fail(error, reading=True)
                raise

        async def aget(key: object) -> Any:
            if breaker.down:
                return await self.aguard(dictionary.aget, (key,), Kind.READ)
            try:
                return await dictionary.aget(key)
            except Unavailable as error:
                if has_lost_connection(error):
                    return await self.aguard(dictionary.aget, (key,), Kind.READ)
                breaker.fail(error, reading=True)
                raise

        return get, aget

    def __repr__(self) -> str:
        return repr(self.dictionary)

    def __getattr__(self, name: str) -> Any:
        """Return any other call of the dictionary, which is not guarded."""
        return getattr(self.dictionary, name)

    def guard(self, call: Call, args: tuple[Any, ...], kind: Kind, repeat: bool = False) -> Any:
        """Make a call, unless its kind is bypassed. `repeat`: make it twice if the connection was closed before it.

        That happens to each connection of a pool after a restart of the server.
        """
        breaker = self.breaker
        tries = breaker.down and self._is_affected(kind)
        if tries and breaker.is_open():
            raise breaker.bypassed()
        try:
            result = call(*args)
        except self._faults as error:
            if repeat and not tries and has_lost_connection(error):
                return self.guard(call, args, kind)
            breaker.fail(error, kind is Kind.READ)
            raise
        if tries:
            breaker.recover()
        return result

    async def aguard(self, call: AsyncCall, args: tuple[Any, ...], kind: Kind, repeat: bool = False) -> Any:
        """Do the same as `guard`."""
        breaker = self.breaker
        tries = breaker.down and self._is_affected(kind)
        if tries and breaker.is_open():
            raise breaker.bypassed()
        try:
            result = await call(*args)
        except self._faults as error:
            if repeat and not tries and has_lost_connection(error):
                return await self.aguard(call, args, kind)
            breaker.fail(error, kind is Kind.READ)
            raise
        if tries:
            breaker.recover()
        return result

    def _is_affected(self, kind: Kind) -> bool:
        breaker = self.breaker
        return breaker.reads_down or kind is Kind.STORE or (kind is Kind.DELETE and not breaker.full)

    def get_stale(self, *args: Any) -> Any:
        return self.guard(self.dictionary.get_stale, args, Kind.READ, repeat=True)

    async def aget_stale(self, *args: Any) -> Any:
        return await self.aguard(self.dictionary.aget_stale, args, Kind.READ, repeat=True)

    def ttl(self, *args: Any) -> Any:
        return self.guard(self.dictionary.ttl, args, Kind.READ, repeat=True)

    async def attl(self, *args: Any) -> Any:
        return await self.aguard(self.dictionary.attl, args, Kind.READ, repeat=True)

    def add(self, *args: Any) -> Any:
        return self.guard(self.dictionary.add, args, Kind.STORE)

    async def aadd(self, *args: Any) -> Any:
        return await self.aguard(self.dictionary.aadd, args, Kind.STORE)

    def set(self, *args: Any) -> Any:
        if self.breaker.down:
            return self.guard(self.dictionary.set, args, Kind.STORE)
        try:
            return self.dictionary.set(*args)
        except self._faults as error:
            if has_lost_connection(error):
                return self.guard(self.dictionary.set, args, Kind.STORE)
            self.breaker.fail(error, reading=False)
            raise

    async def aset(self, *args: Any) -> Any:
        return await self.aguard(self.dictionary.aset, args, Kind.STORE, repeat=True)

    def delete(self, *args: Any) -> Any:
        return self.guard(self.dictionary.delete, args, Kind.DELETE, repeat=True)

    async def adelete(self, *args: Any) -> Any:
        return await self.aguard(self.dictionary.adelete, args, Kind.DELETE, repeat=True)

    def delete_if(self, *args: Any) -> Any:
        return self.guard(self.dictionary.delete_if, args, Kind.DELETE)

    async def adelete_if(self, *args: Any) -> Any:
        return await self.aguard(self.dictionary.adelete_if, args, Kind.DELETE)

    def update(self, *args: Any) -> Any:
        return self.guard(self.dictionary.update, args, Kind.STORE)

    async def aupdate(self, *args: Any) -> Any:
        return await self.aguard(self.dictionary.aupdate, args, Kind.STORE)

    def incr(self, *args: Any) -> Any:
        return self.guard(self.dictionary.incr, args, Kind.STORE)

    async def aincr(self, *args: Any) -> Any:
        return await self.aguard(self.dictionary.aincr, args, Kind.STORE)

    def get_many(self, *args: Any) -> Any:
        return self.guard(self.dictionary.get_many, args, Kind.READ, repeat=True)

    async def aget_many(self, *args: Any) -> Any:
        return await self.aguard(self.dictionary.aget_many, args, Kind.READ, repeat=True)

    def set_many(self, *args: Any) -> Any:
        return self.guard(self.dictionary.set_many, args, Kind.STORE, repeat=True)

    async def aset_many(self, *args: Any) -> Any:
        return await self.aguard(self.dictionary.aset_many, args, Kind.STORE, repeat=True)

    def delete_many(self, *args: Any) -> Any:
        return self.guard(self.dictionary.delete_many, args, Kind.DELETE, repeat=True)

    async def adelete_many(self, *args: Any) -> Any:
        return await self.aguard(self.dictionary.adelete_many, args, Kind.DELETE, repeat=True)

    def flush_all(self, *args: Any) -> None:
        self.guard(self.dictionary.flush_all, args, Kind.DELETE)

    async def aflush_all(self, *args: Any) -> None:
        await self.aguard(self.dictionary.aflush_all, args, Kind.DELETE)

    def flush_expired(self) -> Any:
        return self.guard(self.dictionary.flush_expired, (), Kind.DELETE)

    async def aflush_expired(self) -> Any:
        return await self.aguard(self.dictionary.aflush_expired, (), Kind.DELETE)


def has_lost_connection(error: Exception) -> bool:
    """Whether a call failed at once, for example because the server had closed the connection before."""
    cause = error.__cause__
    return isinstance(cause, StoreDown) and not cause.timed_out


def guarded(dictionary: SharedDict) -> SharedDict:
    """Return the dictionary behind the breaker of its store. Calls that `GuardedDict` does not list are not guarded."""
    return cast("SharedDict", GuardedDict(dictionary))


def breaker_behind(dictionary: SharedDict) -> StoreBreaker:
    """Return the breaker of a guarded dictionary."""
    return cast("GuardedDict", dictionary).breaker
