"""The outbox in the overview and in the metrics."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import gettext as _

from resty_django.conf import conf
from resty_django.metrics import Family, family
from resty_django.overview import Figure, Tile
from resty_django.text import printable

from ..clients.default import default_client
from .status import status


def panel() -> Tile | None:
    """Return the figures of the outbox if entries are late or were refused, else None."""
    outbox = status(default_client()) if conf.qless.outbox.is_used else None
    if outbox is None or not outbox.needs_attention:
        return None
    return Tile(
        [
            Figure("waiting", _("Waiting"), outbox.waiting),
            Figure("age", _("Oldest"), outbox.age, "seconds", level="warning" if outbox.is_late else "ok"),
            Figure("refused", _("Refused"), outbox.refused, level="warning" if outbox.refused else "ok"),
        ],
        notes=[_("Last error: %(error)s") % {"error": printable(outbox.error, 200)}] if outbox.error else [],
    )


def families() -> Iterator[Family]:
    """Yield the metrics of the outbox; none without an outbox."""
    if not conf.qless.outbox.is_used:
        return
    outbox = status(default_client())
    text = "Entries of the outbox that are to be delivered, or to be marked as delivered."
    yield family("resty_jobs_outbox_waiting", "gauge", text, values=outbox.waiting)
    text = "Age of the oldest one of them, 0 without one."
    yield family("resty_jobs_outbox_age_seconds", "gauge", text, values=outbox.age)
    text = "Entries of the outbox that were refused, and need a decision."
    yield family("resty_jobs_outbox_refused", "gauge", text, values=outbox.refused)
