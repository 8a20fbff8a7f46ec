"""The ID service's panel on the overview page, and its metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from django.db.models import Count, Max, Min, QuerySet
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from resty_django import overview
from resty_django.conf import conf
from resty_django.health import Level
from resty_django.metrics import Family, family
from resty_django.overview import Figure, Tile, TileRow

from . import store
from .engine.cycle import DAY_SECONDS
from .engine.wall_clock import wall_at
from .errors import BadRule
from .forecast import MAX_FORECAST_SECONDS, annotate_runs_out
from .models import IdCounter, IdRule
from .service.stats import Issued, issued

LOW_SHARE: Final = 0.1
"""The share of a cycle's numbers below which the numbers left count as low."""
MAX_RULES: Final = 500


@dataclass(frozen=True, slots=True)
class RuleFacts:
    """A rule and its counter with the fewest numbers left; `left` is None if no counter is in the current cycle.

    `runs_out`: seconds until a counter is used up, None unless that is before its cycle ends.
    """

    name: str
    issued: Issued
    counters: int = 0
    left: int | None = None
    capacity: int = 0
    runs_out: float | None = None

    @property
    def room(self) -> float | None:
        """The share of the cycle's numbers that is left, 0 to 1."""
        return None if self.left is None else min(1.0, self.left / max(1, self.capacity))


class _Nearest(NamedTuple):
    """The highest bound and step of a rule's counters in the current cycle, and the number of these counters."""

    bound: int
    step: int
    counters: int


def facts(now: float | None = None) -> list[RuleFacts]:
    """Return the state of all enabled rules, by name. Takes four queries, whatever the number of counters."""
    moment = time.time() if now is None else now
    alias = store.database()
    listed = list(IdRule.objects.using(alias).filter(enabled=True).order_by("name")[:MAX_RULES])
    nearest: dict[int, _Nearest] = {}
    walls = {rule.pk: _wall(rule, moment) for rule in listed}
    rows = (
        IdCounter.objects.using(alias)
        .filter(rule__enabled=True, cycle_end__gt=int(moment) - DAY_SECONDS)
        .values_list("rule_id", "cycle_end")
        .annotate(Max("bound"), Max("step"), Count("pk"))
    )
    for pk, end, bound, step, count in rows.iterator():
        if pk in walls and end > walls[pk]:
            before = nearest.get(pk, _Nearest(bound, step, 0))
            nearest[pk] = _Nearest(max(before.bound, bound), max(before.step, step), before.counters + count)
    issued_by_rule = issued([rule.name for rule in listed], lambda: moment)
    waits = dict(runs_out())
    return [_figures(rule, issued_by_rule[rule.name], nearest.get(rule.pk), waits.get(rule.name)) for rule in listed]


def _figures(rule: IdRule, issued_counts: Issued, nearest: _Nearest | None, runs_out: float | None) -> RuleFacts:
    if nearest is None:
        return RuleFacts(rule.name, issued_counts, runs_out=runs_out)
    left = max(0, (rule.max_counter - nearest.bound) // nearest.step + 1)
    capacity = max(1, (rule.max_counter - rule.min_counter) // nearest.step + 1)
    return RuleFacts(rule.name, issued_counts, nearest.counters, left, capacity, runs_out)


def _wall(rule: IdRule, now: float) -> int:
    try:
        return wall_at(now, rule.spec().zone)
    except (BadRule, ValueError):  # resty_check reports it
        return int(now)


def panel() -> Tile:
    """Return the panel: IDs per minute and numbers left."""
    rules = facts()
    if not rules:
        return Tile(notes=[_('No rule yet. Add a rule, then call next_id("its name").')])
    figures_by_rule = sorted(
        rules,
        key=lambda rule: (_soon(rule) == "ok", 1.0 if rule.room is None else rule.room, -rule.issued.per_minute),
    )
    minutes = [sum(column) for column in zip(*(rule.issued.minutes for rule in figures_by_rule), strict=True)]
    figures = [
        Figure(
            "per_minute", _("IDs per minute"), sum(rule.issued.per_minute for rule in figures_by_rule), "per minute"
        ),
        Figure("last_hour", _("IDs in the last hour"), sum(minutes)),
        _room(min(rules, key=lambda rule: 1.0 if rule.room is None else rule.room)),
    ]
    rows = [
        TileRow(
            rule.name,
            [
                Figure("per_minute", _("Per minute"), rule.issued.per_minute, "per minute"),
                Figure("room", _("Numbers left"), rule.room, "share", _level(rule.room)),
                Figure("runs_out", _("Run out in"), rule.runs_out, "seconds", _soon(rule)),
            ],
            query=urlencode({"q": rule.name}),
        )
        for rule in figures_by_rule
    ]
    return overview.tile(figures, rows, bars=minutes, bars_label=_("IDs per minute in the last hour"))


def _room(rule: RuleFacts) -> Figure:
    note = "" if rule.room is None else _("In rule %(rule)s.") % {"rule": rule.name}
    return Figure("room", _("Fewest numbers left"), rule.room, "share", _level(rule.room), note)


def _level(room: float | None) -> Level:
    if room is None or room >= LOW_SHARE:
        return "ok"
    return "warning" if room else "error"


def _soon(rule: RuleFacts) -> Level:
    return "warning" if rule.runs_out is not None and rule.runs_out < conf.ids.runs_out_warning else "ok"


def families() -> Iterator[Family]:
    """Yield the metrics of the ID service."""
    rules = facts()
    text = "IDs issued by all processes that share the dictionary of STATS."
    yield family("resty_ids_issued", "counter", text, "rule", ((rule.name, rule.issued.total) for rule in rules))
    text = "Numbers left in the cycle, for the counter with the fewest."
    yield family("resty_ids_left", "gauge", text, "rule", ((rule.name, rule.left) for rule in rules), adds=False)
    text = "Share of the cycle's numbers that is left, for the counter with the fewest."
    yield family("resty_ids_left_ratio", "gauge", text, "rule", ((rule.name, rule.room) for rule in rules), adds=False)
    text = "Seconds until the numbers run out at the present pace, for rules whose cycle ends later."
    yield family(
        "resty_ids_runs_out_seconds", "gauge", text, "rule", ((rule.name, rule.runs_out) for rule in rules), adds=False
    )


def runs_out() -> list[tuple[str, float]]:
    """Return rules whose numbers run out before their cycle ends, with the seconds until then. It takes two queries."""
    alias = store.database()
    counters = IdCounter.objects.using(alias).filter(rule__enabled=True, cycle_end__gt=int(time.time()) - DAY_SECONDS)
    forecasts: QuerySet[Any] = annotate_runs_out(counters, alias)
    rows = (
        forecasts.filter(runs_out__lte=MAX_FORECAST_SECONDS)
        .values_list("rule__name")
        .annotate(Min("runs_out"))
        .order_by("rule__name")
    )
    return [(name, max(0.0, seconds)) for name, seconds in rows[:MAX_RULES]]
