"""Fixtures for caches: simulated processes, each with its L1, over both engines and under one clock.

Private name: `_lrus` of the module of caches, to forget what earlier tests have left in the process.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from resty_django.cache import LRU, MLCache, SourceError
from resty_django.cache.errors import CacheError
from resty_django.cache.mlcache import cache as cache_module
from resty_django.events import runtime as events_process
from resty_django.lock import LockTimeout
from resty_django.shdict import SharedDict
from resty_django.shdict.lmdb import LmdbDict
from resty_django.shdict.redis import RedisDict
from tests.dictionaries import MIB, Clock
from tests.integration.cache.tools import Hub
from tests.pauses import Pauses

Shared = Callable[..., SharedDict]
Told = tuple[Any, str | None, int | None]
"""Value, message of the error, level: what lua-resty-mlcache returns."""


@pytest.fixture(params=["lmdb", pytest.param("redis", marks=pytest.mark.redis)])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shared(request: pytest.FixtureRequest, engine: str, tmp_path: Path, clock: Clock) -> Iterator[Shared]:
    """Make dictionaries of each engine by name, with the time of `clock`."""
    dictionaries: dict[str, SharedDict] = {}

    def make(name: str, size: int = 4 * MIB) -> SharedDict:
        if name not in dictionaries:
            if engine == "redis":
                dictionaries[name] = RedisDict(name, alias=request.getfixturevalue("redis_cache"), clock=clock)
            else:
                dictionaries[name] = LmdbDict(name, size, str(tmp_path / "dictionaries"), clock)
        return dictionaries[name]

    yield make
    for dictionary in dictionaries.values():
        dictionary.close()


@pytest.fixture
def hub() -> Hub:
    """Joins the processes of a test."""
    return Hub()


class Process:
    """A simulated process: a cache with its own L1 and channel, over the common dictionaries.

    Its calls are awaited, sync calls as well as twins. Pass a callback as a plain function; the twins get a coroutine
    function of it.
    """

    def __init__(self, shared: Shared, clock: Clock, hub: Hub, who: str, twins: bool, options: dict[str, Any]):
        self.twins = twins
        self.runs = 0
        settings = {"ipc": hub.channel(who), "lru": LRU(100, clock), "clock": clock, **options}
        self.cache = MLCache("c", shared("values"), **settings)

    def callback(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            self.runs += 1
            return function(*args)

        async def awaited(*args: Any) -> Any:
            return counted(*args)

        return awaited if self.twins else counted

    async def do(self, name: str, *args: Any, **options: Any) -> Any:
        result = getattr(self.cache, f"a{name}" if self.twins else name)(*args, **options)
        return await result if inspect.isawaitable(result) else result

    async def lookup(self, key: str, callback: Any = None, *args: Any, **options: Any) -> Told:
        """Return the result of `lookup`, or an error as lua-resty-mlcache returns it."""
        arguments = () if callback is None else (self.callback(callback), *args)
        try:
            hit = await self.do("lookup", key, *arguments, **options)
        except SourceError as error:
            return error.value, str(error), None
        except (CacheError, LockTimeout) as error:
            return None, str(error), None
        return hit.value, None, int(hit.level)

    async def update(self, timeout: float = 0.3) -> str | None:
        """Update, and return the message of the error, or None."""
        try:
            await self.do("update", timeout)
        except CacheError as error:
            return str(error)
        return None


Make = Callable[..., Process]


@pytest.fixture
def make(engine: str, shared: Shared, clock: Clock, hub: Hub, naps: Pauses) -> Make:
    """Make a `Process` with sync calls over LMDB, or with the async twins over Redis. A cache does the same over both
    engines, and other tests cover the twins of the dictionaries. `options`: of the cache."""

    def make(who: str = "A", **options: Any) -> Process:
        return Process(shared, clock, hub, who, engine == "redis", options)

    return make


def value(answer: Any) -> Callable[[], Any]:
    """Return a callback that returns this."""
    return lambda: answer


def fails(error: Any, partial: Any = None) -> Callable[[], Any]:
    """Return a callback whose source cannot answer."""

    def callback() -> Any:
        raise SourceError(error, partial)

    return callback


def raises(error: Exception) -> Callable[[], Any]:
    def callback() -> Any:
        raise error

    return callback


@pytest.fixture
def site(tmp_path: Path, settings: Any) -> Iterator[Any]:
    """A site with separate dictionaries, whose events no process receives yet, and that leaves nothing behind."""
    settings.RESTY_DJANGO = {
        "SHARED_DICTS": {name: {"PATH": str(tmp_path / "dicts")} for name in ("default", "events")},
        "EVENTS": {"INTERVAL": 0.01},
    }
    events_process.reset()
    for lru in list(cache_module._lrus.values()):  # an earlier test may have left values there
        lru.flush_all()
    yield settings
    events_process.reset()
