"""What limits have decided, as the admin shows it: figures, bars as SVG, and the keys refused most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.utils import timezone
from django.utils.safestring import SafeString

from resty_django.admin.bars import Column, bars
from resty_django.admin.figures import Key, why
from resty_django.admin.shown import printable

from .. import outage
from ..stats import Frequent, Minute, Totals, stats, summed

PARTS = ("refused", "shadowed", "delayed", "passed")
"""The parts of a bar, the lowest first: what was refused is to be seen however little it is."""


@dataclass(frozen=True, slots=True)
class RefusedKey:
    """A key and how often it was refused; `token` leads to it in an address, "" where it was shortened."""

    text: str
    token: str
    count: str

    @classmethod
    def of(cls, found: Frequent) -> RefusedKey:
        key = Key.of(found.key)
        shortened = found.key.endswith("…")
        least = found.times - found.error
        count = f"{found.times:,}" if not found.error else f"{least:,} to {found.times:,}"
        return cls(key.text, "" if shortened else key.token, count)


@dataclass(frozen=True, slots=True)
class Figures:
    """What was decided under one name; where the store does not answer, `error` says why."""

    name: str
    minutes: Sequence[Minute] = ()
    top: Sequence[RefusedKey] = ()
    error: str = ""
    hour: Totals = field(default_factory=Totals)

    @property
    def numbers(self) -> dict[str, str]:
        """The sums of the last hour by their kind."""
        return {kind: f"{count:,}" for kind, count in self.hour._asdict().items()}

    @property
    def spark(self) -> SafeString:
        """The last hour in a line of the list."""
        return bars(columns(self.minutes), width=150, height=18, words=self.words)

    @property
    def chart(self) -> SafeString:
        return bars(columns(self.minutes), width=720, height=160, words=self.words)

    @property
    def peak(self) -> int:
        """The most decisions in one minute."""
        return max((minute.totals.all for minute in self.minutes), default=0)

    @property
    def words(self) -> str:
        hour = self.hour
        text = f"{hour.passed:,} passed, {hour.delayed:,} delayed, {hour.refused:,} refused"
        return f"{text}, {hour.shadowed:,} would have been refused" if hour.shadowed else text

    @property
    def rows(self) -> list[tuple[datetime, Totals]]:
        """The minutes in which something was decided, the latest first."""
        return [(timezone.localtime(when(minute)), minute.totals) for minute in reversed(self.minutes) if busy(minute)]


def figures(names: Sequence[str], *, top: bool = False) -> Iterator[Figures]:
    """The figures of several names; never raises. After the first failure of the store it is not asked again."""
    error = ""
    try:
        stats.flush()
    except Exception as fault:  # settings that name no dictionary, memory that is not ours
        error = why(fault)
    for name in names:
        if not error:
            try:
                minutes = stats.minutes(name)
                keys = [RefusedKey.of(found) for found in stats.top(name)] if top else []
                yield Figures(name, minutes, keys, hour=summed(minutes))
                continue
            except Exception as fault:
                error = why(fault)
        yield Figures(name, error=error)


@dataclass(frozen=True, slots=True)
class Trouble:
    """A store that does not answer this process."""

    store: str
    begun: datetime
    error: str
    decisions: int


def troubles() -> list[Trouble]:
    return [
        Trouble(
            printable(one.store, 200),
            datetime.fromtimestamp(one.since, tz=timezone.get_current_timezone()),
            printable(one.error, 500),
            one.decisions,
        )
        for one in outage.current()
    ]


def when(minute: Minute) -> datetime:
    return datetime.fromtimestamp(minute.start, tz=timezone.get_current_timezone())


def busy(minute: Minute) -> bool:
    return any(minute.totals)


def columns(minutes: Sequence[Minute]) -> list[Column]:
    return [[(kind, getattr(minute.totals, kind)) for kind in PARTS] for minute in minutes]
