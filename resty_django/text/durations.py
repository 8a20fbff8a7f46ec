"""The parsers for durations and counts in a time, in settings, options and arguments: "10m", "500ms", "5/15m". Pure."""

from __future__ import annotations

import math
import re
import sys
from datetime import timedelta
from typing import Final, TypeAlias, TypeGuard

Duration: TypeAlias = str | float | timedelta
"""A number of seconds, a `timedelta`, or a text such as "10m"."""

UNITS: Final = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604_800.0),
}
"""The number of seconds in each unit. "m" is a minute, as in nginx's `30r/m`."""

DURATION: Final = 'a number of seconds, a timedelta or a text such as "90s", "10m" or "1h30m",'
"""For messages about options that are durations."""

MAX_TEXT_CHARS: Final = 60
"""The maximum length of a rate or duration."""

_NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?"
_NUMBER_AND_UNIT: Final = re.compile(rf"\s*({_NUMBER})\s*([a-z]+)", re.IGNORECASE)
_RATE: Final = re.compile(rf"\s*({_NUMBER})\s*(?:r|req|requests?)?\s*(?:/|\bper\b)\s*(.+)", re.IGNORECASE)


class BadText(ValueError):
    """A text that is not a duration or a rate.

    `template`, `values`: the message in English, and what it contains. `text.localized.translated` translates it.
    """

    def __init__(self, template: str, **values: object) -> None:
        super().__init__(template % values if values else template)
        self.template, self.values = template, values


def gettext_noop(text: str) -> str:
    """Mark a text for translation, as Django's `gettext_noop` does, in modules that do not import Django."""
    return text


def parse_duration(span: str | float | timedelta) -> float:
    """Return the seconds of "1h", "90s", "500ms", "1h30m", "hour", a `timedelta`, or a number of seconds.

    Raise `ValueError` if it is not a duration of at least 0, and `TypeError` for other types.
    """
    if isinstance(span, timedelta):
        seconds = span.total_seconds()
    elif isinstance(span, str):
        seconds = _seconds(span)
    elif isinstance(span, bool) or not isinstance(span, int | float):
        raise TypeError(f'A duration must be a string such as "1h", a number of seconds or a timedelta, not {span!r}.')
    else:
        seconds = float(span) if span <= sys.float_info.max else math.inf
    if not 0 <= seconds < math.inf:
        raise BadText(gettext_noop("A duration must be at least 0 and finite, not %(text)r."), text=span)
    return seconds


def is_number(value: object) -> TypeGuard[float]:
    """Return whether it is a finite number other than True and False."""
    return (type(value) is float or type(value) is int) and math.isfinite(value)


def seconds_of(value: object) -> float | None:
    """Return an option in seconds; None if it is not a duration. Numbers may be negative."""
    if is_number(value):
        return value
    try:
        return parse_duration(value) if isinstance(value, str | timedelta) else None
    except ValueError:
        return None


def _seconds(text: str) -> float:
    unit = UNITS.get(text.strip().lower())
    if unit is not None:
        return unit
    total, end = 0.0, 0
    stripped = text.rstrip() if len(text) <= MAX_TEXT_CHARS else ""
    while match := _NUMBER_AND_UNIT.match(stripped, end):
        if match[2].lower() not in UNITS:
            message = gettext_noop("%(text)r: %(unit)r is not a unit of time. Use ms, s, m, h, d or w.")
            raise BadText(message, text=text, unit=match[2])
        total += float(match[1]) * UNITS[match[2].lower()]
        end = match.end()
    if not end or end < len(stripped):
        message = gettext_noop('%(text)r is not a duration such as "1h", "90s" or "500ms".')
        raise BadText(message, text=text[:MAX_TEXT_CHARS])
    return total


def split_rate(rate: str) -> tuple[float, float]:
    """Return the requests and the seconds of a rate: (5, 3600) for "5 per hour". Raise `ValueError`."""
    match = _RATE.fullmatch(rate) if len(rate) <= MAX_TEXT_CHARS else None
    if match is None:
        message = gettext_noop('%(rate)r is not a rate such as "200/s", "30/m", "5 per hour" or "10/30s".')
        raise BadText(message, rate=rate[:MAX_TEXT_CHARS])
    try:
        count, seconds = float(match[1]), parse_duration(match[2])
    except ValueError:
        message = gettext_noop(
            '%(rate)r is not a rate: %(unit)r is not a unit of time. Use ms, s, m, h, d or w, as in "10/s".'
        )
        raise BadText(message, rate=rate, unit=match[2]) from None
    if not (count > 0 and seconds > 0):
        message = gettext_noop("%(rate)r is not a rate: the number and the time must be greater than 0.")
        raise BadText(message, rate=rate)
    return count, seconds


def whole_rate(rate: str | float) -> tuple[int, float]:
    """Return the requests and the seconds of a rate with a whole number: (5000, 3600) for "5000/h".

    Raise `ValueError`, or `TypeError` if it is not a string.
    """
    if not isinstance(rate, str):
        raise TypeError(f'{rate!r} is not a number of requests in a time. Write "5000/h", or pass per= as well.')
    count, seconds = split_rate(rate)
    if not count.is_integer():
        message = gettext_noop('%(rate)r is not a whole number of requests in a time, such as "5000/h".')
        raise BadText(message, rate=rate)
    return int(count), seconds
