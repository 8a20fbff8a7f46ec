"""A two-level cache over a source: process memory, a shared dictionary, and one callback at a time per key.

from resty_django.cache import mlcaches

products = mlcaches["default"]
products.get("product:7", load_product, 7, ttl=60)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from resty_django.lock import LockTimeout

    from .broadcasts.channel import Channel
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
    from .mlcache.results import Fresh, Hit, Level, Peek, Result, Serializer
    from .model_dependencies.dependency import Dependency, invalidate_on
    from .model_dependencies.querysets import CacheInvalidatingManager, CacheInvalidatingQuerySet
    from .serialization.classes import register_type
    from .shortcuts import ainvalidate_tags, invalidate_tags
    from .statistics.counts import Stats
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
    "CallbackFailed",
    "Channel",
    "ChannelFailed",
    "Dependency",
    "EventChannel",
    "Fresh",
    "Hit",
    "Level",
    "LockFailed",
    "LockTimeout",
    "MLCache",
    "NoChannel",
    "Peek",
    "RemoteError",
    "Result",
    "Serializer",
    "SerializerFailed",
    "SourceError",
    "Stats",
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

_MODULES: Final = {
    "Bulk": ".mlcache.bulk",
    "Channel": ".broadcasts.channel",
    "Stats": ".statistics.counts",
    "cached": ".decorators.functions",
    "current_outages": ".circuit_breaker.breaker",
    "BadKey": ".errors",
    "BadOption": ".errors",
    "BadValue": ".errors",
    "CacheError": ".errors",
    "CallbackFailed": ".errors",
    "ChannelFailed": ".errors",
    "LockFailed": ".errors",
    "LockTimeout": "resty_django.lock",
    "NoChannel": ".errors",
    "RemoteError": ".errors",
    "SerializerFailed": ".errors",
    "SourceError": ".errors",
    "UnknownCache": ".errors",
    "mlcaches": ".mlcache.registry",
    "LRU": ".storage.lru",
    "MLCache": ".mlcache.cache",
    "EventChannel": ".broadcasts.events",
    "ainvalidate_url": ".decorators.view_keys",
    "ainvalidate_view": ".decorators.view_keys",
    "ainvalidate_tags": ".shortcuts",
    "invalidate_tags": ".shortcuts",
    "invalidate_on": ".model_dependencies.dependency",
    "Dependency": ".model_dependencies.dependency",
    "CacheInvalidatingManager": ".model_dependencies.querysets",
    "CacheInvalidatingQuerySet": ".model_dependencies.querysets",
    "invalidate_url": ".decorators.view_keys",
    "invalidate_view": ".decorators.view_keys",
    "Fresh": ".mlcache.results",
    "Hit": ".mlcache.results",
    "Level": ".mlcache.results",
    "Peek": ".mlcache.results",
    "Result": ".mlcache.results",
    "Serializer": ".mlcache.results",
    "VersionedLRU": ".storage.versioned",
    "register_type": ".serialization.classes",
    "cache_view": ".decorators.views",
}


def __getattr__(name: str) -> Any:
    # Lazy imports: Django imports this package at startup, although a site may use only the backend or nothing at all.
    if name in _MODULES:
        value = getattr(import_module(_MODULES[name], __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
