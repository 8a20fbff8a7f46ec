"""Health probe for caches, for `manage.py resty_check`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from resty_django.health import Finding
from resty_django.sansio import run
from resty_django.shdict import SharedDict

from .backend.store import Store
from .broadcasts.channel import to_poll
from .broadcasts.events import EventChannel
from .inventory import CacheInfo, all_caches
from .statistics.counts import summed

MINUTES: Final = 10
"""Minutes for which a failed callback is reported."""
TIMEOUT: Final = 0.3
"""Maximum seconds to wait for a missing event."""
PROBED: Final = "mlcache:probe"


def probe() -> Iterator[Finding]:
    """Report caches that cannot be created, unavailable dictionaries and channels, and callbacks that failed and calls
    without the store in any process.
    """
    healthy = 0
    caches = all_caches()
    for info in caches.values():
        findings = list(_check(info))
        yield from findings
        healthy += not findings
    channels = list(_channels(caches))
    yield from channels
    if healthy == len(caches) and not channels:
        count = _cache_count(healthy)
        yield Finding("ok", "cache", f"{count} can be used. No callback failed in the last {MINUTES} minutes.")


def _check(info: CacheInfo) -> Iterator[Finding]:
    subject = f"cache {info.name}"
    if info.counter is None:
        yield Finding("error", subject, f"The cache cannot be created: {info.error}")
        return
    for dictionary in dict.fromkeys([info.counter.dictionary, *_dictionaries(info)]):
        try:
            dictionary.get(PROBED)
        except Exception as error:
            yield Finding("error", subject, f"Its dictionary {dictionary.name} is unavailable: {error}")
            return
    recent = summed(run(info.counter.history()).minutes[-MINUTES:])
    if recent.callback_errors:
        yield Finding(
            "warning",
            subject,
            f"In the last {MINUTES} minutes {recent.callback_errors:,} of {recent.callbacks:,} callbacks failed.",
        )
    if recent.storeless:
        yield Finding(
            "warning",
            subject,
            f"In the last {MINUTES} minutes {recent.storeless:,} calls did without L2, because its store was down.",
        )


def _dictionaries(info: CacheInfo) -> list[SharedDict]:
    if isinstance(info.cache, Store):
        return [info.cache.dictionary]
    return [] if info.cache is None else [*info.cache.dictionaries, info.cache.locks]


def _channels(caches: dict[str, CacheInfo]) -> Iterator[Finding]:
    """Poll each channel once, which also updates this process. All channels over events count as one."""
    polled: set[object] = set()
    for info in caches.values():
        channel = None if info.cache is None else info.cache.channel
        identity = EventChannel if isinstance(channel, EventChannel) else id(channel)
        if not hasattr(channel, "poll") or identity in polled:
            continue
        polled.add(identity)
        try:
            run(to_poll(channel, TIMEOUT))
        except Exception as error:
            yield Finding(
                "error", f"channel of {info.name}", f"Invalidations from other processes cannot be received: {error}"
            )


def _cache_count(count: int) -> str:
    return "1 cache" if count == 1 else f"{count} caches"
