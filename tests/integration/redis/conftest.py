"""Caches on servers that the tests start, and a script to call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from resty_django.redis import LuaScript, async_connection, connection
from tests import servers

COUNT = LuaScript("return redis.call('INCRBY', KEYS[1], ARGV[1])")
"""Adds a whole number to a key."""

Use = Callable[..., None]


async def refused(
    error: type[Exception], why: str, script: LuaScript, *args: Any, each: bool = False
) -> list[Exception]:
    """Assert that a sync and an async call of a script raise this error, and return both errors."""
    call, twin = (script.each, script.run_each) if each else (script, script.run)
    with pytest.raises(error, match=why) as first:
        call(connection(), *args)
    with pytest.raises(error, match=why) as second:
        await twin(async_connection(), *args)
    return [first.value, second.value]


@pytest.fixture
def use(settings: Any) -> Use:
    """Set the cache `default` of django-redis to a LOCATION with OPTIONS."""

    def use(location: str | list[str], **options: Any) -> None:
        servers.forget_pools()
        settings.CACHES = {
            "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": location, "OPTIONS": options}
        }

    return use


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    """A separate server for the module, which tests may flush and kill if they start it again."""
    with servers.one() as server:
        yield server


@pytest.fixture(scope="session")
def nodes() -> Iterator[list[servers.Server]]:
    """A cluster of three masters; a test that kills one starts it again."""
    with servers.cluster() as nodes:
        yield nodes


@pytest.fixture
def count() -> LuaScript:
    return COUNT
