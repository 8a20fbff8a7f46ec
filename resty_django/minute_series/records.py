"""The record of a series: the total of its counts, and the counts of the last minutes and hours. Pure.

A record is stored as `{"total": [count, ...], "minutes": [[minute, count, ...], ...], "hours": [[hour, count, ...],
...]}`. Minutes and hours are numbered since the epoch. Spans without counts are left out, and a series need not have
hours. `width` is the number of counts in a series. Malformed parts of a record are treated as empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import add
from typing import Any, Final, NamedTuple, TypeAlias

MINUTES: Final = 60
HOURS: Final = 48
"""Number of spans that are kept, including the current one."""

Counts: TypeAlias = tuple[Any, ...]
"""Counters, in an order defined by the owner of the series."""

_SPANS: Final = {"minutes": (60, MINUTES), "hours": (3600, HOURS)}
"""Length of a span in seconds, and the number of spans."""


class Span(NamedTuple):
    """The counts of a minute or an hour that began at `start`, in epoch seconds."""

    start: int
    counts: Counts


def added(stored: Any, counts: Counts, now: float, hours: bool = False) -> dict[str, Any]:
    """Return the record with the counts added at `now` (epoch seconds); `hours`: the series has hours as well."""
    record = {
        "total": list(map(add, total(stored, len(counts)), counts)),
        "minutes": _rows_with(stored, "minutes", counts, now),
    }
    return record if not hours else {**record, "hours": _rows_with(stored, "hours", counts, now)}


def total(stored: Any, width: int) -> Counts:
    """Return the sums of all counts since the record was created."""
    if isinstance(stored, Mapping) and _is_row(stored.get("total"), width):
        return tuple(stored["total"])
    return (0,) * width


def minutes(stored: Any, width: int, now: float) -> list[Span]:
    """Return the last `MINUTES` minutes as of `now`, the current one last."""
    return _spans(stored, "minutes", width, now)


def hours(stored: Any, width: int, now: float) -> list[Span]:
    """Return the last `HOURS` hours as of `now`, the current one last."""
    return _spans(stored, "hours", width, now)


def _rows_with(stored: Any, name: str, counts: Counts, now: float) -> list[list[Any]]:
    seconds, most = _SPANS[name]
    number, none = int(now // seconds), (0,) * len(counts)
    # Spans of the future come from machines whose clocks are ahead.
    rows = {at: row for at, row in _rows(stored, name, len(counts)).items() if abs(at - number) < most}
    rows[number] = tuple(map(add, rows.get(number, none), counts))
    return [[at, *row] for at, row in sorted(rows.items())]


def _spans(stored: Any, name: str, width: int, now: float) -> list[Span]:
    seconds, most = _SPANS[name]
    rows, last, none = _rows(stored, name, width), int(now // seconds), (0,) * width
    return [Span(at * seconds, rows.get(at, none)) for at in range(last - most + 1, last + 1)]


def _rows(stored: Any, name: str, width: int) -> dict[int, Counts]:
    rows = stored.get(name) if isinstance(stored, Mapping) else None
    if not isinstance(rows, list):
        return {}
    return {int(row[0]): tuple(row[1:]) for row in rows if _is_row(row, 1 + width)}


def _is_row(row: Any, length: int) -> bool:
    if not isinstance(row, list) or len(row) != length:
        return False
    return all(isinstance(number, int | float) and abs(number) < 2**63 for number in row)
