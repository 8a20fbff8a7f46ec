"""Overview panel and metrics for caches."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.http import urlencode
from django.utils.translation import gettext as _

from resty_django import overview
from resty_django.health import described
from resty_django.metrics import Family, Sample, family
from resty_django.minute_series.records import summed
from resty_django.overview import Figure, Tile, TileRow

from .facts import facts
from .statistics.counts import CacheStats


def panel() -> Tile:
    """Return the panel with the calls in the last hour and the share of each level."""
    now = facts()
    histories = [cache.history for cache in now.caches if cache.error is None]
    if len(histories) == len(now.caches) and not now.outages and not any(each.total.calls for each in histories):
        return Tile(notes=[_("Nothing was cached yet. Decorate a view with @cache_view, or call cached().")])
    rows = [
        TileRow(cache.name, error=described(cache.error))
        if cache.error
        else TileRow(cache.name, _figures(cache.history.hour), query=urlencode({"find": cache.name}))
        for cache in sorted(now.caches, key=lambda cache: (-cache.history.hour.calls, cache.name))
    ]
    return overview.tile(
        _figures(summed((history.hour for history in histories), CacheStats())),
        rows,
        bars=[
            sum(minute.counts.calls for minute in column)
            for column in zip(*(history.minutes for history in histories), strict=True)
        ],
        bars_label=_("Calls per minute in the last hour"),
        notes=[
            _("Of the last hour."),
            *(
                _("This process cannot use the store %(store)s: %(error)s")
                % {"store": outage.store, "error": outage.error}
                for outage in now.outages
            ),
        ],
    )


def _figures(stats: CacheStats) -> list[Figure]:
    def share(count: int) -> float | None:
        return count / stats.calls if stats.calls else None

    return [
        Figure("calls", _("Calls"), stats.calls),
        Figure("l1", _("Memory (L1)"), share(stats.l1), "share"),
        Figure("l2", _("Shared (L2)"), share(stats.l2), "share"),
        Figure("l3", _("Source (L3)"), share(stats.l3), "share"),
        Figure("stale", _("Stale"), share(stats.stale), "share"),
        Figure("errors", _("Errors"), stats.errors, level="warning" if stats.errors else "ok"),
    ]


def families() -> Iterator[Family]:
    """Return the metrics of the caches."""
    now = facts()
    totals = [(cache.name, cache.history.total) for cache in now.caches if cache.error is None]
    text = "Calls by result: l1 (memory), l2 (shared dictionary), l3 (source), stale, misses, errors."
    levels = ("l1", "l2", "l3", "stale", "misses", "errors")
    calls = (((name, level), getattr(total, level)) for name, total in totals for level in levels)
    yield family("resty_cache_calls", "counter", text, "cache level", calls)
    text = (
        "Calls by level l3 and misses, by reason: expired, invalidated, evicted, new (not seen before by the process)."
    )
    reasons = ("expired", "invalidated", "evicted", "new")
    misses = (((name, reason), getattr(total, reason)) for name, total in totals for reason in reasons)
    yield family("resty_cache_misses", "counter", text, "cache reason", misses)
    text = "Callbacks that called the source, and their duration in seconds."
    callbacks = [Sample((name,), total.callback_seconds, total.callbacks) for name, total in totals]
    yield Family("resty_cache_callback_seconds", "summary", text, ("cache",), callbacks)
    for metric, count, text in (
        ("resty_cache_callback_errors", "callback_errors", "Callbacks that failed."),
        ("resty_cache_storeless_calls", "storeless", "Reads and writes without L2, because its store was down."),
        ("resty_cache_compressible_bytes", "compressible_bytes", "Size of the values to compress, before compression."),
        ("resty_cache_compressed_bytes", "compressed_bytes", "Size of the same values in L2."),
    ):
        yield family(metric, "counter", text, "cache", ((name, getattr(total, count)) for name, total in totals))
    text = "Whether this process can use the stores of its caches."
    yield family("resty_cache_store_up", "gauge", text, "store", now.stores.items())
