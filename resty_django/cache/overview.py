"""Overview panel and metrics for caches."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import gettext as _

from resty_django import overview
from resty_django.health import described
from resty_django.metrics import Family, Sample
from resty_django.overview import Figure, Row, Tile
from resty_django.sansio import run

from .circuit_breaker.breaker import StoreBreaker, breakers_of, current_outages
from .inventory import all_caches
from .statistics.counts import History, Stats, summed

LEVELS = ("l1", "l2", "l3", "stale", "misses", "errors")


def histories() -> Iterator[tuple[str, History | Exception]]:
    """Return the history of each cache, or the reason why it is unavailable."""
    for name, info in all_caches().items():
        try:
            if info.error is not None:
                raise info.error
            assert info.counter is not None  # noqa: S101
            yield name, run(info.counter.history())
        except Exception as error:  # a cache that cannot be used must not hide the others
            yield name, error


def panel() -> Tile:
    """Return the panel with the calls in the last hour and the share of each level."""
    rows, total, calls_by_minute = [], Stats(), []
    for name, history in histories():
        if isinstance(history, Exception):
            rows.append((0, Row(name, error=described(history))))
            continue
        hour = summed(history.minutes)
        total = total.plus(hour)
        calls_by_minute.append([span.stats.calls for span in history.minutes])
        rows.append((-hour.calls, Row(name, _figures(hour))))
    rows.sort(key=lambda row: (row[0], row[1].subject))
    return overview.tile(
        _figures(total),
        [row for _calls, row in rows],
        bars=[sum(column) for column in zip(*calls_by_minute, strict=True)],
        bars_label=_("Calls per minute in the last hour"),
        notes=[
            _("Of the last hour."),
            *(
                _("This process cannot use the store %(store)s: %(error)s")
                % {"store": outage.store, "error": outage.error}
                for outage in current_outages()
            ),
        ],
    )


def _figures(stats: Stats) -> list[Figure]:
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
    totals = [(name, history.total) for name, history in histories() if isinstance(history, History)]
    yield Family(
        "resty_cache_calls",
        "counter",
        "Calls by result: l1 (memory), l2 (shared dictionary), l3 (source), stale, misses, errors.",
        ("cache", "level"),
        [Sample((name, level), getattr(total, level)) for name, total in totals for level in LEVELS],
    )
    yield Family(
        "resty_cache_callback_seconds",
        "summary",
        "Callbacks that called the source, and their duration in seconds.",
        ("cache",),
        [Sample((name,), total.callback_seconds, total.callbacks) for name, total in totals],
    )
    yield Family(
        "resty_cache_callback_errors",
        "counter",
        "Callbacks that failed.",
        ("cache",),
        [Sample((name,), total.callback_errors) for name, total in totals],
    )
    yield Family(
        "resty_cache_storeless_calls",
        "counter",
        "Reads and writes without L2, because its store was down.",
        ("cache",),
        [Sample((name,), total.storeless) for name, total in totals],
    )
    yield Family(
        "resty_cache_compressible_bytes",
        "counter",
        "Size of the values to compress, before compression.",
        ("cache",),
        [Sample((name,), total.compressible_bytes) for name, total in totals],
    )
    yield Family(
        "resty_cache_compressed_bytes",
        "counter",
        "Size of the same values in L2.",
        ("cache",),
        [Sample((name,), total.compressed_bytes) for name, total in totals],
    )
    breakers = breakers_of(StoreBreaker)
    down = {breaker.name for breaker in breakers if breaker.down}  # earlier settings may have left one of that name
    yield Family(
        "resty_cache_store_up",
        "gauge",
        "Whether this process can use the stores of its caches.",
        ("store",),
        [Sample((store,), 0 if store in down else 1) for store in sorted({breaker.name for breaker in breakers})],
    )
