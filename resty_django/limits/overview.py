"""The limits panel on the overview page, and the metrics of limits."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import gettext as _

from resty_django import overview
from resty_django.metrics import Family, Sample
from resty_django.numbers import grouped
from resty_django.overview import Figure, Row, Tile

from .limiters.waiting import waiting_now
from .statistics.catalog import BAN, kind_and_name
from .statistics.evictions import count_evictions
from .statistics.reporter import Totals, stats, summed
from .stores import circuit_breaker


def panel() -> Tile:
    """Return the decisions of the last hour, in total and by limit; without bans, whose limits count them, too."""
    stats.flush()
    hours = {name: stats.minutes(name) for name in stats.names() if kind_and_name(name)[0] != BAN}
    sums = {name: summed(minutes) for name, minutes in hours.items()}
    total = Totals()
    for totals in sums.values():
        total = total.plus(totals)
    ranked = sorted(sums.items(), key=lambda item: (-item[1].refused, -item[1].all, item[0]))
    bars = [sum(minute.totals.all for minute in column) for column in zip(*hours.values(), strict=True)]
    return overview.tile(
        _figures(total),
        [Row(kind_and_name(name)[1], _figures(totals)) for name, totals in ranked if totals.all],
        bars=bars,
        bars_label=_("Decisions per minute in the last hour"),
        notes=[
            *_eviction_notes(),
            *(
                _("The store %(store)s does not answer this process: %(error)s")
                % {"store": outage.store, "error": outage.error}
                for outage in circuit_breaker.current_outages()
            ),
        ],
    )


def _eviction_notes() -> list[str]:
    count = count_evictions()
    if not count:
        return []
    text = _("The full store has evicted %(count)s items before they expired; the limits of their keys started again.")
    return [text % {"count": grouped(count)}]


def _figures(totals: Totals) -> list[Figure]:
    figures = [
        Figure("passed", _("Passed"), totals.passed),
        Figure("delayed", _("Delayed"), totals.delayed),
        Figure("refused", _("Refused"), totals.refused),
    ]
    return figures if not totals.shadowed else [*figures, Figure("shadowed", _("Would be refused"), totals.shadowed)]


def families() -> Iterator[Family]:
    """Yield the metrics of limits."""
    stats.flush()
    by_name = stats.totals()
    yield Family(
        "resty_limits_decisions",
        "counter",
        "Decisions by all processes that share the store of limits; shadowed ones would have been refused.",
        ("kind", "limit", "outcome"),
        [
            Sample((*kind_and_name(name), outcome), count)
            for name, totals in by_name.items()
            for outcome, count in zip(("passed", "delayed", "refused", "shadowed"), totals, strict=False)
            if count
        ],
    )
    yield Family(
        "resty_limits_storeless_decisions",
        "counter",
        "Decisions that were made while the store was down; included in the other count.",
        ("kind", "limit"),
        [Sample(kind_and_name(name), totals.failed) for name, totals in by_name.items() if totals.failed],
    )
    yield Family(
        "resty_limits_waiting",
        "gauge",
        "Requests and calls of this process that wait for their turn.",
        ("kind",),
        [Sample((kind,), count) for kind, count in waiting_now().items()],
    )
