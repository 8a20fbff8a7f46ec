"""Events in a Redis stream: posting takes one round trip, and waiting processes receive events immediately."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from resty_django.redis import FAULTS, StoreDown, StoreFull, async_connection, connection, translated
from resty_django.redis.cluster import is_cluster
from resty_django.shdict import NoMemory, SharedDict, SharedDictError, Unavailable
from resty_django.shdict.base import StreamEntry
from resty_django.shdict.redis import RedisDict

from .base import Batch, Channel

FIELD: Final = b"e"
NOTHING: Final = b"0-0"
MAX_REPLY_EVENTS: Final = 500
"""Maximum number of events per reply."""
POLL_SECONDS: Final = 0.05
"""Polling interval (seconds) if the client's timeout is too short for a blocking call."""


class StreamChannel(Channel):
    """A channel in a stream with about the last `keep` events. Positions are stream IDs.

    The stream's key is the dictionary's prefix, which is never an item's key.
    """

    wakes: ClassVar[bool] = True

    def __init__(self, dictionary: RedisDict, keep: int) -> None:
        super().__init__(dictionary)
        self._alias = dictionary.alias
        self.key = dictionary.prefix.encode()
        self._keep = keep
        self.check_at = 0.0

    # --- sync ---

    def last(self) -> bytes:
        with _translated():
            return _last(connection(self._alias).xrevrange(self.key, count=1))

    def between(self, position: bytes, last: bytes) -> int:
        """Return the number of events, `MAX_REPLY_EVENTS` at most."""
        if position == last:
            return 0
        with _translated():
            entries = connection(self._alias).xrange(self.key, min=b"(" + position, max=last, count=MAX_REPLY_EVENTS)
        return len(entries or ())

    def append(self, record: bytes, retries: int) -> None:
        with _translated():
            connection(self._alias).xadd(self.key, {FIELD: record}, maxlen=self._keep, approximate=True)

    def read(self, position: bytes) -> Batch | None:
        with _translated():
            entries = connection(self._alias).xrange(self.key, min=b"(" + position, count=MAX_REPLY_EVENTS)
        if entries or not self._must_check():
            return _batch(entries)
        return _anew(position, self.last())

    def wait(self, position: bytes, seconds: float) -> None:
        with _translated():
            client = connection(self._alias)
            patience = _patience(client, seconds)
            if patience > 0:
                client.xread({self.key: position}, count=1, block=math.ceil(patience * 1000))
                return
        time.sleep(min(seconds, POLL_SECONDS))

    # --- the same for asyncio ---

    async def alast(self) -> bytes:
        with _translated():
            return _last(await async_connection(self._alias).xrevrange(self.key, count=1))

    async def aappend(self, record: bytes, retries: int) -> None:
        with _translated():
            await async_connection(self._alias).xadd(self.key, {FIELD: record}, maxlen=self._keep, approximate=True)

    async def aread(self, position: bytes) -> Batch | None:
        with _translated():
            entries = await async_connection(self._alias).xrange(self.key, min=b"(" + position, count=MAX_REPLY_EVENTS)
        if entries or not self._must_check():
            return _batch(entries)
        return _anew(position, await self.alast())

    async def await_news(self, position: bytes, seconds: float) -> None:
        with _translated():
            client = async_connection(self._alias)
            patience = _patience(client, seconds)
            if patience > 0:
                await client.xread({self.key: position}, count=1, block=math.ceil(patience * 1000))
                return
        await asyncio.sleep(min(seconds, POLL_SECONDS))

    # --- shared by both ---

    def entry(self, record: bytes, dictionary: SharedDict) -> StreamEntry | None:
        if not isinstance(dictionary, RedisDict) or dictionary.alias != self._alias or is_cluster(self._alias):
            return None
        return StreamEntry(self.key, FIELD, record, self._keep)

    def _must_check(self) -> bool:
        """Return True once in 5 seconds: the stream may have been created again, and end before the position."""
        now = time.monotonic()
        if now < self.check_at:
            return False
        self.check_at = now + 5.0
        return True


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except FAULTS as error:
        ours = translated(error)
        kind = {StoreDown: Unavailable, StoreFull: NoMemory}.get(type(ours), SharedDictError)
        raise kind(f"Redis: {ours}") from error


def _last(newest: Any) -> bytes:
    return newest[0][0] if newest else NOTHING


def _batch(entries: Any) -> Batch | None:
    return Batch(entries[-1][0], [(number, fields.get(FIELD)) for number, fields in entries]) if entries else None


def _anew(position: bytes, last: bytes) -> Batch | None:
    """Continue from the current end of a stream that ends before the position, for example after a failover.

    An empty stream needs no change: new IDs contain the time, which is later than the position.
    """
    return Batch(last, []) if last != NOTHING and _parts(last) < _parts(position) else None


def _parts(number: bytes) -> tuple[int, int]:
    time_part, _, sequence = number.partition(b"-")
    return int(time_part), int(sequence)


def _patience(client: Any, seconds: float) -> float:
    """Return how many seconds the server may block without exceeding the client's timeout."""
    timeout: float | None = client.get_connection_kwargs().get("socket_timeout")
    if timeout is None:
        return seconds
    return min(seconds, timeout - 0.2)  # the reply may be late: the server checks its clock ten times per second
