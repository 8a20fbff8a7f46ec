"""Locks in a shared dictionary: at most one of many processes holds a lock at a time.

    from resty_django.lock import Lock, lock, locked

    with lock("report:7"):                      # waits up to 5 s, expires after 30 s
        build_report(7)

    @locked("report:{id}", exptime=120)
    def build_report(id: int) -> None: ...

A lock is a key with a time to live. Its value is a random token that only the holder knows. The token is required to
release or extend the lock, so a holder whose lock expired cannot affect the next holder's lock. Locks are neither fair
nor re-entrant. Data that was read before the lock was acquired may be outdated: read it again while holding the lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import random
import string
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

from resty_django.callables import is_async, plain_function, plain_value
from resty_django.shdict import SharedDict, SharedDictError, StoreOutcome, shdicts
from resty_django.text import logger

__all__ = [  # this whole module is public, as the packages are
    "AlreadyLocked",
    "Lock",
    "LockError",
    "LockLost",
    "LockTimeout",
    "NotLocked",
    "lock",
    "locked",
]

log = logger("resty_django.lock")

P = ParamSpec("P")
R = TypeVar("R")


class LockError(Exception):
    """Base class of all lock errors."""


class LockTimeout(LockError, TimeoutError):
    """The lock was not free within the timeout."""


class AlreadyLocked(LockError, RuntimeError):
    """This object already holds a lock or is acquiring one; an object can hold only one lock at a time."""


class NotLocked(LockError, RuntimeError):
    """This object does not hold a lock."""


class LockLost(LockError, RuntimeError):
    """The lock expired, and another process may hold it now."""


def pauses(step: float, ratio: float, max_step: float, timeout: float, jitter: float = 0.0) -> Iterator[float]:
    """Yield the pauses between tries in seconds. They grow by `ratio` and add up to exactly `timeout`.

    All but the first and the last are at least 1 ms.

    `jitter`: the maximum share (0 to 1) by which each pause is randomly shortened.
    """
    remaining = timeout
    pause = step
    while remaining > 0:
        shortened = min(pause * (1 - jitter * random.random()) if jitter else pause, remaining)  # noqa: S311 (no secret)
        yield shortened
        remaining -= shortened
        pause = min(max(0.001, pause * ratio), max_step)


class _Claim(NamedTuple):
    dictionary: SharedDict
    key: object
    token: bytes
    pid: int


class Lock:
    """The holder of one lock at a time. Use a separate object in each thread or task.

    `dictionary`: a shared dictionary or its name. `exptime`: seconds until the lock expires. `timeout`: maximum wait in
    seconds, at most `exptime`; 0: do not wait. The first pause between tries is `step` seconds; each following pause is
    `ratio` times longer, up to `max_step`. `jitter`: the maximum share (0 to 1) by which pauses are randomly shortened,
    so that clients that wait for the same lock do not all retry at the same moment.

    Each call may raise `resty_django.shdict.Unavailable` if the dictionary cannot be used.
    """

    _held: _Claim | None = None

    def __init__(
        self,
        dictionary: SharedDict | str = "default",
        *,
        exptime: float = 30,
        timeout: float = 5,
        step: float = 0.001,
        ratio: float = 2,
        max_step: float = 0.5,
        jitter: float = 0.0,
    ) -> None:
        if not (exptime > 0 and step > 0 and ratio > 0 and max_step > 0):
            options = {"exptime": exptime, "step": step, "ratio": ratio, "max_step": max_step}
            name, value = next((name, value) for name, value in options.items() if not value > 0)
            raise ValueError(f"{name} of a lock must be greater than 0, not {value!r}.")
        if not timeout >= 0:
            raise ValueError(f"timeout of a lock must be at least 0, not {timeout!r}.")
        if not 0 <= jitter <= 1:
            raise ValueError(f"jitter of a lock must be from 0 to 1, not {jitter!r}.")
        self.dictionary = dictionary
        self.exptime = exptime
        self.timeout = min(timeout, exptime)
        self.step = step
        self.ratio = ratio
        self.max_step = max_step
        self.jitter = jitter

    def __repr__(self) -> str:
        return f"<Lock of {self._held.key!r}>" if self._held is not None and self.locked else "<Lock, free>"

    def __del__(self) -> None:
        held = self._held
        if held is not None and held.pid == os.getpid():
            with contextlib.suppress(Exception):
                held.dictionary.delete_if(held.key, held.token)

    @property
    def locked(self) -> bool:
        """Whether this object acquired a lock and has not released it. The lock may have expired."""
        return self._held is not None and self._held.pid == os.getpid()

    def on(self, key: object) -> HeldLock:
        """Return a context manager, sync and async, that holds the lock for `key`. It yields the seconds waited."""
        return HeldLock(self, key)

    # --- sync ---

    def acquire(self, key: object) -> float:
        """Acquire the lock for `key` and return the seconds waited. Raise `LockTimeout` or `AlreadyLocked`."""
        held = self._claim(key)
        waited = 0.0
        try:
            if held.dictionary.add(key, held.token, self.exptime) is not StoreOutcome.EXISTS:
                return waited
            for pause in pauses(self.step, self.ratio, self.max_step, self.timeout, self.jitter):
                time.sleep(pause)
                waited += pause
                if held.dictionary.add(key, held.token, self.exptime):
                    return waited
        except SharedDictError as error:
            self._fail(held, error)
            raise
        except BaseException:
            self._held = None
            raise
        raise self._timed_out(key)

    def release(self) -> None:
        """Release the lock. Raise `NotLocked`, or `LockLost` if it had expired."""
        held = self._require_held()
        self._held = None
        try:
            if not held.dictionary.delete_if(held.key, held.token):
                raise self._lost(held)
        except SharedDictError as error:
            self._fail(held, error)
            raise

    def expire(self, t: float | None = None) -> None:
        """Make the lock expire `t` seconds from now (default: `exptime`). Raise `NotLocked` or `LockLost`."""
        held = self._require_held()
        if not held.dictionary.expire_if(held.key, held.token, self.exptime if t is None else t):
            raise self._lost(held)

    # --- the same for asyncio ---

    async def aacquire(self, key: object) -> float:
        """Do the same as `acquire`, without blocking the event loop."""
        held = self._claim(key)
        waited = 0.0
        try:
            if await held.dictionary.aadd(key, held.token, self.exptime) is not StoreOutcome.EXISTS:
                return waited
            for pause in pauses(self.step, self.ratio, self.max_step, self.timeout, self.jitter):
                await asyncio.sleep(pause)
                waited += pause
                if await held.dictionary.aadd(key, held.token, self.exptime):
                    return waited
        except asyncio.CancelledError:
            self._held = None
            with contextlib.suppress(SharedDictError):  # the server may have acquired the lock for the cancelled call
                await held.dictionary.adelete_if(key, held.token)
            raise
        except SharedDictError as error:
            self._fail(held, error)
            raise
        except BaseException:
            self._held = None
            raise
        raise self._timed_out(key)

    async def arelease(self) -> None:
        """Do the same as `release`."""
        held = self._require_held()
        self._held = None
        try:
            if not await held.dictionary.adelete_if(held.key, held.token):
                raise self._lost(held)
        except SharedDictError as error:
            self._fail(held, error)
            raise

    async def aexpire(self, t: float | None = None) -> None:
        """Do the same as `expire`."""
        held = self._require_held()
        if not await held.dictionary.aexpire_if(held.key, held.token, self.exptime if t is None else t):
            raise self._lost(held)

    # --- shared by both ---

    def _claim(self, key: object) -> _Claim:
        """Mark this object as in use, before the lock is acquired."""
        held, pid = self._held, os.getpid()
        if held is not None and held.pid == pid:
            raise AlreadyLocked(f"locked: this object holds the lock {held.key!r}. Use one object for each lock.")
        dictionary = shdicts[self.dictionary] if isinstance(self.dictionary, str) else self.dictionary
        self._held = claim = _Claim(dictionary, key, os.urandom(16), pid)
        return claim

    def _fail(self, held: _Claim, error: SharedDictError) -> None:
        """Forget the lock. The store may still hold it, because a server also executes calls that have timed out."""
        self._held = None
        held.dictionary.delete_later(held.key, held.token, error)

    def _timed_out(self, key: object) -> LockTimeout:
        self._held = None
        return LockTimeout(f"timeout: the lock {key!r} was not free within {self.timeout} s.")

    def _require_held(self) -> _Claim:
        held = self._held
        if held is None or held.pid != os.getpid():  # a forked child does not hold its parent's locks
            raise NotLocked("unlocked: this object does not hold a lock.")
        return held

    @staticmethod
    def _lost(held: _Claim) -> LockLost:
        return LockLost(
            f"not found: the lock {held.key!r} expired or was deleted. Set a longer exptime, or extend the lock."
        )


@dataclass(slots=True)
class HeldLock:
    """A context manager that holds a lock for a block of code.

    The lock is released when the block ends, even by an exception. If it expired in the meantime, or cannot be released
    because the dictionary is unavailable, a warning is logged and no error is raised: the work is already done.
    """

    lock: Lock
    key: object

    def __enter__(self) -> float:
        return self.lock.acquire(self.key)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            self.lock.release()
        except (LockError, SharedDictError) as fault:
            log.warning("A lock could not be released: %s", fault)

    async def __aenter__(self) -> float:
        return await self.lock.aacquire(self.key)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        try:
            await self.lock.arelease()
        except (LockError, SharedDictError) as fault:
            log.warning("A lock could not be released: %s", fault)


def lock(key: object, dictionary: SharedDict | str = "default", **options: float) -> HeldLock:
    """Return a context manager, `with` or `async with`, that holds the lock for `key`. Takes the options of `Lock`."""
    return Lock(dictionary, **options).on(key)


def locked(
    key: str | Callable[..., object], dictionary: SharedDict | str = "default", **options: float
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that holds a lock during each call of a sync or async function. Takes the options of `Lock`.

    For a generator function, sync or async, the lock is held from the first item until the iteration ends.
    `key` is a template whose fields are names of the function's arguments ("report:{id}"), or a callable that takes the
    arguments of the call and returns the key.
    """
    plain_function(key, "key of @locked()")
    Lock(dictionary, **options)  # report wrong options here, not at the first call

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        key_of = key if callable(key) else _template(key, inspect.signature(function))
        held: Callable[P, object]

        def lock_of(*args: P.args, **kwargs: P.kwargs) -> HeldLock:
            return lock(plain_value(key_of(*args, **kwargs), "key of @locked()"), dictionary, **options)

        if inspect.isasyncgenfunction(function):

            @functools.wraps(function)
            async def held(*args: P.args, **kwargs: P.kwargs) -> Any:
                async with lock_of(*args, **kwargs), aclosing(function(*args, **kwargs)) as items:
                    async for item in items:
                        yield item
        elif inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def held(*args: P.args, **kwargs: P.kwargs) -> Any:
                with lock_of(*args, **kwargs):
                    return (yield from function(*args, **kwargs))
        elif is_async(function):

            @functools.wraps(function)
            async def held(*args: P.args, **kwargs: P.kwargs) -> Any:
                async with lock_of(*args, **kwargs):
                    return await function(*args, **kwargs)
        else:

            @functools.wraps(function)
            def held(*args: P.args, **kwargs: P.kwargs) -> Any:
                with lock_of(*args, **kwargs):
                    return plain_value(function(*args, **kwargs), f"The function {function!r} of @locked()")

        return cast("Callable[P, R]", held)

    return decorate


def _template(text: str, signature: inspect.Signature) -> Callable[..., str]:
    """Return a function that builds the key from a call's arguments.

    Fields are plain names: `{id}`, not `{user.id}`, `{id!r}` or `{id:05d}`."""
    parts = list(string.Formatter().parse(text))
    for _, field, spec, conversion in parts:
        if field is not None and (spec or conversion or field not in signature.parameters):
            raise ValueError(
                f"The key {text!r} of a lock has the field {field!r}; a field must be the plain name of an "
                f"argument (here: {', '.join(signature.parameters) or 'none'}). Pass a function for other "
                "keys."
            )

    def key_of(*args: object, **kwargs: object) -> str:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return "".join(
            literal + ("" if field is None else str(bound.arguments[field])) for literal, field, _, _ in parts
        )

    return key_of
