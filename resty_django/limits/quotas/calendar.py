"""The current period of a quota's key, in the time zone of the quota."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, tzinfo
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.conf import settings

from resty_django.callables import acall, call, plain_function
from resty_django.sansio import Step, Steps

from .periods import PERIODS, Period, period_at

Anchor: TypeAlias = Callable[[str], "date | datetime | None"]
"""Receives a key, and returns the date on which its periods start, or None for calendar periods."""


class Calendar:
    """The periods of the quota with this name. `Quota` explains the arguments.

    Raise `TypeError` or `ValueError` for wrong ones.
    """

    def __init__(self, quota: str, per: str, timezone: str | tzinfo | None, anchor: Anchor | None) -> None:
        if per not in PERIODS:
            raise ValueError(f"per of a quota must be one of {', '.join(PERIODS)}, not {per!r}.")
        if anchor is not None and (per not in ("week", "month") or not callable(anchor)):
            raise ValueError(f'anchor needs per="week" or per="month", and a function of the key, not {anchor!r}.')
        self._quota = quota
        self._per = per
        self._timezone = _checked_zone(timezone)
        self._anchor = plain_function(anchor, "anchor of a quota")
        self._current: tuple[Period, tzinfo | None] = Period(0, 0), None
        self._anchors: dict[str, date | None] = {}

    @property
    def zone(self) -> tzinfo:
        """The time zone of the periods."""
        return self._timezone or ZoneInfo(settings.TIME_ZONE)

    def same_as(self, other: Calendar) -> bool:
        """Return whether both have the same kind of periods."""
        kinds = [(calendar._per, calendar._timezone, bool(calendar._anchor)) for calendar in (self, other)]
        return kinds[0] == kinds[1]

    def period(self, key: str, now: float) -> Steps[Period]:
        """Return the period of a key at a time in epoch seconds."""
        zone = self.zone
        if self._anchor is None:
            period, its_zone = self._current
            if not period.start <= now < period.end or its_zone is not zone:
                period = period_at(self._per, now, zone)
                self._current = period, zone
            return period
        try:
            anchor = self._anchors[key]
        except KeyError:
            if len(self._anchors) >= 10_000:  # keys
                self._anchors.clear()
            anchor = _date(self._quota, (yield Step(call, acall, (self._anchor, key))), zone)
            self._anchors[key] = anchor
        return period_at(self._per, now, zone, anchor)


def _checked_zone(zone: Any) -> tzinfo | None:
    if zone is None or isinstance(zone, tzinfo):
        return zone
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise ValueError(
            f'timezone of a quota must be the name of a zone, such as "Europe/Berlin", not {zone!r}.'
        ) from None


def _date(name: str, anchor: Any, zone: tzinfo) -> date | None:
    """Return the date of an anchor in the time zone of the quota. Raise `TypeError`."""
    if isinstance(anchor, datetime):
        return (anchor if anchor.tzinfo is None else anchor.astimezone(zone)).date()
    if anchor is None or isinstance(anchor, date):
        return anchor
    raise TypeError(f"anchor of the quota {name!r} returned {anchor!r}. Return a date, a datetime or None.")
