"""The state of all caches, for the tile, the metrics, the health probe and the pages of the admin."""

from __future__ import annotations

from dataclasses import dataclass, field

from resty_django.sansio import run

from .circuit_breaker.breaker import Outage, StoreBreaker, breakers_of, current_outages
from .inventory import CacheInfo, all_caches
from .statistics.counts import CacheHistory, history


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """A cache and its counts, which are zero if `error` says why they are unavailable."""

    info: CacheInfo
    history: CacheHistory = field(default_factory=lambda: history(None, 0.0))
    error: Exception | None = None

    @property
    def name(self) -> str:
        return self.info.name


@dataclass(frozen=True, slots=True)
class CachesOverview:
    """All caches by name, the outages of their stores, and whether this process can use each store."""

    caches: list[CacheFacts]
    outages: list[Outage]
    stores: dict[str, bool]


def facts() -> CachesOverview:
    """Return the state of all caches. Never raise."""
    breakers = breakers_of(StoreBreaker)
    down = {breaker.name for breaker in breakers if breaker.down}  # earlier settings may have left one of that name
    stores = {name: name not in down for name in sorted({breaker.name for breaker in breakers})}
    return CachesOverview([facts_of(info) for info in all_caches().values()], current_outages(), stores)


def facts_of(info: CacheInfo) -> CacheFacts:
    """Return the state of a cache. Never raise, because a cache that cannot be used must not hide the others."""
    if info.counter is None:
        return CacheFacts(info, error=info.error)
    try:
        return CacheFacts(info, run(info.counter.history()))
    except Exception as error:
        return CacheFacts(info, error=error)
