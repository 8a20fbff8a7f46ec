"""The parts of the worker that decide: order of queues, times, middleware chains."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from resty_django.qless.worker import chain
from resty_django.qless.worker.chain import MiddlewareError
from resty_django.qless.worker.leases import Leases
from resty_django.qless.worker.live import printable
from resty_django.qless.worker.middleware import MemoryBound, Requeue, Retry
from resty_django.qless.worker.middleware.memory import resident
from resty_django.qless.worker.outcomes import RetryLater
from resty_django.qless.worker.reservers import Ordered, RoundRobin, Shuffled
from resty_django.qless.worker.waits import SHORTEST, Waits

# --- reservers ---


def test_ordered_begins_with_the_first_again() -> None:
    reserver = Ordered("abc")
    assert list(reserver.order()) == ["a", "b", "c"]
    reserver.asked("b")
    assert list(reserver.order()) == ["a", "b", "c"]


def test_round_robin_goes_on_after_the_last_one_asked() -> None:
    reserver = RoundRobin("abc")
    assert list(reserver.order()) == ["a", "b", "c"]
    reserver.asked("a")
    assert list(reserver.order()) == ["b", "c", "a"]
    reserver.asked("c")
    assert list(reserver.order()) == ["a", "b", "c"]


def test_shuffled_gives_every_order() -> None:
    reserver = Shuffled("abc")
    found = Counter("".join(reserver.order()) for _ in range(600))
    assert set(found) == {"abc", "acb", "bac", "bca", "cab", "cba"}


# --- waits ---


def test_all_queues_are_open_at_first() -> None:
    waits = Waits(("a", "b"), 10.0)
    assert waits.open("a", 100.0)
    assert waits.next() == 0.0


def test_an_empty_queue_is_asked_after_the_interval_or_a_wake() -> None:
    waits = Waits(("a", "b"), 10.0)
    waits.emptied("a", 100.0)
    waits.emptied("b", 102.0)
    assert not waits.open("a", 109.9)
    assert waits.open("a", 110.0)
    assert waits.next() == 110.0
    waits.woken("b")
    assert waits.open("b", 102.0)
    waits.woken("unknown")
    waits.emptied("b", 103.0)
    waits.all_open()
    assert waits.open("a", 103.0)
    assert waits.open("b", 103.0)


@pytest.mark.parametrize(("seconds", "pause"), [(None, 10.0), (3.0, 3.0), (30.0, 10.0)])
def test_due_shortens_the_wait(seconds: float | None, pause: float) -> None:
    waits = Waits(("a",), 10.0)
    waits.due("a", seconds, 100.0)
    assert waits.next() == 100.0 + pause


def test_a_queue_that_refuses_is_asked_less_and_less_until_a_job_ends() -> None:
    waits = Waits(("a",), 10.0)
    pauses = []
    for _ in range(12):
        waits.due("a", -1.0, 100.0)
        pauses.append(waits.next() - 100.0)
    assert pauses[:3] == pytest.approx([SHORTEST, 2 * SHORTEST, 4 * SHORTEST])
    assert pauses[-1] == 10.0
    waits.finished("a")
    assert waits.open("a", 100.0)
    waits.gave("a")
    waits.emptied("a", 100.0)
    waits.finished("a")
    assert not waits.open("a", 101.0)


# --- leases ---


def test_lengths_of_locks_come_from_the_configuration() -> None:
    leases = Leases(("a", "b"))
    assert leases.length("a") == 60.0
    assert leases.questions() == [
        ("config.get", "heartbeat"),
        ("config.get", "a-heartbeat"),
        ("config.get", "b-heartbeat"),
    ]
    leases.answered([30, None, b"5.5"], 0.0)
    assert (leases.length("a"), leases.length("b")) == (30.0, 5.5)
    leases.answered([b"nonsense", b"-1", ValueError()], 0.0)
    assert (leases.length("a"), leases.length("b")) == (60.0, 60.0)


# --- chains ---


def recorder(name: str, trail: list[str], swallow: type[Exception] | None = None) -> Any:
    def middleware(job: Any) -> Any:
        trail.append(f"+{name}")
        try:
            yield
        except Exception as error:
            trail.append(f"{name}:{type(error).__name__}")
            if swallow is None or not isinstance(error, swallow):
                raise
        finally:
            trail.append(f"-{name}")

    return middleware


def arecorder(name: str, trail: list[str], swallow: type[Exception] | None = None) -> Any:
    async def middleware(job: Any) -> Any:
        trail.append(f"+{name}")
        try:
            yield
        except Exception as error:
            trail.append(f"{name}:{type(error).__name__}")
            if swallow is None or not isinstance(error, swallow):
                raise
        finally:
            trail.append(f"-{name}")

    return middleware


def run(is_async: bool, middleware: list[Any], function: Any) -> Any:
    if not is_async:
        return chain.run(middleware, "job", function)

    async def called(job: Any) -> Any:
        await asyncio.sleep(0)
        return function(job)

    return asyncio.run(chain.arun(middleware, "job", called))


def fails(job: Any) -> None:
    raise KeyError(job)


BOTH = pytest.mark.parametrize("is_async", [False, True])


@BOTH
def test_middleware_is_around_the_job(is_async: bool) -> None:
    trail: list[str] = []
    last = arecorder("c", trail) if is_async else recorder("c", trail)
    assert run(is_async, [recorder("a", trail), recorder("b", trail), last], lambda job: trail.append(job) or 7) == 7
    assert trail == ["+a", "+b", "+c", "job", "-c", "-b", "-a"]


@BOTH
def test_what_the_job_raises_comes_through(is_async: bool) -> None:
    trail: list[str] = []
    with pytest.raises(KeyError):
        run(is_async, [recorder("a", trail), recorder("b", trail)], fails)
    assert trail == ["+a", "+b", "b:KeyError", "-b", "a:KeyError", "-a"]


@BOTH
def test_a_middleware_may_swallow_it(is_async: bool) -> None:
    trail: list[str] = []
    make = arecorder if is_async else recorder
    assert run(is_async, [recorder("a", trail), make("b", trail, KeyError)], fails) is None
    assert trail == ["+a", "+b", "b:KeyError", "-b", "-a"]


@BOTH
def test_one_that_raises_before_the_job_prevents_it(is_async: bool) -> None:
    trail: list[str] = []

    def refuses(job: Any) -> Any:
        raise KeyError(job)
        yield

    with pytest.raises(KeyError):
        run(is_async, [recorder("a", trail), refuses, recorder("c", trail)], trail.append)
    assert trail == ["+a", "a:KeyError", "-a"]


def nothing(job: Any) -> Any:
    return
    yield


def twice(job: Any) -> Any:
    yield
    yield


async def anothing(job: Any) -> Any:
    return
    yield


async def atwice(job: Any) -> Any:
    yield
    yield


@BOTH
@pytest.mark.parametrize(
    ("wrong", "word"), [(nothing, "did not yield"), (twice, "more than once"), (len, "not a generator function")]
)
def test_what_is_no_middleware_is_told(is_async: bool, wrong: Any, word: str) -> None:
    trail: list[str] = []
    with pytest.raises(MiddlewareError, match=word):
        run(is_async, [recorder("a", trail), wrong], str)
    assert trail == ["+a", "a:MiddlewareError", "-a"]


@pytest.mark.parametrize(("wrong", "word"), [(anothing, "did not yield"), (atwice, "more than once")])
def test_what_is_no_async_middleware_is_told(wrong: Any, word: str) -> None:
    with pytest.raises(MiddlewareError, match=word):
        run(True, [wrong], str)


def test_async_middleware_does_not_fit_a_sync_job() -> None:
    with pytest.raises(MiddlewareError, match="the job is not async"):
        run(False, [arecorder("a", [])], str)


# --- middleware ---


@pytest.mark.parametrize("middleware", [Retry(Exception), Requeue(Exception)])
def test_what_a_job_asks_for_itself_passes(middleware: Any) -> None:
    asked = RetryLater(30)
    steps = middleware(None)
    next(steps)
    with pytest.raises(RetryLater) as raised:
        steps.throw(asked)
    assert raised.value is asked


def test_pauses_of_retry() -> None:
    assert [Retry(OSError, delay=2).pause(n) for n in (1, 2, 3)] == [2, 4, 8]
    assert [Retry(OSError, delay=5, factor=3).pause(n) for n in (1, 2, 3)] == [5, 15, 45]
    assert Retry(OSError, delay=5, longest=7).pause(2) == 7
    assert Retry(OSError, delay=9, longest=7).pause(10_000) == 7
    assert all(8 <= Retry(OSError, delay=10, fuzz=0.2).pause(1) <= 12 for _ in range(100))


@pytest.mark.parametrize(
    "wrong",
    [Retry, Requeue, lambda: Retry(OSError, delay=-1), lambda: Requeue(OSError, least=5, longest=1)],
)
def test_wrong_arguments_are_refused(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        wrong()
    with pytest.raises(ValueError, match="bytes"):
        MemoryBound(0)


def test_memory_in_use_is_known() -> None:
    assert 10_000_000 < resident() < 10_000_000_000


def test_names_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[2Jb\n") == "a?[2Jb?"
