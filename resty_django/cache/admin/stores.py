"""The stores of a cache for the admin, as this process sees them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from django.utils.translation import gettext as _

from resty_django.admin.formatting import NONE, date_time, number
from resty_django.admin.statistics import OutageView
from resty_django.shdict import SharedDict

from ..circuit_breaker.breaker import StoreBreaker, breaker_of, current_outages
from ..inventory import CacheInfo
from ..mlcache.cache import MLCache


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """A store, what the cache uses it for, and its current outage.

    `pending`: the number of writes to be carried out after it.
    """

    store: str
    uses: str
    trouble: OutageView | None
    readable: bool
    pending: int

    @property
    def waiting(self) -> str:
        return number(self.pending) if self.pending else NONE


def troubles() -> list[str]:
    """Return a text for each store of the caches that this process cannot use."""
    text = _(
        "This process has not been able to use the store “%(store)s” since %(since)s (%(error)s). %(calls)s calls were "
        "answered without it; each cache follows its option “on_error”."
    )
    outages = map(OutageView.of, current_outages())
    return [text % {**asdict(each), "since": date_time(each.since), "calls": number(each.calls)} for each in outages]


def statuses(info: CacheInfo) -> list[StoreStatus]:
    """Return the stores of a cache."""
    uses: dict[StoreBreaker, list[str]] = {}
    for use, dictionary in _dictionaries(info):
        uses.setdefault(breaker_of(dictionary), []).append(f"{use} ({dictionary.name})")
    return [_status(breaker, ", ".join(texts)) for breaker, texts in uses.items()]


def _status(breaker: StoreBreaker, uses: str) -> StoreStatus:
    outage = breaker.outage()
    trouble = None if outage is None else OutageView.of(outage)
    return StoreStatus(breaker.name, uses, trouble, not breaker.reads_down, len(breaker.pending))


def _dictionaries(info: CacheInfo) -> Iterator[tuple[str, SharedDict]]:
    cache = info.cache
    if isinstance(cache, MLCache):
        yield "L2", cache.dictionaries[0]
        for dictionary in cache.dictionaries[1:]:
            yield _("cached None"), dictionary
        yield _("locks"), cache.locks
    elif cache is not None:
        yield "L2", cache.dictionary
    if info.counter is not None:
        yield _("statistics"), info.counter.dictionary
