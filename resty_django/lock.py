"""Locks that one process of many holds at a time, in a shared dictionary.

    from resty_django.lock import Lock, lock, locked

    with lock("report:7"):                      # waits up to 5 s, frees itself after 30 s
        build_report(7)

    @locked("report:{id}", exptime=120)
    def build_report(id: int) -> None: ...

A lock is a key with a random token of its owner as the value and a time to live. To free or to extend it takes that
token, so a holder that overran its time cannot touch the lock of its successor. Locks are neither fair nor
re-entrant. What was read before the lock was waited for may be outdated: look again once it is held.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import random
import secrets
import string
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar, cast

from resty_django.shdict import Outcome, SharedDict, SharedDictError, shdicts
from resty_django.text import logger

__all__ = [  # the one module that is public as a whole, as the packages are
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

SHORTEST_STEP: Final = 0.001
"""Seconds: no pause but the first and the last is shorter."""

P = ParamSpec("P")
R = TypeVar("R")


class LockError(Exception):
    """The base of all errors of locks."""


class LockTimeout(LockError, TimeoutError):
    """Somebody else held the lock for all the time that the call may wait."""


class AlreadyLocked(LockError, RuntimeError):
    """This object holds a lock, or is about to: one object holds one lock."""


class NotLocked(LockError, RuntimeError):
    """This object holds no lock."""


class LockLost(LockError, RuntimeError):
    """The lock was not there any more: its time was over, and somebody else may hold it."""


def pauses(step: float, ratio: float, max_step: float, timeout: float, jitter: float = 0.0) -> Iterator[float]:
    """Yield the pauses between two tries, in seconds: growing by `ratio`, together exactly `timeout`.

    `jitter`: the share by which each is shortened at most, at random.
    """
    remaining = timeout
    pause = step
    while remaining > 0:
        shortened = min(pause * (1 - jitter * random.random()) if jitter else pause, remaining)  # noqa: S311 (no secret)
        yield shortened
        remaining -= shortened
        pause = min(max(SHORTEST_STEP, pause * ratio), max_step)


class _Claim(NamedTuple):
    dictionary: SharedDict
    key: object
    token: bytes
    pid: int


class Lock:
    """One holder of one lock at a time; use one object in each thread or task.

    `dictionary`: a shared dictionary or its name. `exptime`: seconds after which the lock frees itself. `timeout`: the
    longest wait, at most `exptime`; 0 is not to wait. Tries are `step` seconds apart at first, then `ratio` times
    longer each, up to `max_step`. `jitter`: the share of up to which pauses are shortened at random, so that many who
    wait for one lock do not try at the same moments.

    Each call may raise `resty_django.shdict.Unavailable` when the dictionary cannot be used.
    """

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
        for name, value in {"exptime": exptime, "step": step, "ratio": ratio, "max_step": max_step}.items():
            if not value > 0:
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
        self._held: _Claim | None = None

    def __repr__(self) -> str:
        return f"<Lock of {self._held.key!r}>" if self._held is not None and self.locked else "<Lock of nothing>"

    def __del__(self) -> None:
        held = getattr(self, "_held", None)
        if held is not None and held.pid == os.getpid():
            with contextlib.suppress(Exception):
                held.dictionary.delete_if(held.key, held.token)

    @property
    def locked(self) -> bool:
        """Whether this object took a lock and did not release it. Its time may be over nevertheless."""
        return self._held is not None and self._held.pid == os.getpid()

    def on(self, key: object) -> HeldLock:
        """Return a context manager, sync and async, that holds the lock of `key`; it yields the seconds waited."""
        return HeldLock(self, key)

    # --- sync ---

    def acquire(self, key: object) -> float:
        """Take the lock of `key`; returns the seconds waited. Raises `LockTimeout`, `AlreadyLocked`."""
        held = self._claim(key)
        waited = 0.0
        try:
            if held.dictionary.add(key, held.token, self.exptime) is not Outcome.EXISTS:
                return waited
            for pause in pauses(self.step, self.ratio, self.max_step, self.timeout, self.jitter):
                time.sleep(pause)
                waited += pause
                if held.dictionary.add(key, held.token, self.exptime):
                    return waited
        except BaseException:
            self._held = None
            raise
        raise self._timed_out(key)

    def release(self) -> None:
        """Free the lock. Raises `NotLocked`, or `LockLost` when its time was over before."""
        held = self._give_up()
        if not held.dictionary.delete_if(held.key, held.token):
            raise self._lost(held)

    def expire(self, t: float | None = None) -> None:
        """Let the lock live `t` seconds from now (default: `exptime`). Raises `NotLocked`, `LockLost`."""
        held = self._require_held()
        if not held.dictionary.expire_if(held.key, held.token, self.exptime if t is None else t):
            raise self._lost(held)

    # --- the same for asyncio ---

    async def aacquire(self, key: object) -> float:
        """Do the same as `acquire`, without blocking the event loop."""
        held = self._claim(key)
        waited = 0.0
        try:
            if await held.dictionary.aadd(key, held.token, self.exptime) is not Outcome.EXISTS:
                return waited
            for pause in pauses(self.step, self.ratio, self.max_step, self.timeout, self.jitter):
                await asyncio.sleep(pause)
                waited += pause
                if await held.dictionary.aadd(key, held.token, self.exptime):
                    return waited
        except asyncio.CancelledError:
            self._held = None
            with contextlib.suppress(SharedDictError):  # the server may have done what nobody waits for any more
                await held.dictionary.adelete_if(key, held.token)
            raise
        except BaseException:
            self._held = None
            raise
        raise self._timed_out(key)

    async def arelease(self) -> None:
        """Do the same as `release`."""
        held = self._give_up()
        if not await held.dictionary.adelete_if(held.key, held.token):
            raise self._lost(held)

    async def aexpire(self, t: float | None = None) -> None:
        """Do the same as `expire`."""
        held = self._require_held()
        if not await held.dictionary.aexpire_if(held.key, held.token, self.exptime if t is None else t):
            raise self._lost(held)

    # --- what both share ---

    def _claim(self, key: object) -> _Claim:
        """Mark this object as taken, by a lock that is still to be acquired."""
        if self._held is not None and self.locked:
            raise AlreadyLocked(f"locked: this object holds the lock {self._held.key!r}. Use one object for each lock.")
        dictionary = shdicts[self.dictionary] if isinstance(self.dictionary, str) else self.dictionary
        self._held = _Claim(dictionary, key, secrets.token_bytes(16), os.getpid())
        return self._held

    def _timed_out(self, key: object) -> LockTimeout:
        self._held = None
        return LockTimeout(f"timeout: the lock {key!r} was not free within {self.timeout} s.")

    def _require_held(self) -> _Claim:
        if self._held is None or not self.locked:  # a child of a fork does not hold what its parent holds
            raise NotLocked("unlocked: this object holds no lock.")
        return self._held

    def _give_up(self) -> _Claim:
        held = self._require_held()
        self._held = None
        return held

    @staticmethod
    def _lost(held: _Claim) -> LockLost:
        return LockLost(
            f"not found: the lock {held.key!r} was not there any more. Give it a longer exptime, or extend it."
        )


@dataclass(slots=True)
class HeldLock:
    """Holds a lock for a block of code.

    The lock is released however the block ends. A lock that was lost meanwhile, or that cannot be released because the
    dictionary does not answer, is a warning in the log and no error: the work is done by then.
    """

    lock: Lock
    key: object

    def __enter__(self) -> float:
        return self.lock.acquire(self.key)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            self.lock.release()
        except (LockError, SharedDictError) as fault:
            log.warning("a lock could not be released: %s", fault)

    async def __aenter__(self) -> float:
        return await self.lock.aacquire(self.key)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        try:
            await self.lock.arelease()
        except (LockError, SharedDictError) as fault:
            log.warning("a lock could not be released: %s", fault)


def lock(key: object, dictionary: SharedDict | str = "default", **options: float) -> HeldLock:
    """Return a context manager, `with` or `async with`, that holds the lock of `key`. Takes the options of `Lock`."""
    return Lock(dictionary, **options).on(key)


def locked(
    key: str | Callable[..., object], dictionary: SharedDict | str = "default", **options: float
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator: each call of the function, sync or async, holds a lock. Takes the options of `Lock`.

    `key` is a template whose fields are names of the function's arguments ("report:{id}"), or a callable that gets the
    arguments of the call and returns the key.
    """
    Lock(dictionary, **options)  # wrong options are to be told here and not at the first call

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        key_of = key if callable(key) else _template(key, inspect.signature(function))

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
                async with lock(key_of(*args, **kwargs), dictionary, **options):
                    return await function(*args, **kwargs)

            return cast("Callable[P, R]", awaited)

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            with lock(key_of(*args, **kwargs), dictionary, **options):
                return function(*args, **kwargs)

        return called

    return decorate


def _template(text: str, signature: inspect.Signature) -> Callable[..., str]:
    """Return a function from the arguments of a call to the key. Fields are plain names: `{id}`, not `{user.id}` nor
    `{id!r}` nor `{id:05d}`."""
    parts = list(string.Formatter().parse(text))
    for _, field, spec, conversion in parts:
        if field is not None and (spec or conversion or field not in signature.parameters):
            raise ValueError(
                f"The key {text!r} of a lock has the field {field!r}; a field is the plain name of an argument, "
                f"one of {', '.join(signature.parameters) or 'none'}. Give a function for anything else."
            )

    def key_of(*args: Any, **kwargs: Any) -> str:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return "".join(
            literal + ("" if field is None else str(bound.arguments[field])) for literal, field, _, _ in parts
        )

    return key_of
