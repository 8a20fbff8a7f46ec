"""The events' panel of the overview, and their metrics."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import gettext as _

from resty_django import overview
from resty_django.conf import conf
from resty_django.health import Level
from resty_django.metrics import Family, Sample
from resty_django.overview import Figure, Tile

from .runtime import Lag, lag

LATE = 1000
"""Waiting events from which on the panel warns."""


def panel() -> Tile:
    """Return how far this process is behind the last event."""
    lag_now: Lag = lag()
    note = "" if lag_now.listening else _("This process does not listen.")
    return overview.tile(
        [
            Figure("waiting", _("Events that wait"), lag_now.waiting, level=_late(lag_now), note=note),
            Figure("store_seconds", _("Answer of the store"), lag_now.seconds, "seconds"),
        ],
        notes=[_("Of the process that made this page; the dictionary is %(name)s.") % {"name": conf.events.dict}],
    )


def _late(lag_now: Lag) -> Level:
    return "warning" if (lag_now.waiting or 0) >= LATE else "ok"


def families() -> Iterator[Family]:
    """Yield the metrics of the events."""
    lag_now = lag()
    waiting = [] if lag_now.waiting is None else [Sample((), lag_now.waiting)]
    text = "Events that were posted and not yet heard by the process that is scraped."
    yield Family("resty_events_waiting", "gauge", text, (), waiting)
    text = "How long the store of the events took to tell the last one."
    yield Family("resty_events_store_seconds", "gauge", text, (), [Sample((), lag_now.seconds)])
