"""Pauses that advance only a test's clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from tests.dictionaries import Clock


class Pauses:
    """Stands for `sleep`: moves the clock on, notes how long, and does what a test has planned for a moment."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.slept: list[int] = []
        self.plans: list[tuple[int, Callable[[], object]]] = []

    def after(self, milliseconds: int, what: Callable[[], object]) -> None:
        """Call `what` after this number of milliseconds, while somebody sleeps."""
        self.plans.append((self.clock.milliseconds + milliseconds, what))

    def sleep(self, seconds: float) -> None:
        until = self.clock.milliseconds + round(seconds * 1000)
        self.slept.append(round(seconds * 1000))
        for plan in sorted(self.plans, key=lambda plan: plan[0]):
            if plan[0] <= until:
                self.plans.remove(plan)
                self.clock.milliseconds = plan[0]
                plan[1]()
        self.clock.milliseconds = until

    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)


@pytest.fixture
def naps(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Pauses:
    """Have the pauses of locks advance only `clock`."""
    pauses = Pauses(clock)

    class Time:
        sleep = staticmethod(pauses.sleep)

    class Asyncio:
        sleep = staticmethod(pauses.asleep)
        CancelledError = asyncio.CancelledError

    monkeypatch.setattr("resty_django.lock.time", Time)
    monkeypatch.setattr("resty_django.lock.asyncio", Asyncio)
    # Without jitter, whole milliseconds add up.
    monkeypatch.setattr("resty_django.cache.mlcache.loading.Loader.lock_jitter", 0.0)
    assert time.sleep is not pauses.sleep
    return pauses
