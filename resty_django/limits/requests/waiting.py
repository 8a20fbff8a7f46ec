"""Waiting requests: how long a request may wait for its turn, and how many may wait in this process.

    if not wait_turn(check, longest):
        return check.refuse()

The `burst` of a limit limits the number of waiting requests of a key, and a client that forges its key has any number
of keys. So at most MAX_WAITING requests, sync and async together, wait at the same time; further ones are refused, and
no limit counts them.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from resty_django.sansio import Step, Steps, arun, run

from ..callers import request_settings
from ..limiters.waiting import WaitingCounter
from .check import LimitCheck, LimitResult
from .request_limit import SHORTEST_SLEEP

waiting_requests: Final = WaitingCounter("requests", "MAX_WAITING", lambda: request_settings.current.max_waiting)


def wait_turn(check: LimitCheck, longest: float) -> bool:
    """Sleep for the delay of a request, at most `longest` seconds. Return False if it is refused instead."""
    return run(_waiting(check, longest))


async def await_turn(check: LimitCheck, longest: float) -> bool:
    """Run `wait_turn` without blocking the event loop."""
    return await arun(_waiting(check, longest))


def _waiting(check: LimitCheck, longest: float) -> Steps[bool]:
    seconds = min(check.delay, longest)
    queues = check.queued is not None and seconds >= SHORTEST_SLEEP
    with waiting_requests.wait() as wait:
        refused = _too_long(check)
        if refused is None and queues and not wait.enter():
            refused = check.queued
        if refused is not None:
            yield Step(check.reject_queued, check.areject_queued, (refused,))
            return False
        check.admit()
        if seconds >= SHORTEST_SLEEP:
            yield Step(time.sleep, asyncio.sleep, (seconds,))
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
            and decision.delay > request_settings.current.max_wait
        ):
            return result
    return None
