"""The caches of a site by name, as `caches` has those of Django."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from resty_django.conf import CacheSettings, conf
from resty_django.schema import SETTING, key_text

from .errors import UnknownCache
from .mlcache import MLCache


class MLCaches(dict[str, MLCache]):
    """`mlcaches["name"]`: one object for each cache in a process, made on first use, and anew when settings change."""

    def __missing__(self, name: str) -> MLCache:
        known = conf.caches
        if name not in known:
            raise UnknownCache(
                f"There is no cache {name!r}. Add it to {key_text(('CACHES',))}, which has {', '.join(known)}."
            )
        return self.setdefault(name, make(name, known[name]))

    def names(self) -> Iterator[str]:
        """The names of all caches in the settings, used or not."""
        return iter(conf.caches)


def make(name: str, settings: CacheSettings) -> MLCache:
    """A cache that is not kept here. Raises `ImportError` for a dotted path that leads nowhere."""
    lock = settings.lock
    return MLCache(
        name,
        settings.shm,
        lru_size=settings.lru_size,
        shm_miss=settings.shm_miss,
        shm_locks=settings.shm_locks,
        shm_stats=settings.shm_stats,
        ipc="events" if settings.ipc else None,
        ipc_shm=settings.ipc_shm,
        serializer=_imported(settings.serializer),
        ttl=settings.ttl,
        neg_ttl=settings.neg_ttl,
        resurrect_ttl=settings.resurrect_ttl,
        stale_while_revalidate=settings.stale_while_revalidate,
        jitter=settings.jitter,
        shm_set_tries=settings.shm_set_tries,
        l1_serializer=_imported(settings.l1_serializer),
        failures=tuple(_imported(path) for path in settings.failures),
        lock_options={
            "exptime": lock.exptime,
            "timeout": lock.timeout,
            "step": lock.step,
            "ratio": lock.ratio,
            "max_step": lock.max_step,
        },
    )


def _imported(path: str | None) -> Any:
    return None if path is None else import_string(path)


mlcaches = MLCaches()


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting in {SETTING, "CACHES"}:
        mlcaches.clear()


setting_changed.connect(_forget, dispatch_uid="resty_django.cache")

__all__ = ["MLCaches", "make", "mlcaches"]
