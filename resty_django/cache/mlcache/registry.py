"""The site's caches by name, similar to `django.core.cache.caches`."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import asdict, fields
from typing import Any, TypeVar

from django.utils.module_loading import import_string

from resty_django.conf import conf, on_change
from resty_django.conf.schema import SETTING, key_text
from resty_django.conf.sections.cache import CacheSettings
from resty_django.text.suggestions import did_you_mean

from ..errors import UnknownCache
from .cache import MLCache

T = TypeVar("T")


class MLCaches(MutableMapping[str, MLCache]):
    """The caches by name: one object per cache and process, created on first use and recreated when settings change.

    Iteration yields the names of all caches: configured ones, used or not, and those added with `mlcaches[name] =
    cache`. Unlike Django's connection handlers, it has one object per process, not per thread.
    """

    def __init__(self) -> None:
        self._in_use: dict[str, MLCache] = {}

    def __getitem__(self, name: str) -> MLCache:
        cache = self._in_use.get(name)
        if cache is not None:
            return cache
        configured = conf.caches
        if name not in configured:
            hint = did_you_mean(name, configured)
            raise UnknownCache(
                f"There is no cache {name!r}. {hint}{' Or add' if hint else 'Add'} it to {key_text(('CACHES',))}, "
                f"which has {', '.join(configured)}."
            )
        return self._in_use.setdefault(name, create(name, configured[name]))

    def __setitem__(self, name: str, cache: MLCache) -> None:
        self._in_use[name] = cache

    def __delitem__(self, name: str) -> None:
        del self._in_use[name]

    def __contains__(self, name: object) -> bool:
        return name in self._in_use or name in conf.caches

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*conf.caches, *self._in_use)))

    def __len__(self) -> int:
        return len({*conf.caches, *self._in_use})

    def get(self, name: str, default: T | None = None, /) -> MLCache | T | None:  # type: ignore[override]
        """Return the cache, or `default` if no cache has this name."""
        return self[name] if name in self else default  # noqa: SIM401 - this is what get() is

    def clear(self) -> None:
        """Forget all cache objects."""
        self._in_use.clear()

    def all(self, initialized_only: bool = False) -> list[MLCache]:
        """Return the cache objects. `initialized_only`: only those already in use."""
        return list(self._in_use.values()) if initialized_only else list(self.values())


def create(name: str, settings: CacheSettings) -> MLCache:
    """Return a cache with these settings. Raise `ImportError` for a dotted path that does not exist."""
    values: dict[str, Any] = {field.name: getattr(settings, field.name) for field in fields(settings)}
    return MLCache(
        name,
        values.pop("shm"),
        ipc="events" if values.pop("ipc") else None,
        serializer=_serializer(values.pop("serializer")),
        l1_serializer=_imported(values.pop("l1_serializer")),
        failures=tuple(map(_imported, values.pop("failures"))),
        lock_options=asdict(values.pop("lock")),
        **values,
    )


def _serializer(path: str | None) -> Any:
    """Return the object at a dotted path; for a class, an instance of it."""
    serializer = _imported(path)
    return serializer() if isinstance(serializer, type) else serializer


def _imported(path: str | None) -> Any:
    return None if path is None else import_string(path)


mlcaches = MLCaches()


on_change(mlcaches.clear, SETTING, "CACHES")
