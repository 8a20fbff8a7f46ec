"""Traces of calls at random times: every store decides as the pure algorithm does, call by call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
from resty_django.shdict.lmdb import LmdbDict
from tests.dictionaries import MIB, Clock
from tests.limiting import Pure

RATES = st.sampled_from([0.125, 0.5, 1, 2, 3, 7.3, 100])
COSTS = st.sampled_from([1, 1, 1, 1, 2, 5])
PAUSES = st.one_of(
    st.just(0), st.sampled_from([1, 3, 100, 334, 500, 1000, 3000, 7000]), st.integers(0, 900), st.integers(-700, 20_000)
)
KEYS = st.sampled_from("aaaab")

NUMBERS: dict[type[Any], Any] = {
    LeakyBucket: st.tuples(RATES, st.sampled_from([0, 0.5, 1, 3, 10]), st.fixed_dictionaries({"clamp": st.booleans()})),
    FixedWindow: st.tuples(st.integers(1, 5), st.sampled_from([0.001, 0.5, 1, 7]), st.just({})),
    SlidingWindow: st.tuples(st.integers(1, 7), st.sampled_from([0.003, 0.5, 1, 7]), st.just({})),
    Concurrency: st.tuples(
        st.integers(1, 4),
        st.integers(0, 3),
        st.sampled_from([0.5, 1]),
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
CALLS: dict[type[Any], list[Any]] = {
    LeakyBucket: [st.tuples(st.just("set_rate"), RATES), st.tuples(st.just("set_burst"), st.integers(0, 9))],
    FixedWindow: [st.tuples(st.just("set_limit"), st.integers(1, 9))],
    SlidingWindow: [st.tuples(st.just("set_limit"), st.integers(1, 9))],
    Concurrency: [
        st.tuples(st.just("set_conn"), st.integers(1, 5)),
        st.tuples(st.just("leave"), KEYS),
        st.tuples(st.just("leave"), KEYS),
        st.tuples(st.just("leave"), KEYS),
        st.tuples(st.just("leaving"), KEYS, st.sampled_from([None, 0, 0.7])),
        st.tuples(st.just("renew"), KEYS),
    ],
    TokenBucket.from_interval: [
        st.tuples(st.just("take"), KEYS, st.integers(1, 12), st.booleans()),
        st.tuples(st.just("take_available"), KEYS, st.integers(-1, 12)),
        st.tuples(st.just("set_max_wait"), st.sampled_from([None, 0, 0.9])),
    ],
}


def trace_of(cls: type[Any], size: int = 30) -> Any:
    common = [
        st.tuples(st.just("hit"), KEYS, COSTS),
        st.tuples(st.just("hit"), KEYS),
        st.tuples(st.just("peek"), KEYS, COSTS),
        st.tuples(st.just("uncommit"), KEYS),
    ]
    calls = st.one_of(*common, *CALLS[cls])
    return st.tuples(st.just(cls), NUMBERS[cls], st.lists(st.tuples(PAUSES, calls), max_size=size))


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
            result = result._replace(token="token")
        return result


@pytest.fixture(params=["local", "lmdb", pytest.param("redis", marks=pytest.mark.redis)])
def traced(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A store, its clock, and what empties it."""
    clock = Clock()
    if request.param == "local":
        local = LocalStore(clock=clock)
        yield local, clock, lambda: [local.delete(key) for key in "ab"]
        return
    dictionary: Any
    if request.param == "lmdb":
        dictionary = LmdbDict("traces", 8 * MIB, str(tmp_path), clock)
    else:
        from resty_django.shdict.redis import RedisDict

        dictionary = RedisDict("traces", alias=request.getfixturevalue("redis_cache"), clock=clock)
    yield dictionary, clock, lambda: [dictionary.delete(key) for key in "ab"]
    dictionary.close()


async def compare(trace: Any, traced: Any) -> None:
    store, clock, clear = traced
    clear()

    def stored(cls: type[Any], *numbers: Any, **options: Any) -> Any:
        return cls(*numbers, store=store, clock=clock, on_error="raise", **options)

    def pure(cls: type[Any], *numbers: Any, **options: Any) -> Any:
        return Pure(cls(*numbers, store=LocalStore(), clock=clock, **options), {})

    assert await Player(trace, stored, clock).play() == await Player(trace, pure, clock).play()


EXAMPLES = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@pytest.mark.parametrize("cls", NUMBERS)
@settings(max_examples=40, **EXAMPLES)  # type: ignore[arg-type]
@given(data=st.data())
def test_same_decisions(cls: type[Any], data: st.DataObject, traced: Any) -> None:
    asyncio.run(compare(data.draw(trace_of(cls)), traced))


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("cls", NUMBERS)
@settings(max_examples=2000, **EXAMPLES)  # type: ignore[arg-type]
@given(data=st.data())
def test_same_decisions_many_times(cls: type[Any], data: st.DataObject, traced: Any) -> None:
    asyncio.run(compare(data.draw(trace_of(cls, 80)), traced))
