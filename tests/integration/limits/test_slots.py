"""Places under a limit for plain code."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from typing import Any

import pytest

from resty_django.limits import Concurrency, CostTooHigh, FixedWindow, LeakyBucket, Limited, TokenBucket
from tests.threads import together

pytestmark = pytest.mark.usefixtures("empty_limits")


class Calls:
    """`acquire` and `slot`, or their twins for asyncio."""

    def __init__(self, twins: bool) -> None:
        self.twins = twins

    async def acquire(self, limiter: Any, *args: Any, **options: Any) -> Any:
        result = (limiter.aacquire if self.twins else limiter.acquire)(*args, **options)
        return await result if inspect.isawaitable(result) else result

    async def within(self, slot: Any, work: Any) -> Any:
        if self.twins:
            async with slot as decision:
                return work(decision)
        with slot as decision:
            return work(decision)


@pytest.fixture(params=["sync", "async"])
def calls(request: pytest.FixtureRequest) -> Calls:
    return Calls(request.param == "async")


async def test_calls_beyond_the_limit_raise(calls: Calls) -> None:
    limiter = FixedWindow(2, 3600, prefix="slots:")
    assert (await calls.acquire(limiter, "k")).remaining == 1
    assert (await calls.acquire(limiter, "k")).remaining == 0
    with pytest.raises(Limited, match="2") as refused:
        await calls.acquire(limiter, "k")
    assert 3500 < refused.value.decision.retry_after <= 3600


async def test_a_delay_is_slept(calls: Calls) -> None:
    limiter = LeakyBucket(10, 5, prefix="slots:")
    began = time.monotonic()
    for _ in range(4):
        await calls.acquire(limiter, "k", wait=30)
    assert 0.28 <= time.monotonic() - began < 20


async def test_without_waiting_nothing_is_delayed(calls: Calls) -> None:
    limiter = LeakyBucket(1 / 60, 5, prefix="slots:")
    await calls.acquire(limiter, "k")
    for _ in range(3):
        with pytest.raises(Limited) as refused:
            await calls.acquire(limiter, "k")
        assert 55 < refused.value.decision.retry_after <= 60
        assert not refused.value.decision
    assert limiter.peek("k").delay <= 60


async def test_a_delay_longer_than_the_wait_is_given_back(calls: Calls) -> None:
    limiter = TokenBucket.from_interval(60_000, 1, prefix="slots:")
    await calls.acquire(limiter, "k")
    with pytest.raises(Limited):
        await calls.acquire(limiter, "k", wait=1)
    assert limiter.peek("k").delay <= 60


async def test_a_refused_call_tries_again(calls: Calls) -> None:
    limiter = FixedWindow(1, 0.3, prefix="slots:")
    began = time.monotonic()
    for _ in range(3):
        await calls.acquire(limiter, "k", wait=None)
    assert 0.5 <= time.monotonic() - began < 20


async def test_waiting_in_vain_is_not_begun(calls: Calls) -> None:
    limiter = FixedWindow(1, 3600, prefix="slots:")
    await calls.acquire(limiter, "k")
    began = time.monotonic()
    with pytest.raises(Limited):
        await calls.acquire(limiter, "k", wait=100)
    assert time.monotonic() - began < 50


def test_a_wait_is_not_below_zero() -> None:
    for wait in (-1, float("nan")):
        with pytest.raises(ValueError, match="wait"):
            FixedWindow(1, 3600, prefix="slots:").acquire("k", wait=wait)


async def test_a_place_may_cost_several_units(calls: Calls) -> None:
    limiter = FixedWindow(5, 3600, prefix="slots:")
    assert (await calls.acquire(limiter, "k", cost=3)).remaining == 2
    with pytest.raises(Limited):
        await calls.acquire(limiter, "k", cost=3)


@pytest.mark.usefixtures("limits_store")
async def test_a_slot_is_held_for_a_block(calls: Calls) -> None:
    limiter = Concurrency(2, prefix="slots:", default_delay=0.5)
    for _ in range(5):
        assert await calls.within(limiter.slot("k"), lambda decision: limiter.peek("k").remaining) == 1
    assert limiter.peek("k").remaining == 2
    assert limiter.unit_delay < 0.5


async def test_a_failing_block_releases_its_slot(calls: Calls) -> None:
    limiter = Concurrency(2, prefix="slots:")
    with pytest.raises(ZeroDivisionError):
        await calls.within(limiter.slot("k"), lambda decision: 1 / 0)
    assert limiter.peek("k").remaining == 2


async def test_a_slot_is_refused_while_all_are_taken(calls: Calls) -> None:
    limiter = Concurrency(1, prefix="slots:")

    async def inner() -> None:
        await calls.within(limiter.slot("k", wait=0.05), lambda decision: None)

    token = limiter.hit("k").token
    with pytest.raises(Limited):
        await inner()
    limiter.leaving("k", token=token)
    await inner()


async def test_a_slot_of_another_kind_of_limiter_is_a_place_in_it(calls: Calls) -> None:
    limiter = FixedWindow(2, 3600, prefix="slots:")
    assert await calls.within(limiter.slot("k"), lambda decision: decision.remaining) == 1
    assert limiter.peek("k").remaining == 1


def test_threads_wait_for_each_other() -> None:
    limiter = Concurrency(2, prefix="slots:")
    at_once, most = 0, 0
    counting = threading.Lock()

    def work() -> None:
        nonlocal at_once, most
        for _ in range(5):
            with limiter.slot("k", wait=60):
                with counting:
                    at_once += 1
                    most = max(most, at_once)
                time.sleep(0.005)
                with counting:
                    at_once -= 1

    together(*[work] * 6)
    assert most == 2
    assert limiter.peek("k").remaining == 2


async def test_tasks_wait_for_each_other() -> None:
    limiter = Concurrency(2, prefix="slots:")
    at_once, most = 0, 0

    async def work() -> None:
        nonlocal at_once, most
        async with limiter.slot("k", wait=60):
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0.01)
            at_once -= 1

    await asyncio.gather(*(work() for _ in range(10)))
    assert most == 2
    assert limiter.peek("k").remaining == 2


@pytest.mark.usefixtures("limits_store")
async def test_a_cancelled_task_holds_no_slot() -> None:
    limiter = Concurrency(2, prefix="slots:")

    async def work(seconds: float) -> None:
        async with limiter.slot("k", wait=60):
            await asyncio.sleep(seconds)

    for turns in range(15):
        task = asyncio.create_task(work(3600))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    async with asyncio.timeout(20):
        while limiter.peek("k").remaining < 2:
            await asyncio.sleep(0.01)


@pytest.mark.usefixtures("limits_store")
async def test_a_task_cancelled_while_waiting_undoes_its_request() -> None:
    limiter = LeakyBucket(1 / 3600, 5, prefix="slots:")
    await limiter.aacquire("k")
    task = asyncio.create_task(limiter.aacquire("k", wait=None))
    async with asyncio.timeout(20):
        while limiter.peek("k").remaining != 4:
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert limiter.peek("k").remaining == 5


async def test_a_slot_that_costs_more_is_given_back_whole(calls: Calls) -> None:
    for lease in (None, 60.0):
        limiter = Concurrency(5, lease=lease, prefix=f"slots {lease}:")
        held = await calls.within(limiter.slot("k", cost=3), lambda decision, each=limiter: each.peek("k").remaining)
        assert held == 2
        assert limiter.peek("k").remaining == 5
        with pytest.raises(CostTooHigh):
            await calls.within(limiter.slot("k", cost=6), lambda decision: None)
        assert limiter.peek("k").remaining == 5
