"""The state of all limits, for the tile, the metrics, the health probe and the pages of the admin."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from resty_django.circuit_breaker import Outage
from resty_django.conf import conf
from resty_django.minute_series.records import CountHistory
from resty_django.shdict import shdicts

from .statistics.catalog import LimitKind, kind_and_name
from .statistics.reporter import Totals, stats
from .stores.circuit_breaker import current_outages


@dataclass(frozen=True, slots=True)
class LimitFacts:
    """The decisions of all processes by series, and the outages of stores in this process."""

    histories: dict[str, CountHistory[Totals]]
    outages: list[Outage]

    @property
    def limits(self) -> dict[str, CountHistory[Totals]]:
        """The decisions by series without bans, whose limits count them, too."""
        return {name: history for name, history in self.histories.items() if kind_and_name(name)[0] != LimitKind.BAN}


def count_evictions() -> int:
    """Return the number of items that the store of limits evicted before they expired, since it was created.

    A client that forges its address or another part of its key fills the store, and the states that were not used for
    the longest time are dropped: their keys count from zero. Return 0 if the store does not know the number, as on
    Redis. It is not among the facts, because metrics do not need it. Raise `SharedDictError`.
    """
    return shdicts[conf.limits.store].quick_stats().forcible or 0


def facts(names: Iterable[str] | None = None) -> LimitFacts:
    """Return the state of these series (None: all), including the counts of this process. Raise `SharedDictError`."""
    stats.flush()
    names = stats.names() if names is None else names
    return LimitFacts({name: stats.history(name) for name in names}, current_outages())
