"""The panel of shipped logs in the overview, and their metrics."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import gettext as _

from resty_django import overview
from resty_django.metrics import Family, Sample
from resty_django.overview import Figure, Row, Tile

from .handler import handlers


def panel() -> Tile:
    """Return what the handlers of this process have shipped."""
    rows = []
    for handler in handlers():
        counts = handler.stats()
        rows.append(
            Row(
                handler.options.address,
                [
                    Figure("sent", _("Sent"), counts.sent),
                    Figure("waiting", _("Waiting"), counts.waiting),
                    Figure("dropped", _("Dropped"), counts.dropped, level="warning" if counts.dropped else "ok"),
                    Figure("failures", _("Failures"), counts.failures, level="warning" if counts.error else "ok"),
                ],
            )
        )
    figures = [
        Figure(name, label, sum(figure.value or 0 for row in rows for figure in row.figures if figure.name == name))
        for name, label in (("sent", _("Sent")), ("waiting", _("Waiting")), ("dropped", _("Dropped")))
    ]
    notes = [_("Of the process that made this page.") if rows else _("No handler of LOGGING ships records.")]
    return overview.tile(figures, rows, notes=notes)


def families() -> Iterator[Family]:
    """Yield the metrics of shipped logs."""
    counts_by_server = [(handler.options.address, handler.stats()) for handler in handlers()]
    yield Family(
        "resty_logs_messages",
        "counter",
        "Log messages of the process that is scraped, by what became of them.",
        ("server", "outcome"),
        [
            Sample((server, outcome), getattr(counts, outcome))
            for server, counts in counts_by_server
            for outcome in ("sent", "resent", "dropped")
        ],
    )
    yield Family(
        "resty_logs_waiting_bytes",
        "gauge",
        "Bytes of log messages that wait in the process that is scraped.",
        ("server",),
        [Sample((server,), counts.size) for server, counts in counts_by_server],
    )
