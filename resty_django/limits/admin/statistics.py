"""Statistics of limits in the admin: figures, charts as SVG, and the most refused keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.utils import timezone
from django.utils.safestring import SafeString

from resty_django.admin.statistics import Key, why
from resty_django.admin.svg import Column, bars
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
    top: Sequence[RefusedKey] = ()
    error: str = ""
    hour: Totals = field(default_factory=Totals)

    @property
    def numbers(self) -> dict[str, str]:
        """The sums of the last hour by outcome."""
        return {kind: f"{count:,}" for kind, count in self.hour._asdict().items()}

    @property
    def spark(self) -> SafeString:
        """The last hour as a sparkline."""
        return bars(columns(self.minutes), width=150, height=18, label=self.words)

    @property
    def chart(self) -> SafeString:
        return bars(columns(self.minutes), width=720, height=160, label=self.words)

    @property
    def peak(self) -> int:
        """The maximum number of decisions in one minute."""
        return max((minute.totals.all for minute in self.minutes), default=0)

    @property
    def words(self) -> str:
        hour = self.hour
        text = f"{hour.passed:,} passed, {hour.delayed:,} delayed, {hour.refused:,} refused"
        return f"{text}, {hour.shadowed:,} would have been refused" if hour.shadowed else text

    @property
    def rows(self) -> list[tuple[datetime, Totals]]:
        """The minutes with decisions, the most recent first."""
        return [(timezone.localtime(when(minute)), minute.totals) for minute in reversed(self.minutes) if busy(minute)]


def figures(names: Sequence[str], *, top: bool = False) -> Iterator[Figures]:
    """Yield the figures of several names. Never raise; after the first failure, do not read the store again."""
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
                yield Figures(name, minutes, keys, hour=summed(minutes))
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
            outage.decisions,
        )
        for outage in circuit_breaker.current_outages()
    ]


def when(minute: Minute) -> datetime:
    return datetime.fromtimestamp(minute.start, tz=timezone.get_current_timezone())


def busy(minute: Minute) -> bool:
    return any(minute.totals)


def columns(minutes: Sequence[Minute]) -> list[Column]:
    return [[(kind, getattr(minute.totals, kind)) for kind in PARTS] for minute in minutes]
