"""A shared dictionary behind the circuit breaker of its store."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

from resty_django.redis.errors import StoreDown
from resty_django.shdict import NoMemory, SharedDict, Unavailable

from .breaker import breaker_of

Call = Callable[..., Any]
AsyncCall = Callable[..., Awaitable[Any]]


class Kind(enum.Enum):
    """Kinds of calls, which a store may refuse separately."""

    READ = "read"
    STORE = "store"
    DELETE = "delete"


def _guarded(name: str, kind: Kind, repeat: bool = False) -> tuple[Call, AsyncCall]:
    """Return the methods `name` and `a<name>` of a `GuardedDict`. `repeat`: make a call twice if the connection was
    closed before it, which happens to each connection of a pool after a restart of the server."""
    twin = f"a{name}"

    def call(self: GuardedDict, *args: object) -> Any:
        method = getattr(self.dictionary, name)
        if self.breaker.down and self._is_affected(kind):
            return self.guard(method, args, kind)
        try:
            return method(*args)
        except self._faults as error:
            if repeat and has_lost_connection(error):
                return self.guard(method, args, kind)
            self.breaker.fail(error, kind is Kind.READ)
            raise

    async def acall(self: GuardedDict, *args: object) -> Any:
        method = getattr(self.dictionary, twin)
        if self.breaker.down and self._is_affected(kind):
            return await self.aguard(method, args, kind)
        try:
            return await method(*args)
        except self._faults as error:
            if repeat and has_lost_connection(error):
                return await self.aguard(method, args, kind)
            self.breaker.fail(error, kind is Kind.READ)
            raise

    return call, acall


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

    _get, aget = _guarded("get", Kind.READ, repeat=True)
    get_stale, aget_stale = _guarded("get_stale", Kind.READ, repeat=True)
    ttl, attl = _guarded("ttl", Kind.READ, repeat=True)
    get_many, aget_many = _guarded("get_many", Kind.READ, repeat=True)
    add, aadd = _guarded("add", Kind.STORE)
    add_or_get, aadd_or_get = _guarded("add_or_get", Kind.STORE)
    set, aset = _guarded("set", Kind.STORE, repeat=True)
    set_many, aset_many = _guarded("set_many", Kind.STORE, repeat=True)
    update, aupdate = _guarded("update", Kind.STORE)
    incr, aincr = _guarded("incr", Kind.STORE)
    delete, adelete = _guarded("delete", Kind.DELETE, repeat=True)
    delete_if, adelete_if = _guarded("delete_if", Kind.DELETE)
    delete_many, adelete_many = _guarded("delete_many", Kind.DELETE, repeat=True)
    flush_all, aflush_all = _guarded("flush_all", Kind.DELETE)
    flush_expired, aflush_expired = _guarded("flush_expired", Kind.DELETE)

    def get(self, key: object) -> Any:
        """Return the value. Written out: together with `decode` of records, this makes a hit of L2 a tenth faster."""
        if self.breaker.down:
            return self._get(key)
        try:
            return self.dictionary.get(key)
        except self._faults as error:
            if has_lost_connection(error):
                return self.guard(self.dictionary.get, (key,), Kind.READ)
            self.breaker.fail(error, reading=True)
            raise

    def delete_later(self, key: object, value: object, error: Exception) -> None:
        """Have a lock deleted when the store answers, after a call that the server may carry out nevertheless."""
        if isinstance(error.__cause__, StoreDown):
            delete = partial(self.dictionary.delete_if, key, value)
            self.breaker.remember(error, (self.dictionary, key, value), delete, hold=False)

    def __repr__(self) -> str:
        return repr(self.dictionary)

    def __getattr__(self, name: str) -> Any:
        """Return any other call of the dictionary, which is not guarded."""
        return getattr(self.dictionary, name)

    def guard(self, call: Call, args: tuple[object, ...], kind: Kind) -> Any:
        """Make a call after a failure: raise at once if its kind is bypassed, or else find out whether the store can be
        used again."""
        breaker = self.breaker
        with breaker.trying(breaker.down and self._is_affected(kind), self._faults, kind is Kind.READ):
            return call(*args)

    async def aguard(self, call: AsyncCall, args: tuple[object, ...], kind: Kind) -> Any:
        """Do the same as `guard`."""
        breaker = self.breaker
        with breaker.trying(breaker.down and self._is_affected(kind), self._faults, kind is Kind.READ):
            return await call(*args)

    def _is_affected(self, kind: Kind) -> bool:
        breaker = self.breaker
        return breaker.reads_down or kind is Kind.STORE or (kind is Kind.DELETE and not breaker.full)


def has_lost_connection(error: Exception) -> bool:
    """Return whether a call failed immediately, for example because the server had closed the connection before."""
    cause = error.__cause__
    return isinstance(cause, StoreDown) and not cause.timed_out


def guarded(dictionary: SharedDict) -> SharedDict:
    """Return the dictionary behind the breaker of its store. Calls that `GuardedDict` does not list are not guarded."""
    return cast("SharedDict", GuardedDict(dictionary))
