"""Caches of Django for tests: ours on both engines, and others whose behaviour is known."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import caches

from resty_django.events import runtime as events_process

OURS = "resty_django.cache.backend.MLCacheBackend"
DICTS = ("pages", "events", "default")


def shout(key: str, prefix: str, version: int) -> str:
    """A KEY_FUNCTION."""
    return f"{version}/{prefix}/{key}".upper()


VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "prefixed": {"KEY_PREFIX": "other"},
    "second": {"VERSION": 2},
    "shouting": {"KEY_FUNCTION": shout},
    "brief": {"TIMEOUT": 1},
    "endless": {"TIMEOUT": None},
    "dead": {"TIMEOUT": 0},
}


def shared_dicts(kind: str, folder: Path) -> dict[str, Any]:
    """SHARED_DICTS of an engine."""
    config = {"ENGINE": "redis", "ALIAS": "redis"} if kind == "redis" else {"PATH": str(folder / "dicts")}
    return dict.fromkeys(DICTS, config)


def install(settings: Any, kind: str, folder: Path, url: str, **options: Any) -> None:
    """Make CACHES of this kind: "lmdb", "redis", "locmem" or "django-redis". `options`: OPTIONS of ours."""
    redis = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}
    if kind == "locmem":
        base = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": uuid.uuid4().hex}
    elif kind == "django-redis":
        base = redis
    else:
        base = {"BACKEND": OURS, "LOCATION": "pages", "OPTIONS": options}
        settings.RESTY_DJANGO = {"SHARED_DICTS": shared_dicts(kind, folder), "EVENTS": {"INTERVAL": 0.01}}
    variants = {alias: {**base, **changes} for alias, changes in VARIANTS.items()}
    settings.CACHES = {**variants, "redis": redis} if url else variants


class Api:
    """The calls of a cache to be awaited: `await api.get(key)` calls `get`, or `aget` where `twins`."""

    def __init__(self, kind: str, twins: bool) -> None:
        self.kind = kind
        self.ours = kind in ("lmdb", "redis")
        self.twins = twins
        self.alias = "default"

    def of(self, alias: str) -> Api:
        """The same with another cache of `VARIANTS`."""
        api = Api(self.kind, self.twins)
        api.alias = alias
        return api

    @property
    def cache(self) -> Any:
        return caches[self.alias]

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.cache, f"a{name}" if self.twins else name)

        async def awaited(*args: Any, **options: Any) -> Any:
            reply = call(*args, **options)
            return await reply if inspect.isawaitable(reply) else reply

        return awaited


KINDS = [
    "lmdb",
    pytest.param("redis", marks=pytest.mark.redis),
    "locmem",
    pytest.param("django-redis", marks=pytest.mark.redis),
]


def url_for(request: pytest.FixtureRequest, kind: str) -> str:
    """The URL of an empty server, where that kind needs one."""
    if "redis" not in kind:
        return ""
    request.getfixturevalue("valkey")
    return str(request.getfixturevalue("valkey_url"))


def fresh(request: pytest.FixtureRequest, settings: Any, tmp_path: Path, kind: str, **options: Any) -> Iterator[None]:
    """Caches of this kind with nothing in them, and no events heard of before."""
    install(settings, kind, tmp_path, url_for(request, kind), **options)
    events_process.reset()
    yield
    events_process.reset()


__all__ = ["KINDS", "OURS", "VARIANTS", "Api", "fresh", "install", "shared_dicts", "shout", "url_for"]
