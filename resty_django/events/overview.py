"""Overview panel and metrics for events."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import gettext as _

from resty_django import overview
from resty_django.conf import conf
from resty_django.metrics import Family, family
from resty_django.overview import Figure, Tile

from .runtime import lag


def panel() -> Tile | None:
    """Return the panel with this process's lag, if events wait or are not received."""
    lag_now = lag()
    if not lag_now.waiting:
        return None
    return overview.tile(
        [
            Figure(
                "waiting", _("Waiting events"), lag_now.waiting, level="warning" if lag_now.waiting >= 1000 else "ok"
            ),
            Figure("store_seconds", _("Response time of the store"), lag_now.seconds, "seconds"),
        ],
        notes=[
            _("Figures are for the process that rendered this page; the dictionary is %(name)s.")
            % {"name": conf.events.dict}
        ],
    )


def families() -> Iterator[Family]:
    """Yield the metrics of the events."""
    lag_now = lag()
    text = "Events that were posted and not yet received by the scraped process."
    yield family("resty_events_waiting", "gauge", text, values=lag_now.waiting)
    text = "Response time of the events' store."
    yield family("resty_events_store_seconds", "gauge", text, values=lag_now.seconds)
