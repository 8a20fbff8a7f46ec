"""Limiters for tests: on each store, at a clock that a test moves, and the twins with an `a`.

Private attributes of limiters are used here alone. `Pure` runs the operations that a limiter sends to its store on
plain bytes, and those that it builds within its own methods have no public name. `reconfigure` changes numbers that a
limiter has no setter for, as two processes with different settings do.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from resty_django.limits import CombinedDecision, Decision, LocalStore, NotFound, combine
from resty_django.limits.algorithms import StateOperation
from resty_django.limits.limiters.base import Limiter
from resty_django.limits.limiters.combined import acombine
from resty_django.shdict.lmdb import LmdbDict
from resty_django.shdict.redis import RedisDict
from tests.dictionaries import MIB, Clock


class Called:
    """The calls of a limiter to be awaited: `await limiter.hit(key)` calls `hit`, or `ahit` where `twins`."""

    def __init__(self, limiter: Limiter, twins: bool) -> None:
        self.limiter = limiter
        self.twins = twins

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.limiter, f"a{name}" if self.twins else name, None) or getattr(self.limiter, name)

        async def awaited(*args: Any, **options: Any) -> Any:
            reply = call(*args, **options)
            return await reply if inspect.isawaitable(reply) else reply

        return awaited


class Pure:
    """The algorithm of a limiter on states in a plain dict; expiry is what the algorithm itself knows of it."""

    def __init__(self, limiter: Any, states: dict[str, bytes]) -> None:
        self.limiter = limiter
        self.states = states
        self.committed = False

    async def incoming(self, key: str, commit: bool = False, cost: int = 1) -> Decision:
        if cost != 1:
            self.limiter.check(cost)
        config = self.limiter.call_config()
        now = self.limiter.now()
        state, _, decision = self.limiter.algorithm.incoming(self.states.get(key), now, config, cost, commit)
        if state is not None:
            self.states[key] = state
        self.committed = commit and decision.allowed
        return decision

    async def hit(self, key: str, cost: int = 1) -> Decision:
        return await self.incoming(key, True, cost)

    async def peek(self, key: str, cost: int = 1) -> Decision:
        return await self.incoming(key, False, cost)

    async def take(self, key: str, count: int, commit: bool = False) -> Decision:
        return await self.incoming(key, commit, count)

    async def take_available(self, key: str, count: int) -> Any:
        return self._change(self.limiter._take_available, key, count) if count > 0 else 0

    async def uncommit(self, key: str, cost: int = 1) -> Any:
        return self._change(self.limiter.algorithm.uncommit, key, cost)

    async def leaving(self, key: str, latency: float | None = None, token: str = "") -> Any:
        outcome = self._change(self.limiter._leaving, key, 1, self.limiter._with_token(token))
        if latency is not None:
            self.limiter._adjust_delay(latency)
        return outcome

    async def renew(self, key: str, token: str) -> bool:
        return bool(self._change(self.limiter._renew, key, 1, self.limiter._with_token(token)))

    async def is_committed(self) -> bool:
        return self.committed

    def _change(self, operation: StateOperation[Any], key: str, cost: int, config: Any = None) -> Any:
        config = config or self.limiter.config
        state, _, result = operation.pure(self.states.get(key), self.limiter.now(), config, cost)
        if state is not None:
            self.states[key] = state
        if result is None:
            raise NotFound(key)
        return result

    def __getattr__(self, name: str) -> Any:
        async def awaited(*args: Any) -> Any:
            return getattr(self.limiter, name)(*args)

        return awaited


def reconfigure(limiter: Any, **numbers: Any) -> None:
    """Change the numbers of a limiter of a `Bench`, including numbers without a setter."""
    limiter.limiter._set(**numbers)


class Bench:
    """Makes limiters with one kind of store, all at one clock. `kind`: pure, local, lmdb or redis."""

    def __init__(self, kind: str, store: Any, clock: Clock, twins: bool = False) -> None:
        self.kind = kind
        self.store = store
        self.clock = clock
        self.twins = twins
        self.states: dict[str, bytes] = {}

    def make(self, cls: type[Any], *numbers: Any, **options: Any) -> Any:
        """A limiter whose calls are to be awaited."""
        limiter = cls(*numbers, store=self.store, clock=self.clock, on_error="raise", **options)
        return Pure(limiter, self.states) if self.kind == "pure" else Called(limiter, self.twins)

    async def combine(self, limiters: Sequence[Any], keys: Sequence[str], states: Any = None) -> CombinedDecision:
        plain = [limiter.limiter for limiter in limiters]
        return await acombine(plain, keys, states) if self.twins else combine(plain, keys, states)


def store_of_kind(kind: str, request: pytest.FixtureRequest, clock: Clock) -> Iterator[Any]:
    """An empty store, closed at the end."""
    if kind in {"pure", "local"}:
        yield LocalStore(clock=clock)
        return
    shared_dict: LmdbDict | RedisDict
    if kind == "redis":
        shared_dict = RedisDict("limits", alias=request.getfixturevalue("redis_cache"), clock=clock)
    else:
        folder: Path = request.getfixturevalue("tmp_path")
        shared_dict = LmdbDict("limits", 8 * MIB, str(folder / "dictionaries"), clock)
    yield shared_dict
    shared_dict.close()


REDIS = pytest.mark.redis


@pytest.fixture(
    params=[
        "pure",
        "local",
        "lmdb",
        pytest.param("redis", marks=REDIS),
        "local-twin",
        "lmdb-twin",
        pytest.param("redis-twin", marks=REDIS),
    ]
)
def every(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Bench]:
    """Limiters of every kind, and the twins of those that have a store."""
    kind, _, twin = request.param.partition("-")
    for store in store_of_kind(kind, request, clock):
        yield Bench(kind, store, clock, bool(twin))


@pytest.fixture(
    params=["local", "lmdb", pytest.param("redis", marks=REDIS), "lmdb-twin", pytest.param("redis-twin", marks=REDIS)]
)
def stored(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Bench]:
    """Limiters with a store, and the twins."""
    kind, _, twin = request.param.partition("-")
    for store in store_of_kind(kind, request, clock):
        yield Bench(kind, store, clock, bool(twin))


@pytest.fixture(params=["local", "lmdb", pytest.param("redis", marks=REDIS)])
def stores(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Bench]:
    """Limiters with a store, without the twins: for what depends on the time, not on the kind of call."""
    for store in store_of_kind(request.param, request, clock):
        yield Bench(request.param, store, clock)
