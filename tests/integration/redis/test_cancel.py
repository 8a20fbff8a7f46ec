"""A cancelled call of asyncio ends at once, whenever it is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from resty_django.redis import async_connection
from tests import servers

from .conftest import Use

pytestmark = pytest.mark.contract


async def test_a_cancellation_is_never_lost(use: Use, server: servers.Server) -> None:
    use(server.url)
    client = async_connection("default")

    async def ask() -> None:
        while True:
            await client.get("nothing")

    for number in range(100):
        asking = asyncio.create_task(ask())
        await asyncio.sleep(0.001 + number * 0.00003)
        asking.cancel()
        done, _ = await asyncio.wait([asking], timeout=5)
        assert done, "the call goes on, although it was cancelled"
        assert asking.cancelled()
