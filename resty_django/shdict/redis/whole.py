"""Calls about the whole dictionary: they look through all keys of the server, or of all masters of a cluster.

None of them is one step: what others write meanwhile is met or not.
"""

from __future__ import annotations

from typing import Any

from resty_django.redis import async_connection, connection
from resty_django.redis.keys import amemory, ascan, memory, scan

from ..base import Stats
from ..codec import decode_key
from .calls import Calls
from .scripts import FLUSH, FREE, LIVE


class Whole(Calls):
    """`get_keys`, `flush_all`, `flush_expired`, `capacity`, `free_space`, `stats`, `close`."""

    def get_keys(self, limit: int = 1024) -> list[str]:
        found: dict[bytes, None] = {}
        with self._faults():
            client = connection(self.alias)
            for batch in scan(client, self._prefix):
                found.update(_true(LIVE.each(client, batch, self._given())))
                if 0 < limit <= len(found):
                    break
        return self._names(found, limit)

    async def aget_keys(self, limit: int = 1024) -> list[str]:
        found: dict[bytes, None] = {}
        with self._faults():
            client = async_connection(self.alias)
            async for batch in ascan(client, self._prefix):
                found.update(_true(await LIVE.run_each(client, batch, self._given())))
                if 0 < limit <= len(found):
                    break
        return self._names(found, limit)

    def flush_all(self) -> None:
        with self._faults():
            client = connection(self.alias)
            for batch in scan(client, self._prefix):
                FLUSH.each(client, batch, (self._stale, *self._given()))

    async def aflush_all(self) -> None:
        with self._faults():
            client = async_connection(self.alias)
            async for batch in ascan(client, self._prefix):
                await FLUSH.run_each(client, batch, (self._stale, *self._given()))

    def flush_expired(self, limit: int = 0) -> int:
        freed = 0
        with self._faults():
            client = connection(self.alias)
            for batch in scan(client, self._prefix):
                while batch and (not limit or freed < limit):
                    size = limit - freed if limit else len(batch)
                    some, batch = batch[:size], batch[size:]
                    freed += sum(FREE.each(client, some, self._given()).values())
                if batch:
                    break
        return freed

    async def aflush_expired(self, limit: int = 0) -> int:
        freed = 0
        with self._faults():
            client = async_connection(self.alias)
            async for batch in ascan(client, self._prefix):
                while batch and (not limit or freed < limit):
                    size = limit - freed if limit else len(batch)
                    some, batch = batch[:size], batch[size:]
                    replies = await FREE.run_each(client, some, self._given())
                    freed += sum(replies.values())
                if batch:
                    break
        return freed

    def capacity(self) -> int:
        with self._faults():
            return memory(connection(self.alias))[0]

    async def acapacity(self) -> int:
        with self._faults():
            return (await amemory(async_connection(self.alias)))[0]

    def free_space(self) -> int:
        with self._faults():
            return memory(connection(self.alias))[1]

    async def afree_space(self) -> int:
        with self._faults():
            return (await amemory(async_connection(self.alias)))[1]

    def stats(self) -> Stats:
        """`keys` counts expired items too while they are readable; what the server threw out of here it cannot say."""
        with self._faults():
            client = connection(self.alias)
            return Stats(sum(len(batch) for batch in scan(client, self._prefix)), *memory(client), None)

    async def astats(self) -> Stats:
        with self._faults():
            client = async_connection(self.alias)
            keys = 0
            async for batch in ascan(client, self._prefix):
                keys += len(batch)
            return Stats(keys, *await amemory(client), None)

    def close(self) -> None:
        """Nothing: the connections are those of the cache."""

    async def aclose(self) -> None:
        """Nothing: the connections are those of the cache; they end with the loop."""

    def _names(self, found: dict[bytes, None], limit: int) -> list[str]:
        names = list(found)
        return [decode_key(name[len(self._prefix) :]) for name in (names[:limit] if limit else names)]


def _true(replies: dict[bytes, Any]) -> dict[bytes, None]:
    return {name: None for name, reply in replies.items() if reply}
