"""The shared dictionaries' panel of the overview, and their metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from django.utils.translation import gettext as _

from resty_django import overview
from resty_django.health import described
from resty_django.metrics import Family, Sample
from resty_django.overview import Figure, Row, Tile

from .base import Stats
from .handler import shdicts


def _all_stats() -> Iterator[tuple[str, Stats | Exception]]:
    for name in shdicts:
        try:
            yield name, shdicts[name].quick_stats()
        except Exception as error:  # one that cannot be used hides no other
            yield name, error


def panel() -> Tile:
    """Return how full each dictionary is."""
    stats_by_name = list(_all_stats())
    fills = [used for _name, stats in stats_by_name if isinstance(stats, Stats) and (used := _used(stats)) is not None]
    figures = [
        Figure("dictionaries", _("Dictionaries"), len(stats_by_name)),
        Figure("fill", _("The fullest"), max(fills, default=None), "share"),
        Figure(
            "forcible",
            _("Forcible evictions"),
            sum(stats.forcible or 0 for _name, stats in stats_by_name if isinstance(stats, Stats)),
            note=_("Items thrown out before their time: usual in a cache, a loss elsewhere."),
        ),
    ]
    rows = [
        Row(
            name,
            [
                Figure("fill", _("Full"), _used(stats), "share"),
                Figure("free", _("Free"), stats.free_space, "bytes"),
                Figure("keys", _("Keys"), stats.keys),
                Figure("forcible", _("Evicted"), stats.forcible),
            ],
        )
        if isinstance(stats, Stats)
        else Row(name, error=described(stats))
        for name, stats in stats_by_name
    ]
    return overview.tile(figures, rows)


def _used(stats: Stats) -> float | None:
    return 1 - min(1.0, stats.free_space / stats.capacity) if stats.capacity else None


def families() -> Iterator[Family]:
    """Yield the metrics of the dictionaries."""
    stats_by_name = [(name, stats) for name, stats in _all_stats() if isinstance(stats, Stats)]
    rows: dict[str, tuple[str, Callable[[Stats], int | None]]] = {
        "resty_dict_capacity_bytes": ("Bytes that a dictionary may take.", lambda stats: stats.capacity or None),
        "resty_dict_free_bytes": ("Bytes that are free in it.", lambda stats: stats.free_space),
        "resty_dict_keys": ("Keys in it, where they are known without a search.", lambda stats: stats.keys),
    }
    for name, (text, read) in rows.items():
        samples = [
            Sample((dict_name,), value) for dict_name, stats in stats_by_name if (value := read(stats)) is not None
        ]
        yield Family(name, "gauge", text, ("dict",), samples)
    samples = [Sample((dict_name,), stats.forcible) for dict_name, stats in stats_by_name if stats.forcible is not None]
    yield Family("resty_dict_evictions", "counter", "Items thrown out before their time.", ("dict",), samples)
