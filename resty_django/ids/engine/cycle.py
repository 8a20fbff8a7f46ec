"""Cycles: the periods of shown time in which a counter runs once from its minimum to its maximum.

All times here are wall seconds (see `wall_clock`). So a day is a calendar day in the rule's time zone, even when
daylight saving changes, and the text of an ID and its cycle come from the same clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .wall_clock import datetime_of, wall_of

DAY_SECONDS = 86_400
WEEK_SECONDS = 7 * DAY_SECONDS
NO_END = 2**62
"""The end of a cycle that never ends; its start is `-NO_END`."""


class Cycle(NamedTuple):
    """The wall seconds from `start` up to, but not including, `end`."""

    start: int
    end: int


ENDLESS = Cycle(-NO_END, NO_END)


@dataclass(frozen=True, slots=True)
class Reset:
    """The reset period of a counter.

    `seconds` is the length of a cycle, 0 for never. Whole weeks begin on Monday; all other cycles count from
    1970-01-01 00:00 on the wall clock, so that whole days begin at midnight. `calendar` is "", "month" or "year" and
    replaces `seconds`.
    """

    seconds: int = 0
    calendar: str = ""

    def __post_init__(self) -> None:
        if self.calendar not in ("", "month", "year"):
            raise ValueError(f'The reset_calendar is {self.calendar!r}. Choose "", "month" or "year".')
        if self.seconds < 0 or (self.seconds and self.calendar):
            raise ValueError("The reset_seconds must be at least 0, and 0 where reset_calendar is set.")

    @property
    def never(self) -> bool:
        """Whether the counter never resets."""
        return not self.seconds and not self.calendar

    def cycle(self, wall: int) -> Cycle:
        """Return the cycle that contains the wall second `wall`."""
        if self.seconds:
            first_monday = 4 * DAY_SECONDS
            origin = first_monday if self.seconds % WEEK_SECONDS == 0 else 0
            start = (wall - origin) // self.seconds * self.seconds + origin
            return Cycle(start, min(start + self.seconds, NO_END))
        if not self.calendar:
            return ENDLESS
        start_of = datetime_of(wall).replace(day=1, hour=0, minute=0, second=0)
        if self.calendar == "year":
            start_of = start_of.replace(month=1)
            end_of = start_of.replace(year=start_of.year + 1)
        else:
            months = start_of.year * 12 + start_of.month
            end_of = start_of.replace(year=months // 12, month=months % 12 + 1)
        return Cycle(wall_of(start_of), wall_of(end_of))
