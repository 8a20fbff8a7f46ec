"""Probabilistic early recomputation: `early`."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
from collections.abc import Callable
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from resty_django.cache import MLCache, cache_view, cached
from resty_django.cache.errors import BadOption
from resty_django.cache.mlcache.early import draw, lead
from resty_django.cache.storage import records
from tests.dictionaries import Clock
from tests.integration.cache.cancelling import settle
from tests.integration.cache.conftest import Make, Process, fails, value

LEAD = 10.0
"""Seconds before its expiry at which a value is due that took 10 seconds, with the number that `fixed` draws."""


def fixed(process: Process, clock: Clock, number: float = math.exp(-1)) -> None:
    """Let the process draw this number, and measure callbacks with the clock of the test."""
    process.cache.levels.early.draw = lambda key, stored: number
    process.cache.loader.timer = clock


def slow(clock: Clock, answer: Any, seconds: float = 10.0) -> Callable[[], Any]:
    """A callback that takes seconds of the clock."""

    def callback() -> Any:
        clock.advance(seconds)
        return answer

    return callback


async def finished(process: Process) -> None:
    await settle(lambda: not process.cache.loader.refresher.keys)


async def due(process: Process, clock: Clock, answer: Any = "old") -> Process:
    """Load a value, which lives for 100 seconds, and let 95 of them pass."""
    fixed(process, clock)
    await process.lookup("k", slow(clock, answer))
    clock.advance(95)
    return process


async def test_a_value_is_recomputed_before_it_expires_while_the_old_one_is_served(make: Make, clock: Clock) -> None:
    a, b = make("A", ttl=100, early=1.0), make("B", ttl=100, early=1.0)
    fixed(a, clock)
    fixed(b, clock)
    assert await a.lookup("k", slow(clock, "old")) == ("old", None, 3)
    clock.advance(100 - LEAD - 0.01)
    assert await a.lookup("k", value("new")) == ("old", None, 1), "not yet due"
    clock.advance(0.02)
    assert await a.lookup("k", value("new")) == ("old", None, 2), "due: served, and recomputed"
    await finished(a)
    assert a.runs == 2
    assert await a.lookup("k") == ("new", None, 1)
    assert await b.lookup("k", value("newer")) == ("new", None, 2)
    await finished(b)
    assert b.runs == 0, "the record is new, and so not due"
    clock.advance(99)
    assert await b.lookup("k", value("newer")) == ("new", None, 1), "its callback took no time, so there is no lead"


async def test_a_hit_of_l2_recomputes_too_and_l1_serves_the_old_value_meanwhile(make: Make, clock: Clock) -> None:
    a, b = await due(make("A", ttl=100, early=1.0), clock), make("B", ttl=100, early=1.0)
    fixed(b, clock)
    a.cache.locks.add("lua-resty-mlcache:lock:c:k", "another process", 30)
    assert await b.lookup("k", value("new")) == ("old", None, 2)
    await finished(b)
    assert b.runs == 0, "another process recomputes it"
    assert await b.lookup("k", value("new")) == ("old", None, 1)


@pytest.mark.parametrize("beta", [0, None])
async def test_without_it_nothing_is_recomputed(make: Make, clock: Clock, beta: Any) -> None:
    a, b = make("A", ttl=100, early=beta), make("B", ttl=100, early=1.0)
    fixed(a, clock)
    fixed(b, clock)
    await a.lookup("k", slow(clock, "old"))
    raw = a.cache.dictionaries[0].get("c:k")
    assert len(raw) == 18 + len(b"\xa3old")
    clock.advance(99)
    assert await a.lookup("k", value("new")) == ("old", None, 1)
    assert await b.lookup("k", value("new")) == ("old", None, 2)
    await finished(b)
    assert b.runs == 0, "the duration of the callback is unknown"


async def test_a_cache_without_it_reads_the_records(make: Make, clock: Clock) -> None:
    await due(make("A", ttl=100, early=1.0, tags=("t",)), clock, {"price": 5})
    b = make("B", ttl=100)
    assert await b.lookup("k", value("new")) == ({"price": 5}, None, 2)
    await finished(b)
    clock.advance(4)
    assert await b.lookup("k", value("new")) == ({"price": 5}, None, 1)
    assert b.runs == 0


async def test_if_the_callback_fails_the_old_value_is_served(make: Make, clock: Clock, caplog: Any) -> None:
    a = await due(make("A", ttl=100, early=1.0), clock)
    assert await a.lookup("k", fails("down")) == ("old", None, 2)
    await finished(a)
    assert "could not be refreshed" in caplog.text
    clock.advance(4)
    assert await a.lookup("k", fails("down")) == ("old", None, 1)
    clock.advance(2)
    assert await a.lookup("k", value("new")) == ("new", None, 3)


async def test_a_value_set_during_the_callback_stays(make: Make, clock: Clock) -> None:
    a, b = await due(make("A", ttl=100, early=1.0), clock), make("B", ttl=100)

    def callback() -> str:
        b.cache.set("k", "set")
        return "new"

    assert await a.lookup("k", callback) == ("old", None, 2)
    await finished(a)
    assert a.runs == 2
    await a.update()
    assert await a.lookup("k") == ("set", None, 2)


async def test_marks_of_views_are_not_recomputed(make: Make, clock: Clock) -> None:
    a = make("A", ttl=100, early=1e9)
    fixed(a, clock)
    a.cache.loader.timer = map(float, itertools.count()).__next__
    page = cache_view(100, a.cache)(lambda request: HttpResponse("tea"))

    async def marks() -> list[str]:
        page(RequestFactory().get("/tea"))
        await finished(a)
        values = [a.cache.peek(key).value for key in a.cache.lru.get_keys()]
        return sorted(value for value in values if isinstance(value, str))

    first = await marks()
    assert len(first) == 2
    a.cache.lru.flush_all()
    assert await marks() == first


async def test_a_larger_factor_recomputes_earlier_and_a_call_may_set_it(make: Make, clock: Clock) -> None:
    a = make("A", ttl=100)
    fixed(a, clock)
    await a.lookup("k", slow(clock, "old"), early=3.0)
    clock.advance(100 - 3 * LEAD - 0.01)
    assert await a.lookup("k", value("new"), early=3.0) == ("old", None, 1)
    clock.advance(0.02)
    assert await a.lookup("k", value("new")) == ("old", None, 2), "this call has no factor"
    await finished(a)
    assert a.runs == 1
    a.cache.lru.flush_all()
    assert await a.lookup("k", value("new"), early=3.0) == ("old", None, 2)
    await finished(a)
    assert await a.lookup("k") == ("new", None, 1)


async def test_tags_bulk_reads_and_refresh(make: Make, clock: Clock) -> None:
    a = make("A", ttl=100, early=1.0, tags=("t",))
    fixed(a, clock)
    assert await a.do("refresh", "k", a.callback(slow(clock, "old"))) == "old"
    clock.advance(95)
    assert await a.do("get_many", ["k"]) == {"k": "old"}
    a.cache.lru.flush_all()
    bulk = a.cache.new_bulk().add("k", a.callback(value("new")))
    (result,) = await a.do("get_bulk", bulk)
    assert result.value == "old"
    await finished(a)
    assert await a.lookup("k") == ("new", None, 1)
    a.cache.lru.flush_all()
    assert await a.lookup("k") == ("new", None, 2)
    await a.do("invalidate_tags", "t")
    assert await a.lookup("k") == (None, None, -1)


async def test_a_value_that_takes_longer_than_it_lives_is_still_served(make: Make, clock: Clock) -> None:
    a = make("A", ttl=5, early=1.0)
    fixed(a, clock)
    assert await a.lookup("k", slow(clock, "old")) == ("old", None, 3)
    assert await a.lookup("k", value("new")) == ("old", None, 2)
    await finished(a)
    assert await a.lookup("k", value("newer")) == ("new", None, 1)


async def test_a_value_that_lives_forever_is_not_recomputed(make: Make, clock: Clock) -> None:
    a = make("A", ttl=0, early=1.0)
    fixed(a, clock)
    await a.lookup("k", slow(clock, "old"))
    clock.advance(10_000)
    a.cache.lru.flush_all()
    assert await a.lookup("k", value("new")) == ("old", None, 2)
    await finished(a)
    assert a.runs == 1


def test_the_formula_of_the_paper() -> None:
    assert lead(2.0, 1.0, math.exp(-3)) == pytest.approx(6.0)
    assert lead(2.0, 0.5, math.exp(-3)) == pytest.approx(3.0)
    assert lead(2.0, 1.0, 1.0) == 0


def test_the_number_of_a_value_is_the_same_in_a_process_and_evenly_distributed(monkeypatch: Any) -> None:
    numbers = [draw(f"key {number}", 5.0) for number in range(2000)]
    assert numbers == [draw(f"key {number}", 5.0) for number in range(2000)]
    assert all(0 < number <= 1 for number in numbers)
    for bound in (0.25, 0.5, 0.75):
        assert abs(sum(number < bound for number in numbers) / 2000 - bound) < 0.1
    first = draw("k", 5.0)
    assert draw("k", 6.0) != first
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert draw("k", 5.0) != first, "a forked process draws another one"


def test_records_with_the_duration_are_read_and_damaged_ones_are_absent() -> None:
    for tags in (None, {"t": 3}):
        raw = records.encode("tea", 5.0, 60.0, False, tags, took=1.5)
        record = records.decode(raw)
        assert record == records.Record("tea", 5.0, 60.0, False, tags, 1.5)
        assert len(raw) == len(records.encode("tea", 5.0, 60.0, False, tags)) + 4
        for end in range(len(raw)):
            assert records.decode(raw[:end]) is None
    for took in (math.nan, math.inf, -1.0):
        assert records.decode(records.encode("tea", 5.0, 60.0, False, took=took)) is None
    assert records.decode(records.encode(None, 5.0, 60.0, False, took=1.5)).took == 1.5


@pytest.mark.parametrize("beta", [-1, "1.0", True, math.inf])
def test_bad_factors_are_refused(shared: Any, beta: Any) -> None:
    with pytest.raises(BadOption, match="early"):
        MLCache("c", shared("values"), ipc=None, early=beta)


def test_decorated_functions_and_views(shared: Any, clock: Clock, make: Make) -> None:
    process = make("A", ttl=100)
    fixed(process, clock)
    cache, runs = process.cache, []

    @cached(cache, name="price", ttl=100, early=1.0)
    def price() -> int:
        clock.advance(10)
        runs.append("price")
        return len(runs)

    @cache_view(100, cache, early=1.0)
    def page(request: HttpRequest) -> HttpResponse:
        clock.advance(10)
        runs.append("page")
        return HttpResponse(str(len(runs)))

    def wait() -> None:
        asyncio.run(finished(process))

    assert price() == 1
    clock.advance(95)
    assert price() == 1
    wait()
    assert price() == 2
    request = RequestFactory().get("/tea")
    assert page(request).content == b"3"
    clock.advance(95)
    assert page(RequestFactory().get("/tea")).content == b"3"
    wait()
    assert page(RequestFactory().get("/tea")).content == b"4"
    assert runs == ["price", "price", "page", "page"]
