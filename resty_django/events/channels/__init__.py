"""Channels: transport of events between processes, in the memory of one machine or in a Redis stream."""

from __future__ import annotations

from resty_django.shdict import SharedDict

from .base import Batch, Channel

__all__ = ["Batch", "Channel", "channel_of"]


def channel_of(dictionary: SharedDict, keep: int) -> Channel:
    """Return a dictionary's channel: in its memory, or a stream of about `keep` events next to it in Redis."""
    if dictionary.engine == "redis":
        from resty_django.shdict.redis import RedisDict

        from .stream import StreamChannel

        assert isinstance(dictionary, RedisDict)  # noqa: S101
        return StreamChannel(dictionary, keep)
    from resty_django.shdict.lmdb import LmdbDict

    from .memory import MemoryChannel

    assert isinstance(dictionary, LmdbDict)  # noqa: S101
    return MemoryChannel(dictionary)
