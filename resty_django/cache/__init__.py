"""A cache in two levels over a source: the memory of the process, a shared dictionary, and one callback at a time.

from resty_django.cache import mlcaches

products = mlcaches["default"]
products.get("product:7", load_product, 7, ttl=60)
"""

from __future__ import annotations

from .bulk import Bulk
from .channel import Channel, ShmChannel
from .counts import Stats
from .decorators import cached
from .errors import (
    BadKey,
    BadOption,
    BadValue,
    CacheError,
    CallbackFailed,
    ChannelFailed,
    LockFailed,
    LockTimeout,
    NoChannel,
    SerializerFailed,
    SourceError,
    UnknownCache,
)
from .handler import mlcaches
from .lru import LRU
from .mlcache import MLCache
from .over_events import EventChannel
from .page_keys import ainvalidate_url, ainvalidate_view, invalidate_url, invalidate_view
from .results import Fresh, Hit, Level, Peek, Result, Serializer
from .versioned import VersionedLRU
from .view_cache import cache_view

__all__ = [
    "LRU",
    "BadKey",
    "BadOption",
    "BadValue",
    "Bulk",
    "CacheError",
    "CallbackFailed",
    "Channel",
    "ChannelFailed",
    "EventChannel",
    "Fresh",
    "Hit",
    "Level",
    "LockFailed",
    "LockTimeout",
    "MLCache",
    "NoChannel",
    "Peek",
    "Result",
    "Serializer",
    "SerializerFailed",
    "ShmChannel",
    "SourceError",
    "Stats",
    "UnknownCache",
    "VersionedLRU",
    "ainvalidate_url",
    "ainvalidate_view",
    "cache_view",
    "cached",
    "invalidate_url",
    "invalidate_view",
    "mlcaches",
]
