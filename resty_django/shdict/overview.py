"""Overview panel and metrics for shared dictionaries."""

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
        except Exception as error:  # a dictionary that cannot be used must not hide the others
            yield name, error


def panel() -> Tile:
    """Return the panel with the used share of each dictionary."""
    stats_by_name = list(_all_stats())
    fills = [used for _name, stats in stats_by_name if isinstance(stats, Stats) and (used := _used(stats)) is not None]
    figures = [
        Figure("dictionaries", _("Dictionaries"), len(stats_by_name)),
        Figure("fill", _("Fullest dictionary"), max(fills, default=None), "share"),
        Figure(
            "forcible",
            _("Forcible evictions"),
            sum(stats.forcible or 0 for _name, stats in stats_by_name if isinstance(stats, Stats)),
            note=_("Items evicted before they expired. This is normal for caches, but a loss for other data."),
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
    replies = list(_all_stats())
    stats_by_name = [(name, stats) for name, stats in replies if isinstance(stats, Stats)]
    up = [Sample((name,), float(isinstance(stats, Stats))) for name, stats in replies]
    text = "Whether the scraped process can use a dictionary."
    yield Family("resty_dict_up", "gauge", text, ("dict",), up, adds=False)
    rows: dict[str, tuple[str, Callable[[Stats], int | None]]] = {
        "resty_dict_capacity_bytes": (
            "Bytes of a dictionary that are available for items.",
            lambda stats: stats.capacity or None,
        ),
        "resty_dict_free_bytes": ("Free bytes in a dictionary.", lambda stats: stats.free_space),
        "resty_dict_keys": ("Number of keys in a dictionary, if known without a scan.", lambda stats: stats.keys),
    }
    for name, (text, read) in rows.items():
        samples = [
            Sample((dict_name,), value) for dict_name, stats in stats_by_name if (value := read(stats)) is not None
        ]
        yield Family(name, "gauge", text, ("dict",), samples)
    samples = [Sample((dict_name,), stats.forcible) for dict_name, stats in stats_by_name if stats.forcible is not None]
    yield Family("resty_dict_evictions", "counter", "Items evicted before they expired.", ("dict",), samples)
