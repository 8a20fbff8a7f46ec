"""Several limits as one: the worked examples, and the same decisions as the protocol of two phases made of calls."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resty_django.limits import (
    Concurrency,
    CostTooHigh,
    FixedWindow,
    LeakyBucket,
    Limited,
    LimitError,
    LocalStore,
    NotFound,
    SlidingWindow,
    TokenBucket,
    acombine,
    combine,
)
from resty_django.limits.limiters.combined import CombinedLimiter, deciding_in_calls, together
from resty_django.sansio import arun, run
from resty_django.shdict import SharedDict
from resty_django.shdict.lmdb import LmdbDict
from tests.dictionaries import MIB, Clock
from tests.limiting import Bench, Called


def close(*values: float | None) -> list[Any]:
    return [value if value is None else pytest.approx(value, abs=1e-12) for value in values]


async def test_three_limits_decide_together(stored: Bench) -> None:
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
    for line, (at, delay, expected) in enumerate(table):
        stored.clock.milliseconds = start + at
        if line in {4, 5}:
            stored.clock.milliseconds = start + 100
            assert await conn.leaving("u") == 2
            stored.clock.milliseconds = start + at
        states: list[float | None] = []
        combined = await stored.combine([req, count, conn], ["h", "u", "u"], states)
        assert (combined.allowed, states) == (delay is not None, close(*expected))
        assert combined.delay == pytest.approx(delay or 0, abs=1e-12)
        assert combined.refused_by == {3: 2, 5: 0}.get(line)
    stored.clock.milliseconds = start + 300
    dry = [await req.peek("h"), await count.peek("u"), await conn.peek("u")]
    assert [(decision.allowed, decision.state) for decision in dry] == [(False, None), (False, None), (True, 3)]
    stored.clock.milliseconds = start + 60100
    dry = [await req.peek("h"), await count.peek("u"), await conn.peek("u")]
    assert [(decision.allowed, decision.state) for decision in dry] == [(True, 0), (True, 3), (True, 3)]


async def test_a_window_that_refuses_last_counts_down(stored: Bench) -> None:
    req = stored.make(LeakyBucket, 100, 100, prefix="r:")
    count = stored.make(FixedWindow, 2, 60, prefix="f:")
    for expected, in_progress in (([0, 1], 1), ([1, 0], 0), ([None, None], -1), ([None, None], -2), ([None, None], -3)):
        states: list[float | None] = []
        combined = await stored.combine([req, count], ["k", "k"], states)
        assert (combined.allowed, states) == (expected[1] is not None, expected)
        assert combined.refused_by == (None if combined.allowed else 1)
        assert await count.uncommit("k") == in_progress + 1
        await count.hit("k")


async def test_the_second_phase_refuses(stored: Bench) -> None:
    bucket = stored.make(LeakyBucket, 1, 2, prefix="r:")
    conn = stored.make(Concurrency, 5, 5, 0.5, prefix="c:")
    for expected in ([0, 1, 1], [2, None, 2], [2, None, 2]):
        states: list[float | None] = []
        combined = await stored.combine([bucket, bucket, conn], ["k", "k", "k"], states)
        assert states == expected
        assert (combined.allowed, combined.refused_by) == ((True, None) if expected[1] else (False, 1))
        assert (await conn.is_committed()) is True
        assert (await conn.peek("k")).state - 1 == 1
        assert (await bucket.peek("k")).state - 1 == 1


async def test_none_one_and_wrong_numbers_of_keys(stored: Bench) -> None:
    count = stored.make(FixedWindow, 1, 60)
    assert (await stored.combine([], [])).delay == 0
    first, second = await stored.combine([count], ["k"]), await stored.combine([count], ["k"])
    assert (first.allowed, first.remaining, second.allowed, second.refused_by) == (True, 0, False, 0)
    with pytest.raises(ValueError, match=r"keys .* and limiters .* differ"):
        await stored.combine([count], ["k", "k"])


async def test_the_tightest_limiter_determines_the_numbers(stored: Bench) -> None:
    wide = stored.make(FixedWindow, 10, 60, prefix="w:")
    tight = stored.make(FixedWindow, 2, 30, prefix="t:")
    slots = stored.make(Concurrency, 5, prefix="c:")
    combined = await stored.combine([wide, tight, slots], ["k", "k", "k"])
    assert (combined.limit, combined.remaining, combined.reset_after) == (2, 1, 30)
    assert combined.token == combined.decisions[2].token != ""
    await stored.combine([wide, tight, slots], ["k", "k", "k"])
    combined = await stored.combine([wide, tight, slots], ["k", "k", "k"])
    assert (combined.limit, combined.remaining, combined.retry_after, combined.refused_by) == (2, 0, 30, 1)
    assert combined.decisions[0] is None
    assert combined.decisions[2] is None


@pytest.mark.redis
async def test_several_rates_have_the_calls_of_one_limiter(stored: Bench) -> None:
    fast = stored.make(SlidingWindow, 3, 1, prefix="fast:")
    slow = stored.make(SlidingWindow, 4, 100, prefix="slow:")
    both = together([fast.limiter, slow.limiter])
    assert together([fast.limiter]) is fast.limiter
    assert isinstance(both, CombinedLimiter)
    assert both.describe() == f"{fast.limiter.describe()} and {slow.limiter.describe()}"
    limiter = Called(both, stored.twins)  # type: ignore[arg-type]
    stored.clock.milliseconds = 100_000

    async def left() -> list[int]:
        peeks = [await Called(rate.limiter, stored.twins).peek("k") for rate in (fast, slow)]
        return [decision.remaining for decision in peeks]

    decision = await limiter.hit("k", 2)
    assert (decision.allowed, decision.limit, decision.remaining) == (True, 3, 1)
    refusal = await limiter.hit("k", 2)
    assert (refusal.allowed, refusal.limit) == (False, 3)
    assert await left() == [1, 2]
    assert (await limiter.hit("k")).remaining == 0
    assert not await limiter.peek("k")
    await limiter.uncommit("k")
    assert (await limiter.peek("k")).remaining == 1
    assert await left() == [1, 2]

    stored.clock.milliseconds += 2000
    assert await left() == [3, 2]
    refusal = await limiter.hit("k", 3)
    assert (refusal.allowed, refusal.limit) == (False, 4)
    assert await left() == [3, 2], "the refusal of the second rate undid the record of the first one"
    with pytest.raises(CostTooHigh):
        await limiter.hit("k", 4)
    assert (await limiter.acquire("k", 0, 2)).remaining == 0
    with pytest.raises(Limited) as refused:
        async with both.slot("k"):
            pytest.fail("the block ran without a slot")
    assert refused.value.decision.limit == 4
    with pytest.raises(Limited), both.slot("k"):
        pytest.fail("the block ran without a slot")
    assert await limiter.reset("k")
    assert not await limiter.reset("k")
    with both.slot("k", 0, 3) as decision:
        assert decision.allowed
    assert await left() == [0, 1]


async def test_limiters_on_different_stores_decide_together(redis_cache: str, clock: Clock) -> None:
    from resty_django.shdict.redis import RedisDict

    local, remote = LocalStore(clock=clock), RedisDict("limits", alias=redis_cache)
    slots = Concurrency(1, store=remote, clock=clock, on_error="raise")
    count = FixedWindow(3, 60, store=local, clock=clock, on_error="raise")
    first = combine([count, slots], ["k", "k"])
    assert (first.allowed, [decision.state for decision in first.decisions if decision]) == (True, [2, 1])
    assert combine([count, slots], ["k", "k"]).refused_by == 1
    assert slots.leaving("k", token=first.token) == 0
    second = await acombine([count, slots], ["k", "k"])
    assert (second.allowed, [decision.state for decision in second.decisions if decision]) == (True, [1, 1])


# --- against the protocol made of calls -------------------------------------------------------------------------


def oracle(limiters: list[Any], keys: list[str]) -> tuple[bool, float, list[float | None]]:
    """The protocol of two phases as it is written down, made of `incoming` and `uncommit`."""
    count = len(limiters)
    states: list[float | None] = [None] * count
    longest = 0.0
    for i in range(count):
        decision = limiters[i].incoming(keys[i], i == count - 1)
        if not decision:
            return False, 0.0, states
        if i == count - 1:
            states[i], longest = decision.state, decision.delay
    for i in range(count - 1):
        decision = limiters[i].incoming(keys[i], True)
        if not decision:
            for j in (*range(i), count - 1):
                with contextlib.suppress(NotFound):
                    limiters[j].uncommit(keys[j])
            return False, 0.0, states
        states[i], longest = decision.state, max(longest, decision.delay)
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
        (TokenBucket.from_interval, (300, 2, 1, 400)),
        (TokenBucket.from_interval, (500, 1, 2)),
    ]
)
STEP = st.tuples(st.lists(st.integers(0, 3), max_size=5), st.lists(st.integers(0, 1), min_size=5, max_size=5))
TRACES = st.tuples(
    st.lists(LIMITERS, min_size=4, max_size=4), st.lists(st.tuples(STEP, st.integers(0, 900)), max_size=12)
)


def replay(trace: Any, store: Any, clock: Clock, how: Any) -> list[Any]:
    """Each step combines some of four limiters, some of them more than once, with two keys each."""
    specs, steps = trace
    limiters = [
        cls(*numbers, store=store, clock=clock, prefix=f"{index}:", on_error="raise")
        for index, (cls, numbers) in enumerate(specs)
    ]
    results = []
    start = clock.milliseconds
    for (chosen, which), pause in steps:
        used = [limiters[index] for index in chosen]
        keys = ["ab"[bit] for bit in which[: len(used)]]
        results.append((how(used, keys), [_dry(limiter, key) for limiter in limiters for key in "ab"]))
        clock.milliseconds += pause
    clock.milliseconds = start
    return results


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
    first, second = (FixedWindow(3, 60, store=stored.store, on_error="raise", clock=stored.clock) for _ in range(2))
    assert combine([first, second], ["k", b"k"]).decisions[0].state == 1  # type: ignore[union-attr]
    assert [first.peek(key).remaining for key in ("k", b"k")] == [1, 1]
    assert combine([first, second], ["7", 7]).allowed
    assert first.peek(b"7").remaining == 1
    assert first.hit(b"\xff").allowed
    assert second.peek(b"\xff".decode(errors="surrogateescape")).remaining == 2


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(trace=TRACES)
def test_combine_decides_as_the_protocol(trace: Any, store_for_traces: Any) -> None:
    empty_store, clock = store_for_traces
    expected = replay(trace, LocalStore(clock=clock), clock, oracle)
    assert replay(trace, empty_store(), clock, by_combine) == expected


@pytest.fixture(params=["local", "lmdb", pytest.param("redis", marks=pytest.mark.redis)])
def store_for_traces(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    """A function that returns a store without states, and the clock of that store."""
    clock = Clock()
    if request.param == "local":
        yield lambda: LocalStore(clock=clock), clock
        return
    dictionary: SharedDict
    if request.param == "lmdb":
        dictionary = LmdbDict("traces", 8 * MIB, str(tmp_path), clock)
    else:
        from resty_django.shdict.redis import RedisDict

        dictionary = RedisDict("traces", alias=request.getfixturevalue("redis_cache"), clock=clock)

    def emptied() -> SharedDict:
        dictionary.flush_all()
        return dictionary

    yield emptied, clock
    dictionary.close()


@settings(max_examples=40, deadline=None)
@given(trace=TRACES)
def test_call_by_call_is_the_protocol(trace: Any) -> None:
    clock = Clock()

    def by_calls(limiters: list[Any], keys: list[str]) -> Any:
        refused, decisions = run(deciding_in_calls(limiters, keys))
        states = [None if decision is None else decision.state for decision in decisions]
        delay = max((decision.delay for decision in decisions), default=0.0) if refused is None else 0.0
        return refused is None, delay, states

    expected = replay(trace, LocalStore(clock=clock), clock, oracle)
    assert replay(trace, LocalStore(clock=clock), clock, by_calls) == expected


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
        run(deciding_in_calls([first, failing, slots], ["k", "k", "k"]))
    with pytest.raises(LimitError, match="now"):
        await arun(deciding_in_calls([first, failing, slots], ["k", "k", "k"]))
    assert (first.peek("k").remaining, slots.peek("k").remaining) == (5, 5)
