"""Exports of the list of caches and of a cache's page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from resty_django.admin.export import Exportable, Sheet, moment
from resty_django.text import printable

from .statistics import LEVELS, Figures
from .stores import StoreStatus
from .tags import TagRow


def caches_sheet(caches: Sequence[Figures]) -> Sheet:
    """Return the list of caches: their calls of the last hour by level."""
    return Sheet(
        "caches",
        ("name", "kind", "calls", "hit_ratio", *LEVELS, "error"),
        lambda: (
            [
                *(cache.name, cache.kind, cache.hour.calls, cache.hour.hit_ratio if cache.hour.calls else None),
                *(getattr(cache.hour, level) for level in LEVELS),
                cache.error,
            ]
            for cache in caches
        ),
    )


def exports(
    figures: Figures, tags: Iterable[TagRow], stores: Iterable[StoreStatus], *, items: bool
) -> Iterator[Exportable]:
    """Yield the charts and tables of a cache's page. `items`: whether the user may see keys."""
    yield from figures.hour_charts
    yield from (days_charts := figures.days_charts)
    yield from (chart.last_columns(24, chart.day["of"]) for chart in days_charts)
    yield _levels(figures)
    yield _callbacks(figures)
    yield _stores(stores)
    if items:
        yield _missed_keys(figures)
        yield _slow_keys(figures)
        yield _tags(tags)


def _levels(figures: Figures) -> Sheet:
    return Sheet(
        "levels",
        ("level", "hour", "all"),
        lambda: ((level, getattr(figures.hour, level), getattr(figures.history.total, level)) for level in LEVELS),
    )


def _callbacks(figures: Figures) -> Sheet:
    return Sheet(
        "callbacks",
        ("period", "callbacks", "failed", "seconds", "saved"),
        lambda: (
            (period, stats.callbacks, stats.callback_errors, stats.callback_seconds, stats.saved)
            for period, stats in (("hour", figures.hour), ("all", figures.history.total))
        ),
    )


def _missed_keys(figures: Figures) -> Sheet:
    return Sheet(
        "most-callbacks",
        ("key", "callbacks_at_least", "callbacks_at_most"),
        lambda: (
            (printable(entry.key, 1000), entry.times - entry.error, entry.times) for entry in figures.history.missed
        ),
    )


def _slow_keys(figures: Figures) -> Sheet:
    return Sheet(
        "slowest-callbacks",
        ("key", "longest_seconds", "when", "callbacks"),
        lambda: (
            (printable(slow.key, 1000), slow.seconds, moment(slow.when), slow.times) for slow in figures.history.slow
        ),
    )


def _tags(tags: Iterable[TagRow]) -> Sheet:
    return Sheet(
        "invalidated-tags",
        ("tag", "invalidations", "last"),
        lambda: ((tag.key.text, tag.times, tag.when) for tag in tags),
    )


def _stores(stores: Iterable[StoreStatus]) -> Sheet:
    """Return the stores with their outages; `reads`: whether they are still read."""
    return Sheet(
        "stores",
        ("store", "uses", "down_since", "reads", "error", "calls_without", "pending"),
        lambda: (
            (
                *(store.store, store.uses, trouble.since if trouble else None, store.readable),
                *((trouble.error, trouble.calls) if trouble else ("", 0)),
                store.pending,
            )
            for store, trouble in ((store, store.trouble) for store in stores)
        ),
    )
