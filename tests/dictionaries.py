"""Shared dictionaries for tests: a clock that a test moves, both engines, and the twins with an `a`."""

from __future__ import annotations

import inspect
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from resty_django.shdict import SharedDict
from resty_django.shdict.lmdb import LmdbDict, files
from resty_django.shdict.redis import RedisDict

MIB = 1024 * 1024
ALIAS = "dictionaries"
"""The cache of django-redis that `redis_cache` sets up."""


def remove_dictionaries(secret_key: str, settings_module: str) -> None:
    """Remove the shared dictionaries of a site without a PATH, whose processes have ended."""
    with pytest.MonkeyPatch.context() as patch, override_settings(SECRET_KEY=secret_key):
        patch.setenv("DJANGO_SETTINGS_MODULE", settings_module)
        for base in (files.MEMORY_FOLDER, Path(tempfile.gettempdir())):
            shutil.rmtree(base / files.site_folder(), ignore_errors=True)


class Clock:
    """Seconds that pass only when a test says so: set `now` or `milliseconds`, or call `advance`.

    It starts in the middle of a millisecond, and `milliseconds` sets it to one, so that no rounding of floats matters.
    """

    def __init__(self, now: float = 1_000_000.0005) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    @property
    def milliseconds(self) -> int:
        return int(self.now * 1000)

    @milliseconds.setter
    def milliseconds(self, milliseconds: int) -> None:
        self.now = (milliseconds + 0.5) / 1000

    def advance(self, seconds: float) -> None:
        self.milliseconds += round(seconds * 1000)


class Calls:
    """The calls of a dictionary to be awaited: `await calls.get(key)` calls `get`, or `aget` where `twins`."""

    def __init__(self, dictionary: SharedDict, clock: Clock, twins: bool) -> None:
        self.dictionary = dictionary
        self.engine = dictionary.engine
        self.clock = clock
        self.twins = twins

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.dictionary, f"a{name}" if self.twins else name)

        async def awaited(*args: Any, **options: Any) -> Any:
            reply = call(*args, **options)
            return await reply if inspect.isawaitable(reply) else reply

        return awaited


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def redis_cache(valkey_url: str, valkey: Any) -> Iterator[str]:
    """The alias of a cache of django-redis, on an empty server."""
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": valkey_url}
    with override_settings(CACHES={"default": cache, ALIAS: cache}):
        yield ALIAS


def empty_dictionary(request: pytest.FixtureRequest, engine: str) -> SharedDict:
    """An empty dictionary of an engine, of 8 MiB where that means something, whose time is `clock`."""
    clock = request.getfixturevalue("clock")
    if engine == "redis":
        return RedisDict("contract", alias=request.getfixturevalue("redis_cache"), clock=clock)
    folder = request.getfixturevalue("tmp_path") / "dictionaries"
    return LmdbDict("contract", 8 * MIB, str(folder), clock)


@pytest.fixture(params=["lmdb", pytest.param("redis", marks=pytest.mark.redis)])
def dictionary(request: pytest.FixtureRequest) -> Iterator[SharedDict]:
    """An empty dictionary of each engine."""
    with closing(empty_dictionary(request, request.param)) as shared_dict:
        yield shared_dict


@pytest.fixture(params=["lmdb", *(pytest.param(kind, marks=pytest.mark.redis) for kind in ("redis", "redis-async"))])
def calls(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Calls]:
    """The calls of a dictionary of each engine; on Redis also those with an `a` before their name.

    On LMDB, these only forward, which test_twins.py checks.
    """
    engine, _, kind = request.param.partition("-")
    with closing(empty_dictionary(request, engine)) as shared_dict:
        yield Calls(shared_dict, clock, kind == "async")


@pytest.fixture
def small(tmp_path: Path, clock: Clock) -> Iterator[LmdbDict]:
    """A dictionary of LMDB with 1 MiB."""
    lmdb_dict = LmdbDict("small", MIB, str(tmp_path / "dictionaries"), clock)
    yield lmdb_dict
    lmdb_dict.close()
