"""Invalidation of tags in all caches of the site."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.cache import caches as django_caches

from resty_django.sansio import Step, Steps, arun, run

from .backend_options import BACKEND
from .mlcache.cache import MLCache, live_caches
from .mlcache.registry import mlcaches
from .tags.names import invalidated


def invalidate_tags(*tags: str, cache: MLCache | str | None = None) -> None:
    """Delete all keys with one of these tags in all processes: `invalidate_tags("product:7", "shop:3")`.

    `cache`: a cache, or its name in the settings (None: all of them, those created in code, and the caches in Django's
    `CACHES` that use this package's backend). A failing cache does not keep the others from being invalidated; its
    error is raised afterwards. Raise the errors of `MLCache.invalidate_tags`.
    """
    run(_invalidate(tags, cache))


async def ainvalidate_tags(*tags: str, cache: MLCache | str | None = None) -> None:
    """Do the same as `invalidate_tags`."""
    await arun(_invalidate(tags, cache))


def _invalidate(tags: tuple[str, ...], cache: MLCache | str | None) -> Steps[None]:
    names = invalidated(tags)
    errors: list[Exception] = []
    for target in _all_caches() if cache is None else [mlcaches[cache] if isinstance(cache, str) else cache]:
        try:
            yield Step(target.invalidate_tags, target.ainvalidate_tags, names)
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _all_caches() -> Iterator[Any]:
    """Yield one cache for each name, dictionary and L1. Caches without a channel cannot notify other processes."""
    unique = {(cache.name, cache.dictionaries, cache.lru): cache for cache in (*live_caches(), *mlcaches.all())}
    yield from (cache for cache in unique.values() if cache.channel is not None)
    aliases = {
        config.get("LOCATION"): alias for alias, config in settings.CACHES.items() if config.get("BACKEND") == BACKEND
    }
    yield from map(django_caches.__getitem__, aliases.values())
