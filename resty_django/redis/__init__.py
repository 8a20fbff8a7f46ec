"""Redis and Valkey: sync and async connections of the caches in CACHES, and Lua scripts on them.

    from resty_django.redis import LuaScript, connection

    double = LuaScript("return ARGV[1] * 2")
    double(connection("default"), (), (21,))  # 42

This is the only package that imports redis-py and django-redis. It supports single servers, Sentinel and clusters
(`resty_django.redis.cluster`). The package and `errors` can be imported without redis-py; everything else is imported
on first use, and raises `MissingExtra` if redis-py is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from resty_django import extras, lazy

from .errors import StoreDown, StoreError, StoreFull

if TYPE_CHECKING:
    from .asynchronous import async_connection
    from .clients import AsyncClient, Client, connection
    from .faults import FAULTS, translated
    from .script import LuaScript
    from .source import ClientSource, Origin

_member: Final = lazy.members(
    __name__,
    {
        "asynchronous": "async_connection",
        "clients": "AsyncClient Client connection",
        "faults": "FAULTS translated",
        "script": "LuaScript",
        "source": "ClientSource Origin",
    },
)

__all__ = [
    "FAULTS",
    "AsyncClient",
    "Client",
    "ClientSource",
    "LuaScript",
    "Origin",
    "StoreDown",
    "StoreError",
    "StoreFull",
    "async_connection",
    "connection",
    "translated",
]


def __getattr__(name: str) -> Any:
    with extras.needed("Connections to Redis need"):
        return _member(name)
