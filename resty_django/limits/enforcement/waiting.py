"""Waiting requests: how long a request may wait for its turn, and how many may wait in this process.

    if not wait_turn(check, longest):
        return check.refuse()

The `burst` of a limit limits the number of waiting requests of a key, and a client that forges its key has any number
of keys. So at most MAX_WAITING requests, sync and async together, wait at the same time; further ones are refused, and
no limit counts them.
"""

from __future__ import annotations

import asyncio
import threading
import time

from resty_django.forks import after_fork
from resty_django.sansio import Step, Steps, arun, run

from .request_limits import SHORTEST_SLEEP, LimitCheck, LimitResult
from .settings import request_settings


class WaitingRequests:
    """Counts the requests of this process that wait for their turn."""

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
    refused = _too_long(check)
    if refused is None and queues and not requests.enter():
        refused = check.queued
    if refused is not None:
        yield Step(check.reject_queued, check.areject_queued, (refused,))
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


def _too_long(check: LimitCheck) -> LimitResult | None:
    """Return the result of a limit for which the request would wait longer than MAX_WAIT, or None."""
    for result in check.results:
        limit, _, decision = result
        if (
            limit.obeys_max_wait
            and not limit.advises
            and limit.delay_of(decision)
            and decision.delay > request_settings().max_wait
        ):
            return result
    return None


def _after_fork() -> None:
    global waiting_requests
    waiting_requests = WaitingRequests()


after_fork(_after_fork)
