"""Overview panel and metrics for shipped logs."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import gettext as _

from resty_django import overview
from resty_django.metrics import Family, family
from resty_django.overview import Figure, Tile, TileRow

from .handler import handlers
from .shipper import ShippingCounts


def facts() -> list[tuple[str, ShippingCounts]]:
    """Return the address and the counts of each handler of this process."""
    return [(handler.options.address, handler.stats()) for handler in handlers()]


def panel() -> Tile | None:
    """Return the panel with the counts of this process's handlers, if it has any."""
    counts_by_server = facts()
    if not counts_by_server:
        return None
    rows = [
        TileRow(
            server,
            [
                Figure("sent", _("Sent"), counts.sent),
                Figure("waiting", _("Waiting"), counts.waiting),
                Figure("dropped", _("Dropped"), counts.dropped, level="warning" if counts.dropped else "ok"),
                Figure("failures", _("Failures"), counts.failures, level="warning" if counts.error else "ok"),
            ],
        )
        for server, counts in counts_by_server
    ]
    figures = [
        Figure(name, label, sum(getattr(counts, name) for _server, counts in counts_by_server))
        for name, label in (("sent", _("Sent")), ("waiting", _("Waiting")), ("dropped", _("Dropped")))
    ]
    return overview.tile(figures, rows, notes=[_("Figures are for the process that rendered this page.")])


def families() -> Iterator[Family]:
    """Yield the metrics of shipped logs."""
    counts_by_server = facts()
    text = "Log messages of the scraped process, by outcome."
    messages = (
        ((server, outcome), getattr(counts, outcome))
        for server, counts in counts_by_server
        for outcome in ("sent", "resent", "dropped")
    )
    yield family("resty_logs_messages", "counter", text, "server outcome", messages)
    text = "Bytes of log messages waiting in the scraped process."
    sizes = ((server, counts.size) for server, counts in counts_by_server)
    yield family("resty_logs_waiting_bytes", "gauge", text, "server", sizes)
