"""Waiting requests: how long a request may wait for its turn, and how many may wait in this process.

    if not wait_turn(check, longest):
        return check.refuse()

The `burst` of a limit also limits the number of waiting requests. A token bucket has no `burst`, so at most MAX_WAITING
requests, sync and async together, wait for token buckets at the same time; further ones are refused and not counted by
any limit.
"""

from __future__ import annotations

import asyncio
import threading
import time

from resty_django.forks import after_fork
from resty_django.sansio import Step, Steps, arun, run

from .enforcer import SHORTEST_SLEEP
from .request_limits import LimitCheck
from .settings import request_settings


class WaitingRequests:
    """Counts the requests of this process that wait for a token bucket."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def enter(self) -> bool:
        """Add one. Return False, and add nothing, if the setting MAX_WAITING is reached."""
        with self._lock:
            if self.count >= request_settings().max_waiting:
                return False
            self.count += 1
            return True

    def leave(self) -> None:
        """Subtract one."""
        with self._lock:
            self.count -= 1


waiting_requests: WaitingRequests = WaitingRequests()


def wait_turn(check: LimitCheck, longest: float) -> bool:
    """Sleep for the delay of a request, at most `longest` seconds. Return False if it is refused instead."""
    return run(_waiting(check, longest))


async def await_turn(check: LimitCheck, longest: float) -> bool:
    """Run `wait_turn` without blocking the event loop."""
    return await arun(_waiting(check, longest))


def _waiting(check: LimitCheck, longest: float) -> Steps[bool]:
    seconds = min(check.delay, longest)
    queues = check.queued is not None and seconds >= SHORTEST_SLEEP
    requests = waiting_requests  # a forked child has a new object
    if _too_long(check) or (queues and not requests.enter()):
        yield Step(check.reject_queued, check.areject_queued)
        return False
    check.admit()
    if seconds >= SHORTEST_SLEEP:
        try:
            yield Step(time.sleep, asyncio.sleep, (seconds,))
        finally:
            if queues:
                requests.leave()
        check.start_timing()
    return True


def _too_long(check: LimitCheck) -> bool:
    """Return whether the request would wait longer than MAX_WAIT, for a limiter without a `max_wait`."""
    queued = check.queued
    if queued is None or queued.limit.limiter.max_wait is not None:
        return False
    return queued.decision.delay > request_settings().max_wait


def _after_fork() -> None:
    global waiting_requests
    waiting_requests = WaitingRequests()


after_fork(_after_fork)
