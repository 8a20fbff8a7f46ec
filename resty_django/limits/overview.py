"""What the overview and the metrics tell of limits."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django import metrics, overview
from resty_django.metrics import Family, Sample
from resty_django.overview import Figure, Panel, Row, Tile

from . import outage
from .stats import Totals, stats, summed


def panel() -> Tile:
    """What was decided in the last hour, altogether and by policy."""
    stats.flush()
    hours = {name: stats.minutes(name) for name in stats.names()}
    sums = {name: summed(minutes) for name, minutes in hours.items()}
    whole = Totals()
    for one in sums.values():
        whole = whole.plus(one)
    ranked = sorted(sums.items(), key=lambda item: (-item[1].refused, -item[1].all, item[0]))
    bars = [sum(minute.totals.all for minute in column) for column in zip(*hours.values(), strict=True)]
    return overview.tile(
        _figures(whole),
        [Row(name, _figures(totals)) for name, totals in ranked if totals.all],
        bars=bars,
        bars_label=_("Decisions by minute, the last hour"),
        notes=[
            _("The store %(store)s does not answer this process: %(error)s") % {"store": one.store, "error": one.error}
            for one in outage.current()
        ],
    )


def _figures(totals: Totals) -> list[Figure]:
    found = [
        Figure("passed", _("Passed"), totals.passed),
        Figure("delayed", _("Delayed"), totals.delayed),
        Figure("refused", _("Refused"), totals.refused),
    ]
    return found if not totals.shadowed else [*found, Figure("shadowed", _("Would be refused"), totals.shadowed)]


def families() -> Iterator[Family]:
    """The metrics of limits."""
    stats.flush()
    found = stats.totals()
    yield Family(
        "resty_limits_decisions",
        "counter",
        "Decisions of all processes that share the store of limits; shadowed ones would have been refused.",
        ("policy", "outcome"),
        [
            Sample((name, outcome), count)
            for name, totals in found.items()
            for outcome, count in zip(("passed", "delayed", "refused", "shadowed"), totals, strict=False)
            if count
        ],
    )
    yield Family(
        "resty_limits_storeless_decisions",
        "counter",
        "Those among them that were made while the store was down.",
        ("policy",),
        [Sample((name,), totals.failed) for name, totals in found.items() if totals.failed],
    )


def register() -> None:
    """Register the panel `limits` and the metrics."""
    app = "resty_django.limits"
    overview.register(
        Panel(
            "limits",
            gettext_lazy("Limits"),
            panel,
            permissions=("resty_limits.view_limitpolicy", "resty_limits.change_limitpolicy"),
            page="resty_limits_limitpolicy_changelist",
            app=app,
            order=20,
        )
    )
    metrics.register("limits", families, app=app)


__all__ = ["families", "panel", "register"]
