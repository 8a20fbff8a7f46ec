"""Invariants of all limiters on all stores while the clock moves and numbers change.

Sequences of calls, with steps of the clock forward and back, costs and edits. The pure algorithm, which is cheap, is
checked at each step; every store has to decide as it does.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resty_django.limits import (
    Concurrency,
    CostTooHigh,
    Decision,
    FixedWindow,
    LeakyBucket,
    LocalStore,
    NotFound,
    SlidingWindow,
    TokenBucket,
)
from resty_django.limits.algorithms import FRAME
from resty_django.limits.limiters.units import parse_rate
from resty_django.limits.limiters.validation import MAX_AMOUNT, MAX_SECONDS, MIN_NUMBER
from resty_django.shdict.lmdb import LmdbDict
from resty_django.shdict.redis import RedisDict
from tests.dictionaries import MIB, Clock
from tests.limiting import Bench, Pure, reconfigure

pytestmark = pytest.mark.contract

HOUR = 3_600_000
PAUSES = st.one_of(
    st.sampled_from([0, 0, 1, 100, 500, 1000, 7000, 61_000]),
    st.sampled_from([-1, -100, -700, -1000, -7000, -61_000, -HOUR, HOUR]),
    st.integers(-9000, 9000),
)
SHORT_PAUSES = st.one_of(
    st.just(0), st.sampled_from([1, 3, 100, 334, 500, 1000, 3000, 7000]), st.integers(0, 900), st.integers(-700, 20_000)
)
"""Pauses in which a state that expires is as good as none."""
KEYS = st.sampled_from("aaaab")
COSTS = st.sampled_from([1, 1, 1, 2, 3, 5])
RATES = st.sampled_from([0.125, 0.5, 1, 3, 7.3, 100])
BURSTS = st.sampled_from([0, 0.5, 1, 3, 10])
LIMITS = st.integers(1, 7)
WINDOWS = st.sampled_from([0.003, 0.5, 1, 7, 60])

NUMBERS: dict[type[Any], Any] = {
    LeakyBucket: st.tuples(RATES, BURSTS, st.fixed_dictionaries({"clamp": st.booleans(), "idle": st.none()})),
    FixedWindow: st.tuples(LIMITS, WINDOWS, st.just({})),
    SlidingWindow: st.tuples(LIMITS, WINDOWS, st.just({})),
    Concurrency: st.tuples(
        st.integers(1, 4),
        st.integers(0, 3),
        st.just(0.5),
        st.fixed_dictionaries({"lease": st.sampled_from([None, 3, 100])}),
    ),
    TokenBucket.from_interval: st.tuples(
        st.sampled_from([1, 100, 333.3, 1000]),
        st.sampled_from([0, 1, 2.5, 10]),
        st.sampled_from([1, 2, 0.5]),
        st.sampled_from([None, 0, 700, 5000]),
        st.fixed_dictionaries({"clamp": st.booleans()}),
    ),
}
EDITS: dict[type[Any], list[Any]] = {
    LeakyBucket: [st.tuples(st.just("set_rate"), RATES), st.tuples(st.just("set_burst"), BURSTS)],
    FixedWindow: [st.tuples(st.just("set_limit"), LIMITS), st.tuples(st.just("set_window"), WINDOWS)],
    SlidingWindow: [st.tuples(st.just("set_limit"), LIMITS), st.tuples(st.just("set_window"), WINDOWS)],
    Concurrency: [
        st.tuples(st.just("set_conn"), st.integers(1, 4)),
        st.tuples(st.just("leave"), KEYS),
        st.tuples(st.just("leave"), KEYS),
        st.tuples(st.just("leaving"), KEYS, st.sampled_from([None, 0, 0.7])),
        st.tuples(st.just("renew"), KEYS),
    ],
    TokenBucket.from_interval: [
        st.tuples(st.just("set_max_wait"), st.sampled_from([None, 0, 0.9])),
        st.tuples(st.just("take"), KEYS, st.integers(1, 12), st.booleans()),
        st.tuples(st.just("take_available"), KEYS, st.integers(-1, 12)),
    ],
}
BUDGET: dict[str, Any] = {"max_examples": 60, "deadline": None, "suppress_health_check": list(HealthCheck)}


def sequences(cls: type[Any], pauses: Any = PAUSES, size: int = 25) -> Any:
    calls = st.one_of(
        st.tuples(st.just("hit"), KEYS, COSTS),
        st.tuples(st.just("hit"), KEYS),
        st.tuples(st.just("peek"), KEYS, COSTS),
        st.tuples(st.just("uncommit"), KEYS),
        *EDITS[cls],
    )
    return st.tuples(st.just(cls), NUMBERS[cls], st.lists(st.tuples(pauses, calls), max_size=size))


class Player:
    """Plays a trace on one limiter, and says what each call gave; slots are known by the order of their taking."""

    def __init__(self, trace: Any, make: Callable[..., Any], clock: Clock) -> None:
        cls, (*numbers, options), self.steps = trace
        self.limiter = make(cls, *numbers, **options)
        self.clock = clock
        self.slots: dict[str, list[str]] = {"a": [], "b": []}

    async def play(self) -> list[Any]:
        start = self.clock.milliseconds
        results = []
        for pause, (name, *arguments) in self.steps:
            self.clock.milliseconds += pause
            results.append((name, *arguments, await self.call(name, arguments)))
        self.clock.milliseconds = start
        return results

    async def call(self, name: str, arguments: list[Any]) -> Any:
        key = arguments[0]
        if name in {"leave", "renew"}:
            if not self.slots[key]:
                return None
            token = self.slots[key].pop(0)
            if name == "renew":
                self.slots[key].append(token)
            name, arguments = ("leaving", [key, None, token]) if name == "leave" else ("renew", [key, token])
        try:
            result = getattr(self.limiter, name)(*arguments)
            result = await result if hasattr(result, "__await__") else result
        except NotFound:
            return "not found"
        except CostTooHigh:
            return "cost too high"
        if isinstance(result, Decision) and result.token:
            self.slots[key].append(result.token)
            result = result.replace(token="token")
        return result


def longest(limiter: Any, cost: int) -> float:
    """Seconds after which a request of that cost passes at the latest, where a fresh key was used up at once."""
    if isinstance(limiter, LeakyBucket):
        return max(limiter.burst + 1, cost) / limiter.rate
    if isinstance(limiter, FixedWindow):
        return limiter.window
    if isinstance(limiter, SlidingWindow):
        return 2 * limiter.window
    if isinstance(limiter, TokenBucket):
        owed = 0 if limiter.max_wait_ms is None else math.ceil(limiter.max_wait_ms / limiter.interval_ms)
        ticks = max(math.ceil(limiter.capacity / limiter.quantum), 1)
        needed = math.ceil(cost / limiter.quantum) + 1 + owed
        return max(ticks, needed) * limiter.interval_ms / 1000
    raise TypeError(limiter)


class Watched(Pure):
    """A pure limiter, of which each decision is looked at."""

    async def incoming(self, key: str, commit: bool = False, cost: int = 1) -> Decision:
        decision = await super().incoming(key, commit, cost)
        if isinstance(self.limiter, Concurrency):  # who leaves without having come lets others in
            assert decision.remaining <= max(decision.limit, self.passing(key))
            return decision
        uncommitted = self.uncommitted(key)
        if self.whole and not self.ran_back(key):
            assert decision.remaining == self.passing(key), (decision, cost)
        assert decision.remaining <= max(decision.limit, uncommitted)
        assert 0 <= decision.retry_after <= longest(self.limiter, cost) + 0.001, (decision, cost)
        beyond = isinstance(self.limiter, TokenBucket) and cost > self.limiter.capacity  # which only a wait can pay
        if not decision.allowed and self.whole and not beyond:
            assert self.after(decision.retry_after, key, cost).allowed, (decision, cost)
            if decision.retry_after >= 0.002 and not self.ran_back(key):
                assert not self.after(decision.retry_after - 0.002, key, cost).allowed, (decision, cost)
        return decision

    @property
    def whole(self) -> bool:
        """Whether nothing is lost when the state is stored, as parts of tokens are."""
        limiter = self.limiter
        if not isinstance(limiter, TokenBucket):
            return True
        return bool(limiter.capacity % 1 == limiter.quantum % 1 == limiter.interval_ms % 1 == 0)

    def uncommitted(self, key: str) -> int:
        """How many are left of a fixed window, which `uncommit` can raise above the limit."""
        return self.passing(key) if isinstance(self.limiter, FixedWindow) else 0

    def ran_back(self, key: str) -> bool:
        """Whether the state is of a time that is still to come; what passes then depends on the request."""
        if key not in self.states:
            return False
        first, second = (int.from_bytes(self.states[key][at : at + 8], "little") for at in (FRAME, FRAME + 8))
        if isinstance(self.limiter, SlidingWindow):
            return first > self.limiter.now()
        window = self.limiter.config.window if isinstance(self.limiter, FixedWindow) else 0
        return second > self.limiter.now() + window

    def passing(self, key: str) -> int:
        """How many requests of cost 1 pass now, without a delay of a token bucket."""
        states, count = dict(self.states), 0
        while count < 100:
            decision = self.decided(states, key, 1)
            if not decision.allowed or (isinstance(self.limiter, TokenBucket) and decision.state < 0):  # type: ignore[operator]
                break
            count += 1
        return count

    def after(self, seconds: float, key: str, cost: int) -> Decision:
        clock = self.limiter.clock
        before = clock.milliseconds
        clock.milliseconds += math.ceil(round(seconds * 1000, 6))
        states = dict(self.states)
        if key not in states:  # ticks begin with what is recorded
            clock.milliseconds = before
            self.decided(states, key, cost)
            clock.milliseconds += math.ceil(round(seconds * 1000, 6))
        try:
            return self.decided(states, key, cost)
        finally:
            clock.milliseconds = before

    def decided(self, states: dict[str, bytes], key: str, cost: int) -> Decision:
        algorithm, config = self.limiter.algorithm, self.limiter.config
        state, _, decision = algorithm.incoming(states.get(key), self.limiter.now(), config, cost, True)
        if state is not None:
            states[key] = state
        assert isinstance(decision, Decision)
        return decision


def watched(clock: Clock) -> Any:
    def make(cls: type[Any], *numbers: Any, **options: Any) -> Watched:
        return Watched(cls(*numbers, store=LocalStore(), clock=clock, **options), {})

    return make


@pytest.mark.parametrize("cls", NUMBERS)
@settings(**{**BUDGET, "max_examples": 150})
@given(data=st.data())
def test_what_holds_of_each_decision(cls: type[Any], data: st.DataObject) -> None:
    """`remaining` is how many pass, `retry_after` when one does, and neither is beyond what a fresh key would have."""
    clock = Clock()
    asyncio.run(Player(data.draw(sequences(cls)), watched(clock), clock).play())


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("cls", NUMBERS)
@settings(**{**BUDGET, "max_examples": 4000})
@given(data=st.data())
def test_what_holds_of_many_decisions(cls: type[Any], data: st.DataObject) -> None:
    clock = Clock()
    asyncio.run(Player(data.draw(sequences(cls)), watched(clock), clock).play())


def local(clock: Clock) -> Any:
    def make(cls: type[Any], *numbers: Any, **options: Any) -> Any:
        return cls(*numbers, store=LocalStore(clock=clock), clock=clock, **options)

    return make


async def assert_same_as_pure(sequence: Any) -> None:
    """A state in a store expires by the window that it was written with, so the window stays."""
    clock = Clock()
    cls, numbers, steps = sequence
    sequence = cls, numbers, [step for step in steps if step[1][0] != "set_window"]

    def pure(cls: type[Any], *numbers: Any, **options: Any) -> Any:
        return Pure(cls(*numbers, store=LocalStore(), clock=clock, **options), {})

    assert await Player(sequence, local(clock), clock).play() == await Player(sequence, pure, clock).play()


@pytest.mark.parametrize("cls", NUMBERS)
@settings(**BUDGET)
@given(data=st.data())
def test_a_store_in_the_process_decides_as_the_algorithm(cls: type[Any], data: st.DataObject) -> None:
    asyncio.run(assert_same_as_pure(data.draw(sequences(cls, SHORT_PAUSES))))


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("cls", NUMBERS)
@settings(**{**BUDGET, "max_examples": 2000})
@given(data=st.data())
def test_it_decides_as_the_algorithm_many_times(cls: type[Any], data: st.DataObject) -> None:
    asyncio.run(assert_same_as_pure(data.draw(sequences(cls, SHORT_PAUSES, 80))))


@pytest.fixture(params=["lmdb", pytest.param("redis", marks=pytest.mark.redis)])
def dictionary(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A store outside of the process, and its clock."""
    clock = Clock()
    if request.param == "lmdb":
        shared: Any = LmdbDict("contract", 8 * MIB, str(tmp_path), clock)
    else:
        shared = RedisDict("contract", alias=request.getfixturevalue("redis_cache"), clock=clock)
    yield shared, clock
    shared.close()


@pytest.mark.parametrize("cls", NUMBERS)
@settings(**BUDGET)
@given(data=st.data())
def test_every_store_decides_the_same(cls: type[Any], data: st.DataObject, dictionary: Any) -> None:
    sequence = data.draw(sequences(cls))
    store, clock = dictionary
    for key in "ab":
        store.delete(f"{getattr(cls, '__self__', cls).algorithm.lua}:{key}")

    def stored(cls: type[Any], *numbers: Any, **options: Any) -> Any:
        return cls(*numbers, store=store, clock=clock, on_error="raise", **options)

    async def play() -> None:
        assert await Player(sequence, stored, clock).play() == await Player(sequence, local(clock), clock).play()

    asyncio.run(play())


# --- the clock is set ------------------------------------------------------------------------------------------------

SATURATED: list[Any] = [
    pytest.param(LeakyBucket, (2, 3), {}, 2, id="leaky"),
    pytest.param(LeakyBucket, (2, 0), {}, 0.5, id="leaky without a queue"),
    pytest.param(LeakyBucket, (2, 3), {"clamp": True}, 2, id="leaky clamped"),
    pytest.param(FixedWindow, (3, 10), {}, 10, id="fixed"),
    pytest.param(SlidingWindow, (3, 10), {}, 20, id="sliding"),
    pytest.param(TokenBucket.from_interval, (500, 4, 1, 0), {}, 2, id="token"),
    pytest.param(TokenBucket.from_interval, (500, 4, 1, 0), {"idle": 60}, 2, id="token that is forgotten"),
    pytest.param(TokenBucket.from_interval, (1000, 1, 1, 0), {}, 1, id="token of one"),
    pytest.param(TokenBucket.from_interval, (500, 4, 1, 0), {"clamp": True}, 2, id="token clamped"),
    pytest.param(TokenBucket.from_interval, (500, 4, 1, 700), {}, 3, id="token with a wait"),
    pytest.param(Concurrency, (2, 1), {"lease": 10}, 10, id="concurrency"),
]


@pytest.mark.parametrize(("cls", "numbers", "options", "window"), SATURATED)
async def test_a_limit_recovers_within_its_window_when_the_clock_is_set(
    cls: type[Any], numbers: Any, options: Any, window: float, stores: Bench
) -> None:
    limiter = stores.make(cls, *numbers, **options)
    for jump in (-3600, -7, -1, -0.001, 3600):
        key, most, retries = f"jump of {jump}", 0, 0
        while await limiter.hit(key):
            most += 1
        stores.clock.advance(jump)
        while (decision := await limiter.hit(key)).allowed:
            retries += 1
        refills = jump > 0 or (cls is LeakyBucket and not limiter.limiter.clamp)
        assert retries <= (most if refills else 1), key
        if cls is not Concurrency:
            assert decision.retry_after <= window, key
        stores.clock.advance(window)
        assert await limiter.hit(key), key


@pytest.mark.parametrize(("cls", "numbers", "options", "window"), SATURATED[:-1])
async def test_a_limit_that_is_only_asked_recovers_as_well(
    cls: type[Any], numbers: Any, options: Any, window: float, stores: Bench
) -> None:
    """As where another limit of the request refuses: nothing is recorded that would note the new time."""
    limiter = stores.make(cls, *numbers, **options)
    for jump in (-3600, -7, -1):
        key = f"jump of {jump}"
        while await limiter.hit(key):
            pass
        stores.clock.advance(jump)
        decision = await limiter.peek(key)
        assert decision.retry_after <= window, key
        stores.clock.advance(decision.retry_after)
        assert await limiter.peek(key), key


async def test_a_bucket_without_bound_delays_nobody_for_a_step_of_the_clock(stores: Bench) -> None:
    tokens = stores.make(TokenBucket.from_interval, 1000, 2)
    for _ in range(4):
        await tokens.hit("k")
    stores.clock.advance(-3600)
    assert (await tokens.hit("k")).delay == 3


# --- numbers are edited ----------------------------------------------------------------------------------------------


async def test_what_is_recorded_follows_new_numbers(stores: Bench) -> None:
    leaky = stores.make(LeakyBucket, 0.1, 10, prefix="l:")
    for _ in range(11):
        await leaky.hit("k")
    await leaky.set_burst(1)
    assert (await leaky.peek("k")).retry_after == 10
    assert await leaky.uncommit("k") is True
    assert (await leaky.hit("k")).state == 1
    fixed = stores.make(FixedWindow, 100, 3600, prefix="f:")
    for _ in range(10):
        await fixed.hit("k")
    await fixed.set_limit(11)
    assert [(await fixed.hit("k")).allowed for _ in range(2)] == [True, False]
    await fixed.set_limit(20)
    assert (await fixed.peek("k")).remaining == 8
    assert await fixed.uncommit("k") == 9
    await fixed.set_window(10)
    assert (await fixed.peek("k")).reset_after == 10
    sliding = stores.make(SlidingWindow, 10, 1, prefix="s:")
    for _ in range(10):
        await sliding.hit("k")
    await sliding.set_window(60)
    decision = await sliding.hit("k")
    assert not decision.allowed
    assert decision.retry_after <= 66
    stores.clock.advance(decision.retry_after)
    if stores.kind == "pure":
        assert await sliding.hit("k")
    slots = stores.make(Concurrency, 1, lease=3600, prefix="c:")
    await slots.hit("k")
    reconfigure(slots, lease=10)
    assert not await slots.hit("k")
    stores.clock.advance(10)
    assert await slots.hit("k")
    tokens = stores.make(TokenBucket.from_interval, 1000, 100, 1, None, prefix="t:")
    await tokens.hit("k", 10)
    reconfigure(tokens, capacity=5)
    assert (await tokens.peek("k")).remaining == 5
    await tokens.hit("k", 25)
    assert (await tokens.peek("k")).delay == 21
    await tokens.set_max_wait(0)
    assert (await tokens.peek("k")).retry_after == 1


async def test_a_slower_rate_keeps_what_was_recorded_at_a_faster_one(stores: Bench) -> None:
    """A state that was to be forgotten soon is kept for as long as it matters by the new numbers."""
    for idle in (0, 60):
        leaky = stores.make(LeakyBucket, 100, 3, idle=idle, prefix=f"l{idle}:")
        tokens = stores.make(TokenBucket.from_interval, 10, 4, 1, 0, idle=idle, prefix=f"t{idle}:")
        for limiter in (leaky, tokens):
            await limiter.hit("k")
        await leaky.set_rate(0.001)
        reconfigure(tokens, interval_ms=1_000_000)
        for limiter in (leaky, tokens):
            for _ in range(3):
                assert await limiter.hit("k")
        stores.clock.advance(900)
        assert not await leaky.hit("k")
        assert not await tokens.hit("k")


# --- small promises --------------------------------------------------------------------------------------------------


class Ticking(Clock):
    """Each look at it takes a millisecond."""

    def __call__(self) -> float:
        self.milliseconds += 1
        return super().__call__()


async def test_a_fixed_window_does_not_end_early(request: pytest.FixtureRequest, stores: Bench) -> None:
    limiter = stores.make(FixedWindow, 1, 10)
    stores.clock.__class__ = Ticking
    assert await limiter.hit("k")
    stores.clock.__class__ = Clock
    until = (await limiter.peek("k")).reset_after
    stores.clock.advance(until - 0.001)
    assert not await limiter.hit("k")
    stores.clock.advance(0.001)
    assert await limiter.hit("k")
    if stores.kind != "local":  # and a server that counts by its own time has some to spare
        assert stores.store.ttl(limiter.limiter.key("k")) > 10


async def test_uncommit_returns_the_same_on_every_store(every: Bench) -> None:
    limiters = [
        every.make(LeakyBucket, 1, 5),
        every.make(FixedWindow, 5, 10),
        every.make(SlidingWindow, 5, 10),
        every.make(TokenBucket.from_interval, 1000, 5),
        every.make(Concurrency, 5),
    ]
    returned = []
    for key, limiter in zip("abcde", limiters, strict=True):
        for _ in range(3):
            await limiter.hit(key)
        returned.append(await limiter.uncommit(key))
    assert [(type(value), value) for value in returned] == [(bool, True), (int, 3), (int, 3), (bool, True), (int, 2)]


@pytest.mark.parametrize(
    ("cls", "numbers", "highest"),
    [
        (FixedWindow, (3, 10), 3),
        (SlidingWindow, (3, 10), 3),
        (Concurrency, (2, 1), 3),
        (TokenBucket.from_interval, (1000, 3, 1, 0), 3),
        (TokenBucket.from_interval, (1000, 3, 1, 2000), 5),
        (TokenBucket.from_interval, (1000, 3, 2, 1000), 5),
    ],
)
async def test_a_request_that_can_never_pass_is_an_error(cls: type[Any], numbers: Any, highest: int) -> None:
    limiter = cls(*numbers, store=LocalStore())
    message = f"cost {highest + 1} can never pass this limit: .* Lower the cost"
    for call in (limiter.hit, limiter.peek, limiter.incoming):
        with pytest.raises(CostTooHigh, match=message):
            call("k", cost=highest + 1)
    for acall in (limiter.ahit, limiter.apeek):
        with pytest.raises(CostTooHigh, match=message):
            await acall("k", cost=highest + 1)
    assert limiter.hit("k", highest)


@pytest.mark.parametrize(
    ("cls", "numbers", "options"),
    [
        (LeakyBucket, (MAX_AMOUNT, MAX_AMOUNT), {}),
        (LeakyBucket, (MIN_NUMBER, MAX_AMOUNT), {"idle": MAX_AMOUNT}),
        (FixedWindow, (MAX_AMOUNT, MAX_SECONDS), {}),
        (SlidingWindow, (MAX_AMOUNT, MAX_SECONDS), {}),
        (Concurrency, (MAX_AMOUNT, MAX_AMOUNT, MAX_AMOUNT), {"lease": None}),
        (TokenBucket, (MAX_AMOUNT,), {"max_wait": MAX_SECONDS}),
        (TokenBucket, (MAX_AMOUNT, MAX_AMOUNT), {"idle": MAX_SECONDS}),
        (TokenBucket.from_interval, (1, MAX_AMOUNT, MAX_AMOUNT, 0), {}),
        (TokenBucket.from_interval, (MAX_AMOUNT, MAX_AMOUNT, MIN_NUMBER), {"idle": MAX_SECONDS}),
    ],
)
async def test_the_largest_and_smallest_numbers_work(cls: type[Any], numbers: Any, options: Any, stores: Bench) -> None:
    limiter = stores.make(cls, *numbers, **options)
    for cost in (MAX_AMOUNT, 1):
        for _ in range(3):
            await limiter.hit("k", cost)
            stores.clock.advance(0.001)
    assert math.isfinite((await limiter.peek("k")).retry_after)
    await limiter.uncommit("k", MAX_AMOUNT)
    stores.clock.advance(MAX_SECONDS)
    assert (await limiter.hit("k")).allowed or cls is Concurrency


@pytest.mark.parametrize("cost", [MAX_AMOUNT + 1, 2**63, 10**400], ids=["most", "int64", "float"])
@pytest.mark.parametrize("cls", [LeakyBucket, FixedWindow, SlidingWindow, Concurrency, TokenBucket])
async def test_a_cost_beyond_all_limits_is_an_error(cls: type[Any], cost: int, stores: Bench) -> None:
    limiter = stores.make(
        cls,
        *{LeakyBucket: (1, MAX_AMOUNT), Concurrency: (MAX_AMOUNT, MAX_AMOUNT), TokenBucket: (1, 1)}.get(
            cls, (MAX_AMOUNT, 1)
        ),
    )
    for call in (limiter.hit, limiter.peek, limiter.uncommit):
        with pytest.raises(CostTooHigh):
            await call("k", cost)
    if cls is TokenBucket:
        assert await limiter.take_available("k", cost) == 1


def test_a_request_has_a_maximum_of_leases() -> None:
    slots = Concurrency(MAX_AMOUNT, store=LocalStore())
    assert slots.hit("k", 2**16)
    with pytest.raises(CostTooHigh, match=r"Set lease=None"):
        slots.hit("k", 2**16 + 1)


@pytest.mark.parametrize("rate", ["7/s", "300/s", "999/s", "1500/s"])
async def test_a_token_bucket_keeps_its_rate_between_milliseconds(rate: str, stores: Bench) -> None:
    """It is asked in each millisecond, and has room for a few tokens only."""
    bucket = stores.make(TokenBucket, rate, 3, max_wait=0)
    await bucket.hit("k", 3)
    taken = 0.0
    for _ in range(2000):
        stores.clock.advance(0.001)
        taken += await bucket.take_available("k", 3)
    count = 2 * parse_rate(rate)
    assert count * 0.9997 - 2 <= taken <= count


def test_nobody_waits_for_what_can_never_pass() -> None:
    for limiter in (
        FixedWindow(3, 10, store=LocalStore()),
        TokenBucket.from_interval(1000, 0, 1, 0, store=LocalStore()),
    ):
        with pytest.raises(CostTooHigh):
            limiter.acquire("k", wait=None, cost=4)
    with pytest.raises(CostTooHigh):
        limiter.acquire("k", wait=None)
    with pytest.raises(CostTooHigh), Concurrency(3, store=LocalStore()).slot("k", None, 4):
        pass
    with pytest.raises(ValueError, match="can never pass"):
        FixedWindow(3, 10, store=LocalStore()).hit("k", 4)
    assert TokenBucket.from_interval(1000, 3, store=LocalStore()).hit("k", 50).delay == 47


@pytest.mark.parametrize(("burst", "cost"), [(3, 3), (3, 4), (0, 2), (2.5, 3)])
def test_remaining_of_a_leaky_bucket_is_in_requests_of_cost_1(burst: float, cost: int) -> None:
    limiter = LeakyBucket(100, burst, store=LocalStore())
    assert limiter.peek("k", cost=cost).remaining == limiter.peek("k").remaining == int(burst) + 1
