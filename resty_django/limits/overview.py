"""The limits panel on the overview page, and the metrics of limits."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.http import urlencode
from django.utils.translation import gettext as _

from resty_django import overview
from resty_django.metrics import Family, family
from resty_django.minute_series.records import summed
from resty_django.overview import Figure, Tile, TileRow
from resty_django.text.localized import grouped

from .facts import count_evictions, facts
from .limiters.waiting import waiting_now
from .statistics.catalog import kind_and_name
from .statistics.reporter import Totals


def panel() -> Tile:
    """Return the decisions of the last hour, in total and by limit; without bans, whose limits count them, too."""
    now = facts()
    text = _("The store %(store)s does not answer this process: %(error)s")
    notes = [text % {"store": outage.store, "error": outage.error} for outage in now.outages]
    if evictions := count_evictions():
        text = _(
            "The full store has evicted %(count)s items before they expired; the limits of their keys started again."
        )
        notes.insert(0, text % {"count": grouped(evictions)})
    if not now.limits and not notes:
        return Tile(notes=[_("Nothing was limited yet. Add a policy, or decorate a view with @limit_req.")])
    sums = {name: history.hour for name, history in now.limits.items()}
    ranked = sorted(sums.items(), key=lambda item: (-item[1].refused, -item[1].all, item[0]))
    columns = zip(*(history.minutes for history in now.limits.values()), strict=True)
    return overview.tile(
        _figures(summed(sums.values(), Totals())),
        [
            TileRow(kind_and_name(name)[1], _figures(totals), query=urlencode({"q": kind_and_name(name)[1]}))
            for name, totals in ranked
            if totals.all
        ],
        bars=[sum(minute.counts.all for minute in column) for column in columns],
        bars_label=_("Decisions per minute in the last hour"),
        notes=notes,
    )


def _figures(totals: Totals) -> list[Figure]:
    figures = [
        Figure("passed", _("Passed"), totals.passed),
        Figure("delayed", _("Delayed"), totals.delayed),
        Figure("refused", _("Refused"), totals.refused),
    ]
    return figures if not totals.shadowed else [*figures, Figure("shadowed", _("Would be refused"), totals.shadowed)]


def families() -> Iterator[Family]:
    """Yield the metrics of limits."""
    totals_by_limit = [(kind_and_name(name), history.total) for name, history in facts().histories.items()]
    text = "Decisions by all processes that share the store of limits; shadowed ones would have been refused."
    decisions = (
        ((*limit, outcome), count)
        for limit, totals in totals_by_limit
        for outcome, count in totals._asdict().items()
        if count and outcome != "failed"
    )
    yield family("resty_limits_decisions", "counter", text, "kind limit outcome", decisions)
    text = "Decisions that were made while the store was down; included in the other count."
    failed = ((limit, totals.failed) for limit, totals in totals_by_limit if totals.failed)
    yield family("resty_limits_storeless_decisions", "counter", text, "kind limit", failed)
    text = "Requests and calls of this process that wait for their turn."
    yield family("resty_limits_waiting", "gauge", text, "kind", waiting_now().items())
