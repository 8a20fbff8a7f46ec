"""Columns of the caches' pages, with the sort keys of their rows."""

from __future__ import annotations

from typing import Any, Final

from django.utils.translation import gettext_lazy as _

from resty_django.admin.tables import Column

from .statistics import LEVELS


def _of_calls(name: str) -> Any:
    """Return the sort key of a share of the last hour's calls; None without calls."""
    return lambda figures: getattr(figures.hour, name) / figures.hour.calls if figures.hour.calls else None


LIST: Final = (
    Column("name", _("Name")),
    Column("kind", _("Kind")),
    Column("calls", _("Calls"), number=True, of="hour.calls"),
    Column("hits", _("Hits"), number=True, of=lambda figures: figures.hour.hit_ratio if figures.hour.calls else None),
    *(Column(kind, label, number=True, of=_of_calls(kind)) for kind, (label, _help) in LEVELS.items()),
    Column("error", _("Last hour"), sorts=False),
)
ITEMS: Final = (
    Column("key", _("Key"), of="key.text"),
    Column("life", _("Time to live"), sorts=False),
    Column("levels", _("Levels"), sorts=False),
    Column("size", _("Size"), sorts=False),
)
TABLES: Final = {
    "missed": (
        Column("key", _("Key"), of="text"),
        Column("callbacks", _("Callbacks"), number=True, of="times"),
    ),
    "slow": (
        Column("key", _("Key"), of="text"),
        Column("longest", _("Longest"), number=True, of="seconds"),
        Column("when", _("When"), time=True),
        Column("callbacks", _("Callbacks"), number=True, of="times"),
    ),
    "stores": (
        Column("store", _("Store")),
        Column("uses", _("Used for")),
        Column("status", _("Status"), of=lambda store: store.trouble.error if store.trouble else ""),
        Column("calls", _("Calls without it"), number=True, of="trouble.calls"),
        Column("waiting", _("Waiting deletions"), number=True, of="pending"),
    ),
    "tags": (
        Column("tag", _("Tag"), of="key.text"),
        Column("invalidations", _("Invalidations"), number=True, of="times"),
        Column("last", _("Last"), time=True, of="when"),
    ),
}
"""The tables of a cache's page that the URL sorts by `o-<name>`."""
