"""Statistics of limits in the admin: figures, charts as SVG, and the most refused keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from resty_django.admin.chart_axes import time_axis
from resty_django.admin.charts import Chart, Series, sparkline
from resty_django.admin.formatting import number
from resty_django.admin.statistics import KeyView, OutageView, why
from resty_django.admin.tables import Listing, listing
from resty_django.minute_series.records import CountHistory, PeriodCounts
from resty_django.minute_series.top_keys import FrequentKey

from ..facts import facts
from ..statistics.reporter import Totals, stats
from ..stores import circuit_breaker
from .columns import REFUSED_KEY_COLUMNS


@dataclass(frozen=True, slots=True)
class RefusedKey:
    """A key and the count of its refusals. `token` identifies the key in URLs; "" if the key was shortened.

    `search`: the query that finds the key in all limits.
    """

    text: str
    token: str
    count: str
    times: int
    """The upper bound of the count."""
    search: str

    @classmethod
    def of(cls, entry: FrequentKey) -> RefusedKey:
        key = KeyView.of(entry.key)
        shortened = entry.key.endswith("…")
        count = number(entry.times)
        if entry.error:
            count = _("%(low)s to %(high)s") % {"low": number(entry.times - entry.error), "high": count}
        search = "" if shortened else urlencode({"key": entry.key}, errors="replace")
        return cls(key.text, "" if shortened else key.token, count, entry.times, search)


@dataclass(frozen=True, slots=True)
class LimitFigures:
    """The decisions under one name. `error`: the reason if the store does not answer, else ""."""

    name: str
    history: CountHistory[Totals] = field(default_factory=lambda: CountHistory(None, Totals(), 0.0))
    top: Sequence[RefusedKey] = ()
    error: str = ""

    @property
    def hour(self) -> Totals:
        return self.history.hour

    @property
    def numbers(self) -> dict[str, str]:
        """The sums of the last hour by outcome."""
        return in_digits(self.hour)

    @property
    def day_numbers(self) -> dict[str, str]:
        """The sums of the last two days by outcome."""
        return in_digits(self.history.days)

    @property
    def spark(self) -> SafeString:
        """The last hour as a sparkline."""
        return sparkline(series_of(self.history.minutes), self.words)

    @property
    def chart(self) -> Chart:
        """The last hour by minute."""
        return Chart(
            _("Decisions"),
            series_of(self.history.minutes),
            time_axis([minute.start for minute in self.history.minutes], "minute"),
            y_label=_("decisions per minute"),
            summary=self.words,
            table_label=_("By minute"),
        )

    @property
    def days_chart(self) -> Chart:
        """The last two days by hour."""
        return Chart(
            _("Decisions"),
            series_of(self.history.hours),
            time_axis([hour.start for hour in self.history.hours], "hour"),
            y_label=_("decisions per hour"),
            summary=in_words(self.history.days),
            table_label=_("By hour"),
            height=120,
        )

    @property
    def words(self) -> str:
        return in_words(self.hour)


def figures(names: Sequence[str], *, top: bool = False) -> list[LimitFigures]:
    """Return the figures of several names; `top`: with the most refused keys. Never raise."""
    try:
        return [
            LimitFigures(name, history, [RefusedKey.of(entry) for entry in stats.top(name)] if top else ())
            for name, history in facts(names).histories.items()
        ]
    except Exception as fault:  # settings without the dictionary, a store that is down, foreign data
        return [LimitFigures(name, error=why(fault)) for name in names]


def refused_keys(request: HttpRequest, figures: LimitFigures) -> Listing[RefusedKey]:
    """Return the most refused keys, sorted by the URL parameter `o-keys`."""
    return listing(request, REFUSED_KEY_COLUMNS, figures.top, name="keys", find="", default="-refused")


def outages() -> list[OutageView]:
    """Return the stores that do not answer this process."""
    return [OutageView.of(outage) for outage in circuit_breaker.current_outages()]


def in_words(totals: Totals) -> str:
    text = _("%(passed)s passed, %(delayed)s delayed, %(refused)s refused")
    if totals.shadowed:
        text = _("%(passed)s passed, %(delayed)s delayed, %(refused)s refused, %(shadowed)s would have been refused")
    return text % in_digits(totals)


def in_digits(totals: Totals) -> dict[str, str]:
    return {kind: number(count) for kind, count in totals._asdict().items()}


def series_of(periods: Sequence[PeriodCounts[Totals]]) -> list[Series]:
    """Return the parts of the bars, the highest first, so that even a few refusals are visible at the bottom."""
    labels = {
        "passed": _("Passed"),
        "delayed": _("Delayed"),
        "refused": _("Refused"),
        "shadowed": _("Would have been refused"),
    }
    return [Series(kind, label, [getattr(period.counts, kind) for period in periods]) for kind, label in labels.items()]
