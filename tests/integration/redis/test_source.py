"""Sources of connections."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from redis import Redis

from resty_django.redis import ClientSource

pytestmark = [pytest.mark.redis, pytest.mark.contract]


def test_threads_that_begin_at_once_share_one_client(valkey_url: str) -> None:
    """Otherwise a client that is dropped would close the connections of its subscription."""
    begin = threading.Barrier(8)

    def make() -> Redis:
        time.sleep(0.05)
        return Redis.from_url(valkey_url)

    source = ClientSource(make)

    def ask(_: int) -> object:
        begin.wait(20)
        return source.sync()

    with ThreadPoolExecutor(8) as pool:
        clients = set(pool.map(ask, range(8)))
    assert clients == {source.sync()}
    source.close()
