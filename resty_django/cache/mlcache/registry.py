"""The site's caches by name, similar to `django.core.cache.caches`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar, overload

from django.utils.module_loading import import_string

from resty_django.conf import conf, on_change
from resty_django.conf.schema import SETTING, key_text
from resty_django.conf.sections.cache import CacheSettings
from resty_django.text.suggestions import did_you_mean

from ..errors import UnknownCache
from .cache import MLCache

T = TypeVar("T")


class MLCaches(dict[str, MLCache]):
    """The caches by name: one object per cache and process, created on first use and recreated when settings change.

    Iteration yields the names of all caches: configured ones, used or not, and those added with `mlcaches[name] =
    cache`. The underlying dict contains the caches in use, so that `mlcaches["name"]` calls no Python function for
    them. Unlike Django's connection handlers, it has one object per process, not per thread.
    """

    def __missing__(self, name: str) -> MLCache:
        configured = conf.caches
        if name not in configured:
            hint = did_you_mean(name, configured)
            raise UnknownCache(
                f"There is no cache {name!r}. {hint}{' Or add' if hint else 'Add'} it to {key_text(('CACHES',))}, "
                f"which has {', '.join(configured)}."
            )
        return self.setdefault(name, create(name, configured[name]))

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in conf.caches

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*conf.caches, *super().__iter__())))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @overload
    def get(self, name: str, default: None = None, /) -> MLCache | None: ...

    @overload
    def get(self, name: str, default: MLCache, /) -> MLCache: ...

    @overload
    def get(self, name: str, default: T, /) -> MLCache | T: ...

    def get(self, name: str, default: Any = None, /) -> Any:
        """Return the cache, or `default` if no cache has this name."""
        return self[name] if name in self else default  # noqa: SIM401 - this is what get() is

    def all(self, initialized_only: bool = False) -> list[MLCache]:
        """Return the cache objects. `initialized_only`: only those already in use."""
        return list(super().values()) if initialized_only else [self[name] for name in self]

    keys = Mapping.keys  # type: ignore[assignment]
    values = Mapping.values  # type: ignore[assignment]
    items = Mapping.items  # type: ignore[assignment]


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
"""The caches of the settings by name."""


on_change(mlcaches.clear, SETTING, "CACHES")
