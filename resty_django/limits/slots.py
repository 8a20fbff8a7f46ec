"""A place under a limit for plain code: outgoing calls, jobs, commands.

    with limiter.slot("api.example.org", wait=5):       # `async with` waits without blocking
        fetch()

    limiter.acquire("api.example.org", wait=5)          # the same where nothing has to be given back
    await limiter.aacquire("api.example.org", wait=5)

What a limiter wants delayed sleeps here, and what it refuses tries again, both together for at most `wait` seconds;
else `Limited` is raised. A slot of a concurrency limiter is given back at the end of the block, with the time it took.
"""

from __future__ import annotations

import asyncio
import logging
import time
from math import inf
from types import TracebackType
from typing import Any, Final

from .decision import Decision
from .errors import Limited, LimitError

log = logging.getLogger("resty_django.limits")

SHORTEST: Final = 0.002
LONGEST: Final = 0.25
"""Seconds between two tries for a slot that somebody else has to give back: doubled each time, within these."""


class _Patience:
    """How long a call may still wait."""

    def __init__(self, limiter: Any, wait: float | None) -> None:
        if wait is not None and not wait >= 0:
            raise ValueError(f"wait for a limit is at least 0 or None, not {wait!r}.")
        self._end = inf if wait is None else time.monotonic() + wait
        self._polls = hasattr(limiter, "leaving")
        self._pause = SHORTEST

    def bears(self, decision: Decision) -> bool:
        """Whether the delay of a decision is over in time."""
        return decision.delay <= self._left()

    def pause(self, decision: Decision) -> float:
        """Seconds until the next try after a refusal. Raises `Limited`, where it would come too late."""
        left = self._left()
        pause = decision.retry_after
        if self._polls:
            pause, self._pause = min(self._pause, left), min(self._pause * 2, LONGEST)
        if pause > left or left <= 0:
            raise Limited(decision)
        return max(pause, SHORTEST)

    def _left(self) -> float:
        return max(0.0, self._end - time.monotonic())


def acquire(limiter: Any, key: object, wait: float | None = 0, cost: int = 1) -> Decision:
    """Take a place under a limit, waiting for it for `wait` seconds at most (None: as long as it takes).

    Raises `Limited`. What was taken of a concurrency limiter goes back by `limiter.leaving(key, token=decision.token)`.
    """
    patience = _Patience(limiter, wait)
    while True:
        decision: Decision = limiter.hit(key, cost)
        if decision.allowed:
            break
        time.sleep(patience.pause(decision))
    if not patience.bears(decision):
        _give_back(limiter, key, cost, decision)
        raise _too_long(decision)
    if decision.delay:
        try:
            time.sleep(decision.delay)
        except BaseException:
            _give_back(limiter, key, cost, decision)
            raise
    return decision


async def aacquire(limiter: Any, key: object, wait: float | None = 0, cost: int = 1) -> Decision:
    """As `acquire`, without blocking the event loop."""
    patience = _Patience(limiter, wait)
    while True:
        decision = await _ahit(limiter, key, cost)
        if decision.allowed:
            break
        await asyncio.sleep(patience.pause(decision))
    if not patience.bears(decision):
        await _agive_back(limiter, key, cost, decision)
        raise _too_long(decision)
    if decision.delay:
        try:
            await asyncio.sleep(decision.delay)
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(_agive_back(limiter, key, cost, decision)))
            raise
    return decision


class Slot:
    """A place for a block of code, by `with` or `async with`, which give the decision. For one block at a time."""

    def __init__(self, limiter: Any, key: object, wait: float | None = 0, cost: int = 1) -> None:
        self._limiter = limiter
        self._key = key
        self._wait = wait
        self._cost = cost
        self._decision = Decision(False)
        self._began = 0.0

    def __enter__(self) -> Decision:
        return self._enter(acquire(self._limiter, self._key, self._wait, self._cost))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if _held(self._limiter, self._decision):
            try:
                self._limiter.leaving(self._key, time.monotonic() - self._began, self._decision.token, self._cost)
            except LimitError as fault:
                log.warning("a slot of %s could not be given back: %s", self._key, fault)

    async def __aenter__(self) -> Decision:
        return self._enter(await aacquire(self._limiter, self._key, self._wait, self._cost))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if _held(self._limiter, self._decision):
            await asyncio.shield(asyncio.ensure_future(self._aleave()))

    def _enter(self, decision: Decision) -> Decision:
        self._decision = decision
        self._began = time.monotonic()
        return decision

    async def _aleave(self) -> None:
        try:
            await self._limiter.aleaving(self._key, time.monotonic() - self._began, self._decision.token, self._cost)
        except LimitError as fault:
            log.warning("a slot of %s could not be given back: %s", self._key, fault)


def _held(limiter: Any, decision: Decision) -> bool:
    """Whether the decision took something that has to be given back after use."""
    return hasattr(limiter, "leaving") and bool(decision.token or not decision.failed)


async def _ahit(limiter: Any, key: object, cost: int) -> Decision:
    """A decision that, where the task is cancelled meanwhile, is taken back."""
    asking: asyncio.Future[Decision] = asyncio.ensure_future(limiter.ahit(key, cost))
    try:
        return await asyncio.shield(asking)
    except asyncio.CancelledError:
        await asyncio.shield(asyncio.ensure_future(_undo(asking, limiter, key, cost)))
        raise


async def _undo(asking: asyncio.Future[Decision], limiter: Any, key: object, cost: int) -> None:
    await asyncio.wait([asking])
    if not asking.cancelled() and asking.exception() is None and asking.result().allowed:
        await _agive_back(limiter, key, cost, asking.result())


def _give_back(limiter: Any, key: object, cost: int, decision: Decision) -> None:
    try:
        if _held(limiter, decision):
            limiter.leaving(key, None, decision.token, cost)
        elif not decision.failed:
            limiter.uncommit(key, cost)
    except LimitError as fault:
        log.warning("a place under the limit of %s could not be given back: %s", key, fault)


async def _agive_back(limiter: Any, key: object, cost: int, decision: Decision) -> None:
    try:
        if _held(limiter, decision):
            await limiter.aleaving(key, None, decision.token, cost)
        elif not decision.failed:
            await limiter.auncommit(key, cost)
    except LimitError as fault:
        log.warning("a place under the limit of %s could not be given back: %s", key, fault)


def _too_long(decision: Decision) -> Limited:
    """Refused here, because it would have had to wait longer than the caller wants."""
    return Limited(decision._replace(allowed=False, delay=0.0, state=None, retry_after=decision.delay))


__all__ = ["Slot", "aacquire", "acquire"]
