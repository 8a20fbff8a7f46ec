"""Several limits as one: the worked examples, and the same decisions as the protocol of two phases made of calls."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resty_django.limits import (
    Concurrency,
    FixedWindow,
    LeakyBucket,
    LimitError,
    LocalStore,
    NotFound,
    SlidingWindow,
    TokenBucket,
    acombine,
    combine,
)
from resty_django.limits.combining import _in_acalls, _in_calls
from resty_django.shdict import SharedDict
from resty_django.shdict.lmdb import LmdbDict
from tests.dictionaries import MIB, Clock
from tests.limiting import Bench


def close(*values: float | None) -> list[Any]:
    return [value if value is None else pytest.approx(value, abs=1e-12) for value in values]


async def test_x1_three_limits(stored: Bench) -> None:
    req = stored.make(LeakyBucket, 2, 3, prefix="r:")
    count = stored.make(FixedWindow, 4, 60, prefix="f:")
    conn = stored.make(Concurrency, 1, 2, 0.5, prefix="c:")
    start = stored.clock.milliseconds
    table: list[tuple[int, float | None, list[float | None]]] = [
        (0, 0, [0, 3, 1]),
        (0, 0.5, [1, 2, 2]),
        (0, 1, [2, 1, 3]),
        (0, None, [None, None, None]),
        (100, 1.4, [2.8, 0, 3]),
        (200, None, [None, None, None]),
    ]
    for line, (at, delay, wanted) in enumerate(table):
        stored.clock.milliseconds = start + at
        if line in {4, 5}:
            stored.clock.milliseconds = start + 100
            assert await conn.leaving("u") == 2
            stored.clock.milliseconds = start + at
        states: list[float | None] = []
        found = await stored.combine([req, count, conn], ["h", "u", "u"], states)
        assert (found.allowed, states) == (delay is not None, close(*wanted))
        assert found.delay == pytest.approx(delay or 0, abs=1e-12)
        assert found.refused_by == {3: 2, 5: 0}.get(line)
    stored.clock.milliseconds = start + 300
    dry = [await req.peek("h"), await count.peek("u"), await conn.peek("u")]
    assert [(one.allowed, one.state) for one in dry] == [(False, None), (False, None), (True, 3)]
    stored.clock.milliseconds = start + 60100
    dry = [await req.peek("h"), await count.peek("u"), await conn.peek("u")]
    assert [(one.allowed, one.state) for one in dry] == [(True, 0), (True, 3), (True, 3)]


async def test_x2_a_window_that_refuses_last_counts_down(stored: Bench) -> None:
    req = stored.make(LeakyBucket, 100, 100, prefix="r:")
    count = stored.make(FixedWindow, 2, 60, prefix="f:")
    for wanted, left in (([0, 1], 1), ([1, 0], 0), ([None, None], -1), ([None, None], -2), ([None, None], -3)):
        states: list[float | None] = []
        found = await stored.combine([req, count], ["k", "k"], states)
        assert (found.allowed, states) == (wanted[1] is not None, wanted)
        assert found.refused_by == (None if found.allowed else 1)
        assert await count.uncommit("k") == left + 1
        await count.hit("k")


async def test_x3_the_second_phase_refuses(stored: Bench) -> None:
    one = stored.make(LeakyBucket, 1, 2, prefix="r:")
    conn = stored.make(Concurrency, 5, 5, 0.5, prefix="c:")
    for wanted in ([0, 1, 1], [2, None, 2], [2, None, 2]):
        states: list[float | None] = []
        found = await stored.combine([one, one, conn], ["k", "k", "k"], states)
        assert states == wanted
        assert (found.allowed, found.refused_by) == ((True, None) if wanted[1] else (False, 1))
        assert (await conn.is_committed()) is True
        assert (await conn.peek("k")).state - 1 == 1
        assert (await one.peek("k")).state - 1 == 1


async def test_none_one_and_wrong_numbers_of_keys(stored: Bench) -> None:
    count = stored.make(FixedWindow, 1, 60)
    assert (await stored.combine([], [])).delay == 0
    first, second = await stored.combine([count], ["k"]), await stored.combine([count], ["k"])
    assert (first.allowed, first.remaining, second.allowed, second.refused_by) == (True, 0, False, 0)
    with pytest.raises(ValueError, match="as many as limiters"):
        await stored.combine([count], ["k", "k"])


async def test_the_numbers_are_those_of_the_tightest(stored: Bench) -> None:
    wide = stored.make(FixedWindow, 10, 60, prefix="w:")
    tight = stored.make(FixedWindow, 2, 30, prefix="t:")
    slots = stored.make(Concurrency, 5, prefix="c:")
    found = await stored.combine([wide, tight, slots], ["k", "k", "k"])
    assert (found.limit, found.remaining, found.reset_after) == (2, 1, 30)
    assert found.token == found.decisions[2].token != ""
    await stored.combine([wide, tight, slots], ["k", "k", "k"])
    found = await stored.combine([wide, tight, slots], ["k", "k", "k"])
    assert (found.limit, found.remaining, found.retry_after, found.refused_by) == (2, 0, 30, 1)
    assert found.decisions[0] is None
    assert found.decisions[2] is None


@pytest.mark.redis
async def test_different_stores(redis_cache: str, clock: Clock) -> None:
    from resty_django.shdict.redis import RedisDict

    here, there = LocalStore(clock=clock), RedisDict("limits", alias=redis_cache)
    slots = Concurrency(1, store=there, clock=clock, on_error="raise")
    count = FixedWindow(3, 60, store=here, clock=clock, on_error="raise")
    first = combine([count, slots], ["k", "k"])
    assert (first.allowed, [one.state for one in first.decisions if one]) == (True, [2, 1])
    assert combine([count, slots], ["k", "k"]).refused_by == 1
    assert slots.leaving("k", token=first.token) == 0
    second = await acombine([count, slots], ["k", "k"])
    assert (second.allowed, [one.state for one in second.decisions if one]) == (True, [1, 1])


# --- against the protocol made of calls -------------------------------------------------------------------------


def oracle(limiters: list[Any], keys: list[str]) -> tuple[bool, float, list[float | None]]:
    """The protocol of two phases as it is written down, made of `incoming` and `uncommit`."""
    count = len(limiters)
    states: list[float | None] = [None] * count
    longest = 0.0
    for i in range(count):
        found = limiters[i].incoming(keys[i], i == count - 1)
        if not found:
            return False, 0.0, states
        if i == count - 1:
            states[i], longest = found.state, found.delay
    for i in range(count - 1):
        found = limiters[i].incoming(keys[i], True)
        if not found:
            for j in (*range(i), count - 1):
                with contextlib.suppress(NotFound):
                    limiters[j].uncommit(keys[j])
            return False, 0.0, states
        states[i], longest = found.state, max(longest, found.delay)
    return True, longest, states


LIMITERS = st.sampled_from(
    [
        (LeakyBucket, (2, 1)),
        (LeakyBucket, (0.5, 3)),
        (FixedWindow, (2, 1)),
        (FixedWindow, (4, 3)),
        (SlidingWindow, (3, 2)),
        (Concurrency, (1, 1, 0.5)),
        (Concurrency, (3, 0, 0.25)),
        (TokenBucket, (300, 2, 1, 400)),
        (TokenBucket, (500, 1, 2)),
    ]
)
STEP = st.tuples(st.lists(st.integers(0, 3), max_size=5), st.lists(st.integers(0, 1), min_size=5, max_size=5))
TRACES = st.tuples(
    st.lists(LIMITERS, min_size=4, max_size=4), st.lists(st.tuples(STEP, st.integers(0, 900)), max_size=12)
)


def replay(trace: Any, store: Any, clock: Clock, how: Any) -> list[Any]:
    """Each step combines some of four limiters, some of them more than once, with two keys each."""
    made, steps = trace
    limiters = [
        cls(*numbers, store=store, clock=clock, prefix=f"{index}:", on_error="raise")
        for index, (cls, numbers) in enumerate(made)
    ]
    found = []
    start = clock.milliseconds
    for (chosen, which), pause in steps:
        own = [limiters[index] for index in chosen]
        keys = ["ab"[one] for one in which[: len(own)]]
        found.append((how(own, keys), [_dry(limiter, key) for limiter in limiters for key in "ab"]))
        clock.milliseconds += pause
    clock.milliseconds = start
    return found


def _dry(limiter: Any, key: str) -> Any:
    found = limiter.peek(key)
    return found.allowed, found.state


def by_combine(limiters: list[Any], keys: list[str]) -> Any:
    states: list[float | None] = []
    found = combine(limiters, keys, states)
    assert (found.refused_by is None) is found.allowed
    return found.allowed, found.delay, states


async def test_a_key_as_text_and_as_bytes_is_one(stored: Bench) -> None:
    """As for the store, so for limiters that share their keys."""
    one, other = (FixedWindow(3, 60, store=stored.store, on_error="raise", clock=stored.clock) for _ in range(2))
    assert combine([one, other], ["k", b"k"]).decisions[0].state == 1  # type: ignore[union-attr]
    assert [one.peek(key).remaining for key in ("k", b"k")] == [1, 1]
    assert combine([one, other], ["7", 7]).allowed
    assert one.peek(b"7").remaining == 1
    assert one.hit(b"\xff").allowed
    assert other.peek(b"\xff".decode(errors="surrogateescape")).remaining == 2


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(trace=TRACES)
def test_same_as_the_protocol(trace: Any, store_for_traces: Any) -> None:
    store, clock, clear = store_for_traces
    clear()
    wanted = replay(trace, LocalStore(clock=clock), clock, oracle)
    assert replay(trace, store, clock, by_combine) == wanted


@pytest.fixture(params=["local", "lmdb", pytest.param("redis", marks=pytest.mark.redis)])
def store_for_traces(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    clock = Clock()
    if request.param == "local":
        local = LocalStore(clock=clock)
        yield local, clock, lambda: [local.delete(f"{i}:{key}") for i in range(4) for key in "ab"]
        return
    made: SharedDict
    if request.param == "lmdb":
        made = LmdbDict("traces", 8 * MIB, str(tmp_path), clock)
    else:
        from resty_django.shdict.redis import RedisDict

        made = RedisDict("traces", alias=request.getfixturevalue("redis_cache"), clock=clock)
    yield made, clock, made.flush_all
    made.close()


@settings(max_examples=40, deadline=None)
@given(trace=TRACES)
def test_call_by_call_is_the_protocol(trace: Any) -> None:
    clock = Clock()

    def by_calls(limiters: list[Any], keys: list[str]) -> Any:
        refused, decisions = _in_calls(limiters, keys)
        states = [None if one is None else one.state for one in decisions]
        delay = max((one.delay for one in decisions), default=0.0) if refused is None else 0.0
        return refused is None, delay, states

    wanted = replay(trace, LocalStore(clock=clock), clock, oracle)
    assert replay(trace, LocalStore(clock=clock), clock, by_calls) == wanted


async def test_an_error_in_the_second_phase_takes_back_what_was_recorded(clock: Clock) -> None:
    class Failing(FixedWindow):
        def incoming(self, key: object, commit: bool = False, cost: int = 1) -> Any:
            if commit:
                raise LimitError("now")
            return super().incoming(key, commit, cost)

        async def aincoming(self, key: object, commit: bool = False, cost: int = 1) -> Any:
            return self.incoming(key, commit, cost)

    first = FixedWindow(5, 60, store=LocalStore(clock=clock), clock=clock)
    failing = Failing(5, 60, store=LocalStore(clock=clock), clock=clock)
    slots = Concurrency(5, store=LocalStore(clock=clock), clock=clock)
    with pytest.raises(LimitError, match="now"):
        _in_calls([first, failing, slots], ["k", "k", "k"])
    with pytest.raises(LimitError, match="now"):
        await _in_acalls([first, failing, slots], ["k", "k", "k"])
    assert (first.peek("k").remaining, slots.peek("k").remaining) == (5, 5)
