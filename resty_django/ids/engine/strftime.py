"""`{now:...}`: the directives that show time in an ID, and whether they distinguish one cycle from the next.

The directives are the fixed-width, locale-independent ones of strftime, and two more: `%1Y`, the last digit of the
year, and `%q`, the quarter.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import BadRule
from .cycle import DAY_SECONDS, WEEK_SECONDS, Reset
from .wall_clock import Moment, datetime_of

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

# directive: (function that returns its text, seconds between two changes)
_DIRECTIVES: dict[str, tuple[Callable[[Moment, int], str], int]] = {
    "Y": (lambda m, w: f"{m.year:04d}", DAY_SECONDS),
    "y": (lambda m, w: f"{m.year % 100:02d}", DAY_SECONDS),
    "1Y": (lambda m, w: f"{m.year % 10}", DAY_SECONDS),
    "q": (lambda m, w: f"{(m.month + 2) // 3}", DAY_SECONDS),
    "m": (lambda m, w: f"{m.month:02d}", DAY_SECONDS),
    "b": (lambda m, w: _MONTHS[m.month - 1], DAY_SECONDS),
    "d": (lambda m, w: f"{m.day:02d}", DAY_SECONDS),
    "j": (lambda m, w: f"{m.yearday:03d}", DAY_SECONDS),
    "G": (lambda m, w: f"{datetime_of(w).isocalendar().year:04d}", DAY_SECONDS),
    "V": (lambda m, w: f"{datetime_of(w).isocalendar().week:02d}", DAY_SECONDS),
    "u": (lambda m, w: f"{m.weekday + 1}", DAY_SECONDS),
    "H": (lambda m, w: f"{m.hour:02d}", 3600),
    "M": (lambda m, w: f"{m.minute:02d}", 60),
    "S": (lambda m, w: f"{m.second:02d}", 1),
}
KNOWN_DIRECTIVES = " ".join(f"%{name}" for name in _DIRECTIVES) + " %%"


def parse(text: str, position: int) -> list[str]:
    """Return the pieces of a strftime format: plain text unchanged, directives as `"%x"`.

    `position` is the index of `text` in the source. Raise BadRule, with its position, for an unknown directive.
    """
    pieces: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "%":
            stop = text.find("%", at)
            stop = len(text) if stop < 0 else stop
            pieces.append(text[at:stop])
            at = stop
            continue
        name = text[at + 1 : at + 3] if text[at + 1 : at + 2] == "1" else text[at + 1 : at + 2]
        if name == "%":
            pieces.append("%")
        elif name in _DIRECTIVES:
            pieces.append(f"%{name}")
        else:
            raise BadRule(f"%{name} is not a directive of {{now}}. Use {KNOWN_DIRECTIVES}.", position + at)
        at += 1 + len(name)
    return pieces


def is_directive(piece: str) -> bool:
    return len(piece) > 1 and piece[0] == "%" and piece[1:] in _DIRECTIVES


def show(pieces: list[str], moment: Moment, wall: int) -> str:
    """Return the text of `pieces` at a wall second."""
    return "".join(_DIRECTIVES[p[1:]][0](moment, wall) if is_directive(p) else p for p in pieces)


def resolution(pieces: list[str]) -> int:
    """Return the minimum number of seconds until the text of `pieces` changes; a day if it never changes."""
    return min((_DIRECTIVES[p[1:]][1] for p in pieces if is_directive(p)), default=DAY_SECONDS)


def missing_for(reset: Reset, pieces: list[str]) -> str | None:
    """Return what `{now}` must also show so that two cycles of `reset` have different texts, or None."""
    have = {p[1:] for p in pieces if is_directive(p)}
    if reset.never:
        return None
    if reset.seconds and reset.seconds % WEEK_SECONDS == 0 and {"G", "V"} <= have:
        return None
    if not have & {"Y", "y", "1Y"} and not ({"G", "V", "u"} <= have):
        return "the year (%Y, %y or %1Y)"
    if reset.calendar == "year":
        return None
    month, in_month = have & {"m", "b"}, "d" in have
    by_week = {"G", "V", "u"} <= have
    if reset.calendar == "month":
        return None if month or "j" in have or by_week else "the month (%m)"
    if not ((month and in_month) or "j" in have or by_week):
        return "the day (%m%d or %j)"
    if reset.seconds % DAY_SECONDS == 0:
        return None
    if "H" not in have:
        return "the hour (%H)"
    if reset.seconds % 3600 and "M" not in have:
        return "the minute (%M)"
    if reset.seconds % 60 and "S" not in have:
        return "the second (%S)"
    return None
