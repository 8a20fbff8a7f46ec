"""Redis and Valkey: the connections of the caches in CACHES, sync and async, and Lua scripts on them.

    from resty_django.redis import Script, connection

    double = Script("return ARGV[1] * 2")
    double(connection("default"), (), (21,))  # 42

This is the only package that imports redis-py and django-redis. A server may be alone, behind Sentinel, or a cluster
(`resty_django.redis.cluster`).
"""

from __future__ import annotations

from .asynchronous import async_connection
from .clients import AsyncClient, Client, connection
from .errors import StoreDown, StoreError, StoreFull
from .script import Script
from .source import Origin, Source

__all__ = [
    "AsyncClient",
    "Client",
    "Origin",
    "Script",
    "Source",
    "StoreDown",
    "StoreError",
    "StoreFull",
    "async_connection",
    "connection",
]
