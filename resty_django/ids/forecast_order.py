"""The order of counters by forecast, as an SQL expression: the counter that runs out first comes first."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import BigIntegerField, Case, DateTimeField, F, FloatField, Func, Q, QuerySet, Value, When
from django.db.models.functions import Cast
from django.utils import timezone

from .engine.wall_clock import wall_at
from .errors import BadRule
from .forecast import LEAST_SECONDS
from .models import IdCounter, IdRule

LASTS: Final = 1e12
"""Seconds added to the forecast of counters whose cycle ends before their numbers do."""
UNKNOWN: Final = 1e17
TURNED: Final = 1e18


class SecondsBetween(Func):
    """The seconds between two times, the later one first."""

    output_field = FloatField()
    arity = 2
    arg_joiner = " - "
    template = "EXTRACT(EPOCH FROM (%(expressions)s))"

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        template = "((julianday(%(expressions)s)) * 86400.0)"
        return self.as_sql(compiler, connection, template=template, arg_joiner=") - julianday(", **context)

    def as_mysql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        template = "-TIMESTAMPDIFF(SECOND, %(expressions)s)"
        return self.as_sql(compiler, connection, template=template, arg_joiner=", ", **context)


def annotate_runs_out(counters: QuerySet[IdCounter], database: str) -> QuerySet[IdCounter]:
    """Return counters with `runs_out`: seconds until the last number is issued, as `forecast` computes them.

    Counters that are used up have 0. Larger than any forecast are, in this order: counters that last until their cycle
    ends, those without a forecast, and those whose cycle has ended, because the next ID begins a new one.
    """
    now = timezone.now()
    step = Cast(F("step"), FloatField())
    left = (Cast(F("rule__max_counter"), FloatField()) - Cast(F("bound"), FloatField()) + step) / step
    unknown = Q(window_began=None) | Q(window_issued__lte=0)
    return (
        counters.annotate(
            wall=_wall(now.timestamp(), database),
            elapsed=SecondsBetween(Value(now, DateTimeField()), F("window_began")),
        )
        .annotate(
            wait=Case(
                When(unknown, then=UNKNOWN), default=left * F("elapsed") / F("window_issued"), output_field=FloatField()
            )
        )
        .annotate(
            runs_out=Case(
                When(Q(cycle_end__lte=F("wall")) | Q(cycle_end__lte=F("shown")), then=Value(TURNED)),
                When(bound__gt=F("rule__max_counter"), then=Value(0.0)),
                When(unknown | Q(elapsed__lt=LEAST_SECONDS), then=Value(UNKNOWN)),
                When(cycle_end__lte=F("wall") + F("wait"), then=F("wait") + LASTS),
                default=F("wait"),
                output_field=FloatField(),
            )
        )
    )


def _wall(now: float, database: str) -> Case:
    """Return an expression for the current wall second in the time zone of a counter's rule."""
    cases = []
    for zone in set(IdRule.objects.using(database).values_list("timezone", flat=True)):
        try:
            cases.append(When(rule__timezone=zone, then=Value(wall_at(now, IdRule(timezone=zone).spec().zone))))
        except BadRule:
            continue
    return Case(*cases, default=Value(int(now)), output_field=BigIntegerField())
