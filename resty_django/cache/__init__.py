"""A two-level cache over a source: process memory, a shared dictionary, and one callback at a time per key.

from resty_django.cache import mlcaches

products = mlcaches["default"]
products.get("product:7", load_product, 7, ttl=60)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resty_django import lazy

if TYPE_CHECKING:
    from resty_django.lock import LockTimeout

    from .broadcasts.channel import InvalidationChannel
    from .broadcasts.events import EventChannel
    from .circuit_breaker.breaker import current_outages
    from .decorators.functions import cached
    from .decorators.view_keys import ainvalidate_url, ainvalidate_view, invalidate_url, invalidate_view
    from .decorators.views import cache_view
    from .errors import (
        BadKey,
        BadOption,
        BadValue,
        CacheError,
        CallbackFailed,
        ChannelFailed,
        LockFailed,
        NoChannel,
        RemoteError,
        SerializerFailed,
        SourceError,
        UnknownCache,
    )
    from .mlcache.bulk import Bulk
    from .mlcache.cache import MLCache
    from .mlcache.registry import mlcaches
    from .mlcache.results import Fresh, GetResult, Hit, Level, Peek, Serializer
    from .model_dependencies.dependency import Dependency, invalidate_on
    from .model_dependencies.querysets import CacheInvalidatingManager, CacheInvalidatingQuerySet
    from .serialization.classes import register_type
    from .shortcuts import ainvalidate_tags, invalidate_tags
    from .statistics.counts import CacheStats
    from .storage.lru import LRU
    from .storage.versioned import VersionedLRU

__all__ = [
    "LRU",
    "BadKey",
    "BadOption",
    "BadValue",
    "Bulk",
    "CacheError",
    "CacheInvalidatingManager",
    "CacheInvalidatingQuerySet",
    "CacheStats",
    "CallbackFailed",
    "ChannelFailed",
    "Dependency",
    "EventChannel",
    "Fresh",
    "GetResult",
    "Hit",
    "InvalidationChannel",
    "Level",
    "LockFailed",
    "LockTimeout",
    "MLCache",
    "NoChannel",
    "Peek",
    "RemoteError",
    "Serializer",
    "SerializerFailed",
    "SourceError",
    "UnknownCache",
    "VersionedLRU",
    "ainvalidate_tags",
    "ainvalidate_url",
    "ainvalidate_view",
    "cache_view",
    "cached",
    "current_outages",
    "invalidate_on",
    "invalidate_tags",
    "invalidate_url",
    "invalidate_view",
    "mlcaches",
    "register_type",
]

# Django imports this package at startup, although a site may use only the backend or nothing at all.
__getattr__ = lazy.members(
    __name__,
    {
        ".lock": "LockTimeout",
        "broadcasts.channel": "InvalidationChannel",
        "broadcasts.events": "EventChannel",
        "circuit_breaker.breaker": "current_outages",
        "decorators.functions": "cached",
        "decorators.view_keys": "ainvalidate_url ainvalidate_view invalidate_url invalidate_view",
        "decorators.views": "cache_view",
        "errors": "BadKey BadOption BadValue CacheError CallbackFailed ChannelFailed LockFailed NoChannel RemoteError "
        "SerializerFailed SourceError UnknownCache",
        "mlcache.bulk": "Bulk",
        "mlcache.cache": "MLCache",
        "mlcache.registry": "mlcaches",
        "mlcache.results": "Fresh GetResult Hit Level Peek Serializer",
        "model_dependencies.dependency": "Dependency invalidate_on",
        "model_dependencies.querysets": "CacheInvalidatingManager CacheInvalidatingQuerySet",
        "serialization.classes": "register_type",
        "shortcuts": "ainvalidate_tags invalidate_tags",
        "statistics.counts": "CacheStats",
        "storage.lru": "LRU",
        "storage.versioned": "VersionedLRU",
    },
)
