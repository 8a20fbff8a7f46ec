"""Slots: limits for plain code such as outgoing calls, jobs and commands.

    with limiter.slot("api.example.org", wait=5):       # `async with` waits without blocking
        fetch()

    limiter.acquire("api.example.org", wait=5)          # the same without a block, for rate limits
    await limiter.aacquire("api.example.org", wait=5)

These calls sleep for the delay and retry after a refusal, for at most `wait` seconds in total; otherwise they raise
`Limited`. At most MAX_WAITING_CALLS calls of a process wait at a time; further ones raise `TooManyWaiting`, which is a
`Limited`. The slot of a concurrency limiter is released at the end of the block, with the latency of the block.
"""

from __future__ import annotations

import asyncio
import time
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, TypeGuard, cast

from resty_django.sansio import Step, Steps, arun, run
from resty_django.text import logger

from ..decision import Decision
from ..errors import Limited, LimitError
from .waiting import waiting_calls

if TYPE_CHECKING:
    from .concurrency import Concurrency

log = logger("resty_django.limits")

MIN_PAUSE_SECONDS: Final = 0.002
"""The minimum time between two attempts."""


class AnyLimiter(Protocol):
    """The calls of a limiter, or of several together, that slots need."""

    def check(self, cost: int) -> None: ...
    def hit(self, key: object, cost: int = 1) -> Decision: ...
    async def ahit(self, key: object, cost: int = 1) -> Decision: ...
    def uncommit(self, key: object, cost: int = 1) -> float | None: ...
    async def auncommit(self, key: object, cost: int = 1) -> float | None: ...


class _Deadline:
    """The remaining time for which a call may wait."""

    def __init__(self, limiter: AnyLimiter, wait: float | None, cost: int) -> None:
        if wait is not None and not wait >= 0:
            raise ValueError(f"wait for a limit must be at least 0, or None, not {wait!r}.")
        limiter.check(cost)
        self._end = inf if wait is None else time.monotonic() + wait
        self._polls = hasattr(limiter, "leaving")
        self._pause = MIN_PAUSE_SECONDS

    def allows(self, decision: Decision) -> bool:
        """Return whether the delay of a decision ends before the deadline."""
        return decision.delay <= self._remaining()

    def pause(self, decision: Decision) -> float:
        """Return the seconds until the next attempt after a refusal. Raise `Limited` if it would be too late."""
        remaining = self._remaining()
        pause = decision.retry_after
        if self._polls:
            pause, self._pause = min(self._pause, remaining), min(self._pause * 2, 0.25)
        if pause > remaining or remaining <= 0:
            raise Limited(decision)
        return max(pause, MIN_PAUSE_SECONDS)

    def _remaining(self) -> float:
        return max(0.0, self._end - time.monotonic())


def acquire(limiter: AnyLimiter, key: object, wait: float | None = 0, cost: int = 1) -> Decision:
    """Hit, and wait up to `wait` seconds until the request may continue (None: indefinitely).

    Raise `Limited`, or `CostTooHigh` if waiting cannot help. Release the slot of a concurrency limiter with
    `limiter.leaving(key, token=decision.token)`.
    """
    return run(_acquiring(limiter, key, wait, cost))


async def aacquire(limiter: AnyLimiter, key: object, wait: float | None = 0, cost: int = 1) -> Decision:
    """Run `acquire` without blocking the event loop."""
    return await arun(_acquiring(limiter, key, wait, cost))


def _acquiring(limiter: AnyLimiter, key: object, wait: float | None, cost: int) -> Steps[Decision]:
    deadline = _Deadline(limiter, wait, cost)
    with waiting_calls.wait() as waiting:
        while True:
            decision: Decision = yield Step(_hit, _ahit, (limiter, key, cost))
            if decision.allowed:
                break
            pause = deadline.pause(decision)
            if not waiting.enter():
                raise waiting.refusal(decision)
            yield Step(time.sleep, asyncio.sleep, (pause,))
        try:
            if not deadline.allows(decision):
                raise Limited(_refused(decision))
            if decision.delay:
                if not waiting.enter():
                    raise waiting.refusal(_refused(decision))
                yield Step(time.sleep, asyncio.sleep, (decision.delay,))
        except BaseException:
            yield Step(_give_back, _agive_back, (limiter, key, cost, decision))
            raise
    return decision


def _refused(decision: Decision) -> Decision:
    """Return a decision that refuses what would have had to wait for too long."""
    return decision.replace(allowed=False, delay=0.0, state=None, retry_after=decision.delay)


class Slot:
    """A slot for a `with` or `async with` block, which receives the decision. For one block at a time."""

    def __init__(self, limiter: AnyLimiter, key: object, wait: float | None = 0, cost: int = 1) -> None:
        self._limiter = limiter
        self._key = key
        self._wait = wait
        self._cost = cost
        self._decision = Decision(False)
        self._started = 0.0

    def __enter__(self) -> Decision:
        return self._start(acquire(self._limiter, self._key, self._wait, self._cost))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if _must_leave(self._limiter, self._decision):
            run(self._leaving())

    async def __aenter__(self) -> Decision:
        return self._start(await aacquire(self._limiter, self._key, self._wait, self._cost))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if _must_leave(self._limiter, self._decision):
            await asyncio.shield(asyncio.ensure_future(arun(self._leaving())))

    def _start(self, decision: Decision) -> Decision:
        self._decision = decision
        self._started = time.monotonic()
        return decision

    def _leaving(self) -> Steps[None]:
        limiter = cast("Concurrency", self._limiter)
        latency = time.monotonic() - self._started
        try:
            yield Step(limiter.leaving, limiter.aleaving, (self._key, latency, self._decision.token, self._cost))
        except LimitError as error:
            log.warning("A slot of %s could not be released: %s", self._key, error)


def holds_slot(decision: Decision) -> bool:
    """Return whether a recorded request holds a slot: it does not if it passed because the store was down."""
    return decision.allowed and (not decision.failed or decision.token != "")


def _must_leave(limiter: AnyLimiter, decision: Decision) -> TypeGuard[Concurrency]:
    return hasattr(limiter, "leaving") and holds_slot(decision)


def _hit(limiter: AnyLimiter, key: object, cost: int) -> Decision:
    return limiter.hit(key, cost)


async def _ahit(limiter: AnyLimiter, key: object, cost: int) -> Decision:
    """Hit; if the task is cancelled in the meantime, undo the decision."""
    hitting: asyncio.Future[Decision] = asyncio.ensure_future(limiter.ahit(key, cost))
    try:
        return await asyncio.shield(hitting)
    except asyncio.CancelledError:
        await asyncio.shield(asyncio.ensure_future(_undo(hitting, limiter, key, cost)))
        raise


async def _undo(hitting: asyncio.Future[Decision], limiter: AnyLimiter, key: object, cost: int) -> None:
    await asyncio.wait([hitting])
    if not hitting.cancelled() and hitting.exception() is None and hitting.result().allowed:
        await _agive_back(limiter, key, cost, hitting.result())


def _give_back(limiter: AnyLimiter, key: object, cost: int, decision: Decision) -> None:
    run(_giving_back(limiter, key, cost, decision))


async def _agive_back(limiter: AnyLimiter, key: object, cost: int, decision: Decision) -> None:
    await asyncio.shield(asyncio.ensure_future(arun(_giving_back(limiter, key, cost, decision))))


def _giving_back(limiter: AnyLimiter, key: object, cost: int, decision: Decision) -> Steps[None]:
    try:
        if _must_leave(limiter, decision):
            yield Step(limiter.leaving, limiter.aleaving, (key, None, decision.token, cost))
        elif not decision.failed:
            yield Step(limiter.uncommit, limiter.auncommit, (key, cost))
    except LimitError as error:
        log.warning("A request for the key %s could not be undone: %s", key, error)
