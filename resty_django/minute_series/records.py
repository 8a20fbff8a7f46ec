"""The record of a series: the total of its counts, and the counts of the last minutes and hours. Pure.

    CountHistory(stored, Totals(), now).hour.refused

A record is stored as `{"total": [count, ...], "minutes": [[minute, count, ...], ...], "hours": [[hour, count, ...],
...]}`. Minutes and hours are numbered since the epoch. Periods without counts are left out, and a series need not have
hours. Malformed parts of a record are treated as empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import add
from typing import Final, Generic, NamedTuple, TypeAlias, TypeGuard, TypeVar

MINUTES: Final = 60
HOURS: Final = 48
"""Numbers of minutes and hours that are kept, including the current ones."""

Counts: TypeAlias = tuple[float, ...]
"""Counters, in an order defined by the owner of the series."""

_PERIODS: Final = {"minutes": (60, MINUTES), "hours": (3600, HOURS)}
"""For each kind of period: its length in seconds, and how many of them are kept."""

C = TypeVar("C", bound=Iterable[float])
"""A type of counts with names: iterable, and created with its counts as positional arguments."""


def summed(counts: Iterable[C], zero: C) -> C:
    """Return the sums of counts of the type of `zero`."""
    create: Callable[..., C] = type(zero)
    return create(*map(sum, zip(zero, *counts, strict=True)))


class PeriodCounts(NamedTuple, Generic[C]):
    """The counts of a minute or an hour that began at `start`, in epoch seconds."""

    start: int
    counts: C


@dataclass(frozen=True)
class CountHistory(Generic[C]):
    """The counts in a record as of `now` (epoch seconds), in the type of `zero`."""

    stored: object
    zero: C
    now: float

    @cached_property
    def total(self) -> C:
        """The sums of all counts since the record was created."""
        return self._create(total(self.stored, self._width))

    @cached_property
    def minutes(self) -> list[PeriodCounts[C]]:
        """The last `MINUTES` minutes, the current one last."""
        return self._periods("minutes")

    @cached_property
    def hours(self) -> list[PeriodCounts[C]]:
        """The last `HOURS` hours, the current one last."""
        return self._periods("hours")

    @cached_property
    def hour(self) -> C:
        """The sums of the last `MINUTES` minutes."""
        return self.last(MINUTES)

    @cached_property
    def days(self) -> C:
        """The sums of the last `HOURS` hours."""
        return summed((period.counts for period in self.hours), self.zero)

    def last(self, minutes: int) -> C:
        """Return the sums of the last minutes."""
        return summed((period.counts for period in self.minutes[-minutes:]), self.zero)

    @property
    def _width(self) -> int:
        return len(tuple(self.zero))

    def _create(self, counts: Counts) -> C:
        create: Callable[..., C] = type(self.zero)
        return create(*counts)

    def _periods(self, name: str) -> list[PeriodCounts[C]]:
        seconds, most = _PERIODS[name]
        rows, last = _rows(self.stored, name, self._width), int(self.now // seconds)
        return [
            PeriodCounts(at * seconds, self._create(rows[at]) if at in rows else self.zero)
            for at in range(last - most + 1, last + 1)
        ]


def added(stored: object, counts: Counts, now: float, hours: bool = False) -> dict[str, object]:
    """Return the record with the counts added at `now` (epoch seconds); `hours`: the series has hours as well."""
    record: dict[str, object] = {
        "total": list(map(add, total(stored, len(counts)), counts)),
        "minutes": _rows_with(stored, "minutes", counts, now),
    }
    return record if not hours else {**record, "hours": _rows_with(stored, "hours", counts, now)}


def total(stored: object, width: int) -> Counts:
    """Return the sums of all counts since the record was created."""
    if isinstance(stored, Mapping) and _is_row(stored.get("total"), width):
        return tuple(stored["total"])
    return (0,) * width


def _rows_with(stored: object, name: str, counts: Counts, now: float) -> list[list[float]]:
    seconds, most = _PERIODS[name]
    number, none = int(now // seconds), (0,) * len(counts)
    # Periods in the future come from machines whose clocks are ahead.
    rows = {at: row for at, row in _rows(stored, name, len(counts)).items() if abs(at - number) < most}
    rows[number] = tuple(map(add, rows.get(number, none), counts))
    return [[at, *row] for at, row in sorted(rows.items())]


def _rows(stored: object, name: str, width: int) -> dict[int, Counts]:
    rows = stored.get(name) if isinstance(stored, Mapping) else None
    if not isinstance(rows, list):
        return {}
    return {int(row[0]): tuple(row[1:]) for row in rows if _is_row(row, 1 + width)}


def _is_row(row: object, length: int) -> TypeGuard[list[float]]:
    if not isinstance(row, list) or len(row) != length:
        return False
    return all(isinstance(number, int | float) and abs(number) < 2**63 for number in row)
