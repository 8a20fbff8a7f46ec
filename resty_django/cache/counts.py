"""What is counted of a cache: sums, minutes, hours, the slowest keys; and the record of that in a dictionary. Pure."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from operator import add, attrgetter, sub
from typing import Any, Final, NamedTuple

from .results import L1, L2, L3, STALE, Level

MINUTES: Final = 60
HOURS: Final = 48
"""Spans that are kept, the one under way among them."""
SLOWEST: Final = 20
"""Keys that are listed by the time of their callbacks."""
LONGEST_KEY: Final = 200
"""Characters of such a key; a longer one is shortened."""
LIFE: Final = HOURS * 3600.0
"""Seconds after its longest callback for which a key is listed."""


@dataclass(slots=True)
class Stats:
    """Calls by the level that answered, and what the callbacks took."""

    l1: int = 0
    l2: int = 0
    l3: int = 0
    stale: int = 0
    misses: int = 0
    """Nothing was there, and no callback was given."""
    errors: int = 0
    callbacks: int = 0
    callback_seconds: float = 0.0
    callback_errors: int = 0

    def add(self, level: Level) -> None:
        """Count a call that this level answered."""
        if level is L1:
            self.l1 += 1
        elif level is L2:
            self.l2 += 1
        elif level is L3:
            self.l3 += 1
        elif level is STALE:
            self.stale += 1
        else:
            self.misses += 1

    @property
    def calls(self) -> int:
        return self.l1 + self.l2 + self.l3 + self.stale + self.misses + self.errors

    @property
    def hit_ratio(self) -> float:
        """The share of the calls that L1 or L2 answered; 0 where there were none."""
        return (self.l1 + self.l2 + self.stale) / self.calls if self.calls else 0.0

    def plus(self, other: Stats) -> Stats:
        return Stats(*map(add, values(self), values(other)))

    def minus(self, other: Stats) -> Stats:
        return Stats(*map(sub, values(self), values(other)))


NAMES: Final = tuple(one.name for one in fields(Stats))
values: Final = attrgetter(*NAMES)
"""The counts in their order."""


class Span(NamedTuple):
    """What was counted in a minute or an hour that began at `start`, in epoch seconds."""

    start: int
    stats: Stats


class Slow(NamedTuple):
    """A key by its longest callback: the seconds of that, when it ended in epoch seconds, and how often it ran."""

    key: str
    seconds: float
    when: float
    times: int

    def plus(self, other: Slow) -> Slow:
        slower = max(self, other, key=_seconds)
        return Slow(self.key, slower.seconds, slower.when, self.times + other.times)


class SlowKeys:
    """The slowest keys of one process in bounded memory: at most eight times `SLOWEST`.

    When there are more, all but the slowest are dropped at once; one of those that comes again is counted anew.
    """

    __slots__ = ("_keys", "_lock")

    def __init__(self) -> None:
        self._keys: dict[str, list[Any]] = {}
        """Longest time, its end, and how often it ran."""
        self._lock = threading.Lock()

    def add(self, key: str, seconds: float, when: float, times: int = 1) -> None:
        with self._lock:
            found = self._keys.get(key)
            if found is None:
                self._keys[key] = [seconds, when, times]
                if len(self._keys) > 8 * SLOWEST:
                    self._keys = {one.key: list(one[1:]) for one in self._slowest()}
                return
            found[2] += times
            if seconds > found[0]:
                found[:2] = seconds, when

    def take(self) -> list[Slow]:
        """The slowest, the first of them first; from here on they are counted anew."""
        with self._lock:
            found = self._slowest()
            self._keys = {}
        return found

    def _slowest(self) -> list[Slow]:
        return _slowest(Slow(key, *figures) for key, figures in self._keys.items())


@dataclass(frozen=True, slots=True)
class History:
    """What all processes have counted: since the record was made, by minute and by hour with the one under way at the
    end, and the slowest keys of the last two days."""

    total: Stats = field(default_factory=Stats)
    minutes: list[Span] = field(default_factory=list)
    hours: list[Span] = field(default_factory=list)
    slow: list[Slow] = field(default_factory=list)


def summed(spans: Iterable[Span]) -> Stats:
    """What was counted in these spans together."""
    found = Stats()
    for span in spans:
        found = found.plus(span.stats)
    return found


def added(stored: Any, news: Stats, slow: Iterable[Slow], now: float) -> dict[str, Any]:
    """The record with what one process hands in at `now`, in epoch seconds."""
    total = _total(stored).plus(news)
    keys = {one.key: one for one in _slow(stored, now)}
    for one in slow:
        keys[one.key] = one.plus(keys[one.key]) if one.key in keys else one
    return {
        **{name: getattr(total, name) for name in NAMES},
        "minutes": _spans_with(stored, "minutes", int(now // 60), MINUTES, news),
        "hours": _spans_with(stored, "hours", int(now // 3600), HOURS, news),
        "slow": [list(one) for one in _slowest(keys.values())],
    }


def history(stored: Any, now: float) -> History:
    """What a record tells at `now`; nothing where it is none."""
    return History(
        _total(stored),
        _spans(stored, "minutes", int(now // 60), MINUTES, 60),
        _spans(stored, "hours", int(now // 3600), HOURS, 3600),
        _slow(stored, now),
    )


def shortened(key: str) -> str:
    """A key as it is listed: half a character becomes U+FFFD, since a dictionary can store no text with one."""
    text = key if len(key) <= LONGEST_KEY else key[: LONGEST_KEY - 1] + "…"
    return text if text.isascii() else text.encode("utf-8", "surrogatepass").decode(errors="replace")


def _total(stored: Any) -> Stats:
    known = stored if isinstance(stored, Mapping) else {}
    return Stats(**{name: known[name] for name in NAMES if name in known})


def _rows(stored: Any, name: str) -> list[list[Any]]:
    """The spans of a record: lists of a number and the counts; none where it is not ours."""
    rows = stored.get(name) if isinstance(stored, Mapping) else None
    if not isinstance(rows, list):
        return []
    return [row for row in rows if isinstance(row, list) and len(row) == 1 + len(NAMES)]


def _spans_with(stored: Any, name: str, number: int, most: int, news: Stats) -> list[list[Any]]:
    """Those of the future are of machines whose clocks are ahead."""
    kept = {row[0]: row for row in _rows(stored, name) if abs(row[0] - number) < most}
    before = kept.get(number)
    kept[number] = [number, *(values(news) if before is None else map(add, before[1:], values(news)))]
    return [kept[at] for at in sorted(kept)]


def _spans(stored: Any, name: str, last: int, most: int, seconds: int) -> list[Span]:
    rows = {row[0]: row[1:] for row in _rows(stored, name)}
    return [Span(at * seconds, Stats(*rows.get(at, ()))) for at in range(last - most + 1, last + 1)]


def _slow(stored: Any, now: float) -> list[Slow]:
    try:
        return [one for one in (Slow(*row) for row in stored["slow"]) if one.when > now - LIFE]
    except (KeyError, TypeError, ValueError):
        return []


def _slowest(keys: Iterable[Slow]) -> list[Slow]:
    return sorted(keys, key=_seconds, reverse=True)[:SLOWEST]


def _seconds(one: Slow) -> float:
    return one.seconds


__all__ = ["History", "Slow", "SlowKeys", "Span", "Stats", "added", "history", "shortened", "summed", "values"]
