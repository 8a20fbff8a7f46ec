"""Redis pub/sub: messages from channels, on a dedicated connection."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

from redis import asyncio as aio
from redis.client import PubSub

from .clients import AsyncClient, Client
from .errors import StoreDown
from .faults import FAULTS, translated

SILENCE_SECONDS: Final = 15.0
"""Seconds of silence after which the server is pinged; after twice that time the connection counts as lost."""


class Heard(NamedTuple):
    """A message; `kind` is "message", or "subscribe" or "unsubscribe" for the server's confirmations."""

    kind: str
    channel: bytes
    payload: bytes


class _Subscription:
    def __init__(self, pubsub: Any) -> None:
        self._pubsub = pubsub
        self._last = time.monotonic()
        self._asked = False

    def _silent(self) -> bool:
        """Return whether the server must be pinged. Raise `StoreDown`."""
        silent = time.monotonic() - self._last
        if silent > 2 * SILENCE_SECONDS:
            raise StoreDown(f"The server has been silent for {silent:.0f} s.")
        if silent > SILENCE_SECONDS and not self._asked:
            self._asked = True
            return True
        return False

    def _heard(self, message: Any) -> Heard | None:
        if message is None:
            return None
        self._last, self._asked = time.monotonic(), False
        if message["type"] not in ("message", "subscribe", "unsubscribe"):
            return None
        payload = message["data"]
        return Heard(message["type"], message["channel"], payload if isinstance(payload, bytes) else b"")


class Subscription(_Subscription):
    """A subscription for one thread. All calls raise `StoreDown` or `StoreError`; then create a new one."""

    def __init__(self, client: Client) -> None:
        pubsub: Callable[[], PubSub] = client.pubsub
        super().__init__(pubsub())

    def change(self, added: Collection[bytes], dropped: Collection[bytes] = ()) -> None:
        """Subscribe to the channels in `added` and unsubscribe from those in `dropped`."""
        try:
            if added:
                self._pubsub.subscribe(*added)
            if dropped:
                self._pubsub.unsubscribe(*dropped)
        except FAULTS as error:
            raise translated(error) from error

    def get(self, seconds: float) -> Heard | None:
        """Return the server's next message, or None after `seconds`."""
        try:
            if self._silent():
                self._pubsub.ping()
            return self._heard(self._pubsub.get_message(timeout=seconds))
        except FAULTS as error:
            raise translated(error) from error

    def close(self) -> None:
        self._pubsub.close()


class AsyncSubscription(_Subscription):
    """The asyncio twin of `Subscription`.

    On a cluster it subscribes at one node, because every node receives all messages; redis-py does so from version 8
    on.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._node: aio.Redis | None = None
        super().__init__(None if isinstance(client, aio.RedisCluster) else client.pubsub())

    async def change(self, added: Collection[bytes], dropped: Collection[bytes] = ()) -> None:
        try:
            if self._pubsub is None and isinstance(self._client, aio.RedisCluster):
                await self._choose_node(self._client)
            if added:
                await self._pubsub.subscribe(*added)
            if dropped:
                await self._pubsub.unsubscribe(*dropped)
        except FAULTS as error:
            raise translated(error) from error

    async def get(self, seconds: float) -> Heard | None:
        try:
            if self._silent():
                await self._pubsub.ping()
            return self._heard(await self._pubsub.get_message(timeout=seconds))
        except FAULTS as error:
            raise translated(error) from error

    async def aclose(self) -> None:
        if self._pubsub is not None:
            await self._pubsub.aclose()
        if self._node is not None:
            await self._node.aclose()

    async def _choose_node(self, cluster: aio.RedisCluster) -> None:
        await cluster.initialize()
        node = cluster.get_random_node()
        pool = aio.ConnectionPool(connection_class=node.connection_class, **node.connection_kwargs)
        self._node = aio.Redis.from_pool(pool)
        self._pubsub = self._node.pubsub()
