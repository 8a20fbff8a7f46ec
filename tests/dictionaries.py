"""Shared dictionaries for tests: a clock that a test moves, both engines, and the twins with an `a`."""

from __future__ import annotations

import inspect
import shutil
import tempfile
from collections.abc import Iterator
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
        for base in (files.MEMORY, Path(tempfile.gettempdir())):
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


@pytest.fixture(params=["lmdb", pytest.param("redis", marks=pytest.mark.redis)])
def dictionary(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[SharedDict]:
    """An empty dictionary of each engine, of 8 MiB where that means something, whose time is `clock`."""
    shared_dict: SharedDict
    if request.param == "redis":
        shared_dict = RedisDict("contract", alias=request.getfixturevalue("redis_cache"), clock=clock)
    else:
        shared_dict = LmdbDict("contract", 8 * MIB, str(tmp_path / "dictionaries"), clock)
    yield shared_dict
    shared_dict.close()


@pytest.fixture(params=["call", "twin"])
def calls(request: pytest.FixtureRequest, dictionary: SharedDict, clock: Clock) -> Calls:
    """The calls of `dictionary`, and again those with an `a` before their name."""
    return Calls(dictionary, clock, request.param == "twin")


@pytest.fixture
def small(tmp_path: Path, clock: Clock) -> Iterator[LmdbDict]:
    """A dictionary of LMDB with 1 MiB."""
    lmdb_dict = LmdbDict("small", MIB, str(tmp_path / "dictionaries"), clock)
    yield lmdb_dict
    lmdb_dict.close()
