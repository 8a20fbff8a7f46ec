"""The number of waiting calls of a process is bounded: functions and slots."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from resty_django.limits import Concurrency, LeakyBucket, Limited, TooManyWaiting, bans, limited, overview
from resty_django.limits.limiters.waiting import waiting_calls
from resty_django.limits.statistics.reporter import stats
from tests.integration.limits.view_tools import change
from tests.logserver import until

pytestmark = pytest.mark.usefixtures("empty_limits")

LONG = "1/h"
"""A rate with which the second call of a test waits until the test ends it."""


class Stopped(Exception):
    """Ends the sleep of a waiting thread."""


@pytest.fixture(autouse=True)
def _nothing_waits_at_the_end() -> Iterator[None]:
    assert waiting_calls.count == 0
    yield
    assert waiting_calls.count == 0


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Threads sleep until the event is set; then their sleep raises `Stopped`."""
    end = threading.Event()

    def sleep(seconds: float) -> None:
        assert end.wait(30)
        raise Stopped

    for module in ("resty_django.limits.functions", "resty_django.limits.limiters.slots"):
        monkeypatch.setattr(f"{module}.time", _Clock(sleep))
    yield end
    end.set()


class _Clock:
    def __init__(self, sleep: Callable[[float], None]) -> None:
        self.sleep = sleep
        self.monotonic = time.monotonic


async def auntil(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


def in_threads(count: int, call: Callable[[], Any]) -> tuple[list[threading.Thread], list[Any]]:
    """Call a function in each of several threads; return the threads, and the list of what they return or raise."""
    outcomes: list[Any] = []

    def work() -> None:
        try:
            outcomes.append(call())
        except Exception as error:
            outcomes.append(error)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads, outcomes


# --- threads -------------------------------------------------------------------------------------------------------


def test_further_calls_in_threads_raise_at_once(settings: Any, sleeps: threading.Event) -> None:
    change(settings, MAX_WAITING_CALLS=3)
    call = limited(LONG, wait=None, name="slow")(lambda: "done")
    assert call() == "done"
    threads, outcomes = in_threads(8, call)
    until(lambda: len(outcomes) == 5 and waiting_calls.count == 3)
    for error in outcomes:
        assert type(error) is TooManyWaiting
        assert isinstance(error, Limited)
        assert 3500 < error.decision.retry_after <= 3600
        assert (error.count, error.option) == (3, "MAX_WAITING_CALLS")
        assert str(error).startswith("Over the limit of 1. Try again after 3")
        assert str(error).endswith(" 3 calls of this process wait: see MAX_WAITING_CALLS.")
    sleeps.set()
    for thread in threads:
        thread.join(30)
    assert [type(outcome) for outcome in outcomes] == [TooManyWaiting] * 5 + [Stopped] * 3
    stats.flush()
    totals = stats.totals()["function:slow"]
    assert (totals.passed, totals.refused) == (1, 5)


def test_calls_that_need_not_wait_are_not_bounded(settings: Any) -> None:
    change(settings, MAX_WAITING_CALLS=0)
    call = limited("3/h", wait=None)(lambda: "done")
    assert [call() for _ in range(3)] == ["done"] * 3
    with pytest.raises(TooManyWaiting, match="MAX_WAITING_CALLS"):
        call()


def test_slots_and_functions_share_the_maximum(settings: Any, sleeps: threading.Event) -> None:
    change(settings, MAX_WAITING_CALLS=2)
    busy, leaky = Concurrency(1, prefix="busy:"), LeakyBucket(1 / 3600, 5, prefix="leaky:")
    call = limited(LONG, wait=None)(lambda: "done")
    call()
    leaky.acquire("a")
    with busy.slot("a"):
        threads, outcomes = in_threads(1, call)
        until(lambda: waiting_calls.count == 1)
        more, _ = in_threads(1, lambda: leaky.acquire("a", wait=None))
        until(lambda: waiting_calls.count == 2)
        for refused in (call, lambda: busy.acquire("a", wait=None), lambda: leaky.acquire("a", wait=None)):
            with pytest.raises(TooManyWaiting) as caught:
                refused()
            assert not caught.value.decision.allowed
        assert caught.value.decision.retry_after > 3500
        assert leaky.peek("a").remaining == 4  # one passed and one waits: a refused call counts nowhere
        sleeps.set()
        for thread in (*threads, *more):
            thread.join(30)
    assert leaky.peek("a").remaining == 5
    assert [type(outcome) for outcome in outcomes] == [Stopped]
    assert busy.acquire("a")


def test_a_function_may_have_its_own_maximum(settings: Any, sleeps: threading.Event) -> None:
    change(settings, MAX_WAITING_CALLS=0)
    call = limited(LONG, wait=None, max_waiting=2, name="own")(lambda: "done")
    call()
    threads, outcomes = in_threads(5, call)
    until(lambda: len(outcomes) == 3)
    assert {error.option for error in outcomes} == {"max_waiting=2 of own"}
    assert waiting_calls.count == 0
    sleeps.set()
    for thread in threads:
        thread.join(30)
    assert limited(LONG, wait=None, max_waiting=0)(lambda: 1)() == 1


def test_the_places_of_calls_are_free_after_they_have_waited(settings: Any) -> None:
    change(settings, MAX_WAITING_CALLS=1)
    call = limited("50/s capacity=1", wait=None)(lambda: waiting_calls.count)
    assert [call() for _ in range(4)] == [0] * 4  # while the function runs, its call no longer waits


@pytest.mark.usefixtures("bans_store")
def test_a_call_refused_for_want_of_a_place_does_not_count_for_a_ban(settings: Any) -> None:
    change(settings, MAX_WAITING_CALLS=0)
    call = limited(LONG, key=lambda: "a", wait=None, ban="15m", name="codes")(lambda: "done")
    call()
    for _ in range(2):
        with pytest.raises(TooManyWaiting):
            call()
    assert bans.current_bans() == []


def test_the_maximum_is_logged_once(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    call = limited(LONG, wait=None, max_waiting=0, name="logged")(lambda: "done")
    call()
    for _ in range(3):
        with pytest.raises(TooManyWaiting):
            call()
    logged = [record.getMessage() for record in caplog.records if "further ones are refused" in record.getMessage()]
    assert logged == ["0 calls of this process wait; further ones are refused: see max_waiting=0 of logged"]


def test_waiting_calls_are_a_metric(sleeps: threading.Event) -> None:
    call = limited(LONG, wait=None, max_waiting=5)(lambda: "done")
    call()
    threads, _ = in_threads(2, call)

    def metric() -> dict[str, float]:
        (family,) = [family for family in overview.families() if family.name == "resty_limits_waiting"]
        return {sample.labels[0]: sample.value for sample in family.samples}

    until(lambda: metric() == {"requests": 0, "calls": 2})
    sleeps.set()
    for thread in threads:
        thread.join(30)
    assert metric() == {"requests": 0, "calls": 0}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_has_no_waiting_calls(sleeps: threading.Event) -> None:
    call = limited(LONG, wait=None)(lambda: "done")
    call()
    (thread,), _ = in_threads(1, call)
    until(lambda: waiting_calls.count == 1)
    child = os.fork()
    if child == 0:
        os._exit(10 + waiting_calls.count)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 10
    sleeps.set()
    thread.join(30)


def test_the_error_can_be_pickled() -> None:
    call = limited(LONG, wait=None, max_waiting=0, name="pickled")(lambda: "done")
    call()
    with pytest.raises(TooManyWaiting) as caught:
        call()
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 (our own bytes)
    assert (str(copy), copy.count, copy.decision) == (str(caught.value), 0, caught.value.decision)


@pytest.mark.parametrize(("wrong", "error"), [(-1, "at least 0"), (1.5, "whole number"), (True, "whole number")])
def test_wrong_maxima(wrong: Any, error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"max_waiting must be .*{error}"):
        limited("1/s", max_waiting=wrong)


# --- asyncio -------------------------------------------------------------------------------------------------------


async def test_further_tasks_are_refused_and_cancelled_ones_make_room(settings: Any) -> None:
    change(settings, MAX_WAITING_CALLS=2)

    @limited(LONG, wait=None)
    async def call() -> str:
        return "done"

    assert await call() == "done"
    tasks = [asyncio.ensure_future(call()) for _ in range(2)]
    await auntil(lambda: waiting_calls.count == 2)
    with pytest.raises(TooManyWaiting):
        await call()
    tasks[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    assert waiting_calls.count == 1
    tasks.append(asyncio.ensure_future(call()))
    await auntil(lambda: waiting_calls.count == 2)
    for task in tasks[1:]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert waiting_calls.count == 0


async def test_many_tasks_at_once(settings: Any) -> None:
    change(settings, MAX_WAITING_CALLS=5)

    @limited("5/s capacity=1", wait=None)
    async def call() -> str:
        return "done"

    outcomes = await asyncio.gather(*(call() for _ in range(40)), return_exceptions=True)
    assert outcomes.count("done") == 6
    assert sum(isinstance(outcome, TooManyWaiting) for outcome in outcomes) == 34


@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_slot_that_is_waited_for(settings: Any, cancelled: bool) -> None:
    change(settings, MAX_WAITING_CALLS=1)
    busy = Concurrency(1, prefix="busy:")

    async def wait_for_slot() -> str:
        async with busy.slot("a", wait=None):
            assert waiting_calls.count == 0
            return "done"

    async with busy.slot("a"):
        task = asyncio.ensure_future(wait_for_slot())
        await auntil(lambda: waiting_calls.count == 1)
        with pytest.raises(TooManyWaiting):
            await busy.aacquire("a", wait=None)
        if cancelled:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert waiting_calls.count == 0
    assert cancelled or await task == "done"
    assert busy.peek("a").remaining == 1


def test_a_call_that_raises_no_longer_waits(settings: Any) -> None:
    change(settings, MAX_WAITING_CALLS=1)

    @limited("50/s capacity=1", wait=None)
    def call() -> None:
        raise Stopped

    for _ in range(3):
        with pytest.raises(Stopped):
            call()
    assert waiting_calls.count == 0
