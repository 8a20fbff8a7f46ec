"""Statistics of limits in the admin: figures, charts as SVG, and the most refused keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.utils import timezone
from django.utils.safestring import SafeString

from resty_django.admin.statistics import Key, why
from resty_django.admin.svg import Column, bars, chart, time_marks
from resty_django.text import printable

from ..statistics.reporter import Minute, Totals, stats, summed
from ..statistics.top_keys import FrequentKey
from ..stores import circuit_breaker

PARTS = ("refused", "shadowed", "delayed", "passed")
"""The parts of a bar, the lowest first, so that even a few refusals are visible."""


@dataclass(frozen=True, slots=True)
class RefusedKey:
    """A key and the count of its refusals. `token` identifies the key in URLs; "" if the key was shortened."""

    text: str
    token: str
    count: str

    @classmethod
    def of(cls, entry: FrequentKey) -> RefusedKey:
        key = Key.of(entry.key)
        shortened = entry.key.endswith("…")
        least = entry.times - entry.error
        count = f"{entry.times:,}" if not entry.error else f"{least:,} to {entry.times:,}"
        return cls(key.text, "" if shortened else key.token, count)


@dataclass(frozen=True, slots=True)
class Figures:
    """The decisions under one name. `error`: the reason if the store does not answer, else ""."""

    name: str
    minutes: Sequence[Minute] = ()
    hours: Sequence[Minute] = ()
    top: Sequence[RefusedKey] = ()
    error: str = ""
    hour: Totals = field(default_factory=Totals)
    days: Totals = field(default_factory=Totals)

    @property
    def numbers(self) -> dict[str, str]:
        """The sums of the last hour by outcome."""
        return in_digits(self.hour)

    @property
    def day_numbers(self) -> dict[str, str]:
        """The sums of the last two days by outcome."""
        return in_digits(self.days)

    @property
    def spark(self) -> SafeString:
        """The last hour as a sparkline."""
        return bars(columns(self.minutes), width=150, height=18, label=self.words)

    @property
    def chart(self) -> SafeString:
        """The last hour by minute, with axes."""
        marks = time_marks([minute.start for minute in self.minutes], 900, "%H:%M")
        return chart(
            columns(self.minutes), width=660, height=160, label=self.words, unit="decisions per minute", marks=marks
        )

    @property
    def days_chart(self) -> SafeString:
        """The last two days by hour, with axes."""
        marks = time_marks([hour.start for hour in self.hours], 43_200, "%d.%m. %H:%M")
        label = f"Last two days: {in_words(self.days)}"
        return chart(columns(self.hours), width=660, height=120, label=label, unit="decisions per hour", marks=marks)

    @property
    def peak(self) -> int:
        """The maximum number of decisions in one minute."""
        return max((minute.totals.all for minute in self.minutes), default=0)

    @property
    def words(self) -> str:
        return in_words(self.hour)

    @property
    def rows(self) -> list[tuple[datetime, Totals]]:
        """The minutes with decisions, the most recent first."""
        return _rows(self.minutes)

    @property
    def hour_rows(self) -> list[tuple[datetime, Totals]]:
        """The hours with decisions, the most recent first."""
        return _rows(self.hours)


def figures(names: Sequence[str], *, top: bool = False, days: bool = False) -> Iterator[Figures]:
    """Yield the figures of several names. Never raise; after the first failure, do not read the store again.

    `top`: with the most refused keys. `days`: with the last two days.
    """
    error = ""
    try:
        stats.flush()
    except Exception as fault:  # settings without the dictionary, foreign data
        error = why(fault)
    for name in names:
        if not error:
            try:
                minutes = stats.minutes(name)
                keys = [RefusedKey.of(entry) for entry in stats.top(name)] if top else []
                hours = stats.hours(name) if days else []
                yield Figures(name, minutes, hours, keys, hour=summed(minutes), days=summed(hours))
                continue
            except Exception as fault:
                error = why(fault)
        yield Figures(name, error=error)


@dataclass(frozen=True, slots=True)
class Trouble:
    """A store that does not answer this process."""

    store: str
    since: datetime
    error: str
    decisions: int


def troubles() -> list[Trouble]:
    return [
        Trouble(
            printable(outage.store, 200),
            datetime.fromtimestamp(outage.since, tz=timezone.get_current_timezone()),
            printable(outage.error, 500),
            outage.calls,
        )
        for outage in circuit_breaker.current_outages()
    ]


def in_words(totals: Totals) -> str:
    text = f"{totals.passed:,} passed, {totals.delayed:,} delayed, {totals.refused:,} refused"
    return f"{text}, {totals.shadowed:,} would have been refused" if totals.shadowed else text


def in_digits(totals: Totals) -> dict[str, str]:
    return {kind: f"{count:,}" for kind, count in totals._asdict().items()}


def _rows(spans: Sequence[Minute]) -> list[tuple[datetime, Totals]]:
    return [(timezone.localtime(when(span)), span.totals) for span in reversed(spans) if busy(span)]


def when(minute: Minute) -> datetime:
    return datetime.fromtimestamp(minute.start, tz=timezone.get_current_timezone())


def busy(minute: Minute) -> bool:
    return any(minute.totals)


def columns(minutes: Sequence[Minute]) -> list[Column]:
    return [[(kind, getattr(minute.totals, kind)) for kind in PARTS] for minute in minutes]
