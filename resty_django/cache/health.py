"""Health probe for caches, for `manage.py resty_check`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from resty_django.health import Finding, findings_or
from resty_django.sansio import run
from resty_django.shdict import SharedDict

from .backend.store import BackendStore
from .broadcasts.channel import to_poll
from .broadcasts.events import EventChannel
from .facts import CacheFacts, facts
from .inventory import CacheInfo

FAILURE_MINUTES: Final = 10
"""Minutes for which a failed callback is reported."""


def probe() -> Iterator[Finding]:
    """Report caches that cannot be created, unavailable dictionaries and channels, and callbacks that failed and calls
    without the store in any process.
    """
    caches = facts().caches
    count = "1 cache" if len(caches) == 1 else f"{len(caches)} caches"
    ok = Finding("ok", "cache", f"{count} can be used. No callback failed in the last {FAILURE_MINUTES} minutes.")
    yield from findings_or(ok, *map(_check, caches), _channels(cache.info for cache in caches))


def _check(cache: CacheFacts) -> Iterator[Finding]:
    subject, counter = f"cache {cache.name}", cache.info.counter
    if counter is None:
        yield Finding("error", subject, f"The cache cannot be created: {cache.error}")
        return
    for dictionary in dict.fromkeys([counter.dictionary, *_dictionaries(cache.info)]):
        try:
            dictionary.get("mlcache:probe")
        except Exception as error:
            yield Finding("error", subject, f"Its dictionary {dictionary.name} is unavailable: {error}")
            return
    if cache.error is not None:
        yield Finding("error", subject, f"Its counts are unavailable: {cache.error}")
    recent = cache.history.last(FAILURE_MINUTES)
    if recent.callback_errors:
        text = f"{recent.callback_errors:,} of {recent.callbacks:,} callbacks failed."
        yield Finding("warning", subject, f"In the last {FAILURE_MINUTES} minutes {text}")
    if recent.storeless:
        text = f"{recent.storeless:,} calls did without L2, because its store was down."
        yield Finding("warning", subject, f"In the last {FAILURE_MINUTES} minutes {text}")


def _dictionaries(info: CacheInfo) -> list[SharedDict]:
    if info.cache is None:
        return []
    return [*info.cache.dictionaries, *([] if isinstance(info.cache, BackendStore) else [info.cache.locks])]


def _channels(caches: Iterable[CacheInfo]) -> Iterator[Finding]:
    """Poll each channel once, which also updates this process. All channels over events count as one."""
    polled: set[object] = set()
    for info in caches:
        channel = None if info.cache is None else info.cache.channel
        identity = EventChannel if isinstance(channel, EventChannel) else id(channel)
        if not hasattr(channel, "poll") or identity in polled:
            continue
        polled.add(identity)
        try:
            run(to_poll(channel, 0.3))
        except Exception as error:
            yield Finding(
                "error", f"channel of {info.name}", f"Invalidations from other processes cannot be received: {error}"
            )
