"""Overview panel and metrics for shared dictionaries."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.http import urlencode
from django.utils.translation import gettext as _

from resty_django import overview
from resty_django.health import described
from resty_django.metrics import Family, family
from resty_django.overview import Figure, Tile, TileRow

from .facts import facts


def panel() -> Tile:
    """Return the panel with the used share of each dictionary."""
    dictionaries = facts()
    figures = [
        Figure("dictionaries", _("Dictionaries"), len(dictionaries)),
        Figure(
            "fill",
            _("Fullest dictionary"),
            max((state.used for state in dictionaries if state.used is not None), default=None),
            "share",
        ),
        Figure(
            "forcible",
            _("Forcible evictions"),
            sum(state.stats.forcible or 0 for state in dictionaries if state.stats),
            note=_("Items evicted before they expired. This is normal for caches, but a loss for other data."),
        ),
    ]
    rows = [
        TileRow(
            state.name,
            [
                Figure("fill", _("Full"), state.used, "share"),
                Figure("free", _("Free"), state.stats.free_space, "bytes"),
                Figure("keys", _("Keys"), state.stats.keys),
                Figure("forcible", _("Evicted"), state.stats.forcible),
            ],
            query=urlencode({"find": state.name}),
        )
        if state.stats
        else TileRow(state.name, error=described(state.error) if state.error else "")
        for state in dictionaries
    ]
    return overview.tile(figures, rows)


def families() -> Iterator[Family]:
    """Yield the metrics of the dictionaries."""
    dictionaries = facts()
    up = ((state.name, state.error is None) for state in dictionaries)
    yield family("resty_dict_up", "gauge", "Whether the scraped process can use a dictionary.", "dict", up, adds=False)
    stats_by_name = [(state.name, state.stats) for state in dictionaries if state.stats]
    text = "Bytes of a dictionary that are available for items."
    capacities = ((name, stats.capacity or None) for name, stats in stats_by_name)
    yield family("resty_dict_capacity_bytes", "gauge", text, "dict", capacities)
    free = ((name, stats.free_space) for name, stats in stats_by_name)
    yield family("resty_dict_free_bytes", "gauge", "Free bytes in a dictionary.", "dict", free)
    text = "Number of keys in a dictionary, if known without a scan."
    yield family("resty_dict_keys", "gauge", text, "dict", ((name, stats.keys) for name, stats in stats_by_name))
    evictions = ((name, stats.forcible) for name, stats in stats_by_name)
    yield family("resty_dict_evictions", "counter", "Items evicted before they expired.", "dict", evictions)
