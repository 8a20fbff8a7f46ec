"""Channels: transport of events between processes, in the memory of one machine or in a Redis stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from resty_django.shdict import SharedDict

from .base import Batch, Channel

if TYPE_CHECKING:
    from resty_django.shdict.lmdb import LmdbDict
    from resty_django.shdict.redis import RedisDict

__all__ = ["Batch", "Channel", "channel_of"]


def channel_of(dictionary: SharedDict, keep: int) -> Channel:
    """Return a dictionary's channel: in its memory, or a stream of about `keep` events next to it in Redis."""
    if dictionary.engine == "redis":
        from .stream import StreamChannel

        return StreamChannel(cast("RedisDict", dictionary), keep)
    from .memory import MemoryChannel

    return MemoryChannel(cast("LmdbDict", dictionary))
