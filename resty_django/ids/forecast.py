"""Forecasts: when counters will be used up, from their pace so far.

The database computes them, so that lists can be sorted by them. The admin, the overview, `resty_check` and the metrics
all use this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BigIntegerField, Case, DateTimeField, F, FloatField, Func, Q, QuerySet, Value, When
from django.db.models.functions import Cast, Floor, Least
from django.db.models.sql.compiler import SQLCompiler
from django.utils import timezone

from .engine.wall_clock import wall_at
from .errors import BadRule
from .models import IdCounter, IdRule

MAX_FORECAST_SECONDS: Final = 100 * 365.25 * 86_400.0
"""Anything later counts as never."""
LASTS: Final = 1e12
"""Seconds added to `runs_out` of counters whose cycle ends before their numbers do."""
UNKNOWN: Final = 1e17
TURNED: Final = 1e18
"""The values of `runs_out` for these outlooks; see `annotate_runs_out`."""


class Outlook(StrEnum):
    """Possible outcomes for the numbers of the current cycle."""

    UNKNOWN = "unknown"
    """The window is too short yet, or no ID was issued in it."""
    USED_UP = "used up"
    RUNS_OUT = "runs out"
    """The numbers end before the cycle does."""
    LASTS = "lasts"
    """The cycle ends before the numbers do, or they last for more than a hundred years."""
    TURNED = "turned"
    """The cycle has ended; the next ID begins a new one."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """`wait`: seconds until the last number is issued at the current pace, None unless that is before the cycle ends.

    `pace`: numbers per second that were issued in the window.
    """

    outlook: Outlook
    wait: float | None = None
    pace: float | None = None


def forecast_of(counter: Any) -> Forecast:
    """Return the forecast of a counter from `annotate_runs_out`."""
    wait: float = counter.runs_out
    if wait >= UNKNOWN:
        return Forecast(Outlook.TURNED if wait >= TURNED else Outlook.UNKNOWN)
    if not wait:
        return Forecast(Outlook.USED_UP, 0.0)
    pace = counter.window_issued / float(counter.elapsed)
    return (
        Forecast(Outlook.RUNS_OUT, wait, pace) if wait <= MAX_FORECAST_SECONDS else Forecast(Outlook.LASTS, None, pace)
    )


class SecondsBetween(Func):
    """The seconds between two times, the later one first."""

    output_field = FloatField()
    arity = 2
    arg_joiner = " - "
    template = "EXTRACT(EPOCH FROM (%(expressions)s))"

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> tuple[str, tuple[str | int, ...]]:
        template = "((julianday(%(expressions)s)) * 86400.0)"
        return self.as_sql(compiler, connection, template=template, arg_joiner=") - julianday(", **context)

    def as_mysql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> tuple[str, tuple[str | int, ...]]:
        template = "-TIMESTAMPDIFF(SECOND, %(expressions)s)"
        return self.as_sql(compiler, connection, template=template, arg_joiner=", ", **context)


def annotate_runs_out(counters: QuerySet[IdCounter], database: str) -> QuerySet[IdCounter]:
    """Return counters with `runs_out`: seconds until the last number is issued, at the pace of the window.

    Numbers that are reserved but not issued yet count neither as left nor in the pace. The value is 0 for counters that
    are used up. It is larger than any forecast for counters that last until their cycle ends, larger still for counters
    whose window is shorter than an hour, and largest for counters whose next ID begins a new cycle.
    """
    now = timezone.now()
    step = Cast(F("step"), FloatField())
    left = Floor((Cast(F("rule__max_counter"), FloatField()) - Cast(F("bound"), FloatField())) / step) + 1.0
    unknown = Q(window_began=None) | Q(window_issued__lte=0)
    return (
        counters.annotate(
            wall=_wall(now.timestamp(), database),
            elapsed=SecondsBetween(Value(now, DateTimeField()), F("window_began")),
        )
        .annotate(
            wait=Case(
                When(unknown, then=UNKNOWN),
                default=Least(left * F("elapsed") / F("window_issued"), LASTS / 10, output_field=FloatField()),
                output_field=FloatField(),
            )
        )
        .annotate(
            runs_out=Case(
                When(Q(cycle_end__lte=F("wall")) | Q(cycle_end__lte=F("shown")), then=Value(TURNED)),
                When(bound__gt=F("rule__max_counter"), then=Value(0.0)),
                When(unknown | Q(elapsed__lt=3600.0), then=Value(UNKNOWN)),
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
