"""Parsers for rates and durations: "200/s", "30 per minute", "10/30s", "1h", "1h30m". Pure."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from fractions import Fraction
from typing import Final

UNITS: Final = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604_800.0),
}
"""The number of seconds in each unit. "m" is a minute, as in nginx's `30r/m`."""

LONGEST_TEXT: Final = 60
"""The maximum number of characters of a rate or duration."""

MAX_LOSS: Final = 0.001
"""The share by which a token bucket may be slower than its rate, so that tokens are evenly spaced."""

_NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?"
_RATE: Final = re.compile(rf"\s*({_NUMBER})\s*(?:r|req|requests?)?\s*(?:/|\bper\b)\s*(.+)", re.IGNORECASE)
_SPAN: Final = re.compile(rf"\s*({_NUMBER})\s*([a-z]+)", re.IGNORECASE)


def parse_rate(rate: str | float) -> float:
    """Return the requests per second of "200/s", "30r/m", "5 per hour", "10/30s", or a number of requests per second.

    Raise `ValueError` if it is not a rate above 0, and `TypeError` if it is neither a string nor a number.
    """
    if isinstance(rate, str):
        count, seconds = split_rate(rate)
        return count / seconds
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise TypeError(f'A rate must be a string such as "200/s" or a number of requests per second, not {rate!r}.')
    if not 0 < rate < math.inf:
        raise ValueError(f"A rate must be greater than 0, not {rate!r}.")
    return float(rate)


def split_rate(rate: str) -> tuple[float, float]:
    """Return the requests and the seconds of a rate: (5, 3600) for "5 per hour". Raise `ValueError`."""
    match = _RATE.fullmatch(rate) if len(rate) <= LONGEST_TEXT else None
    if match is None:
        raise ValueError(f'{rate[:LONGEST_TEXT]!r} is not a rate such as "200/s", "30/m", "5 per hour" or "10/30s".')
    try:
        count, seconds = float(match[1]), parse_duration(match[2])
    except ValueError:
        raise ValueError(
            f'{rate!r} is not a rate: {match[2]!r} is not a unit of time. Use ms, s, m, h, d or w, as in "10/s".'
        ) from None
    if not (count > 0 and seconds > 0):
        raise ValueError(f"{rate!r} is not a rate: the number and the time must be greater than 0.")
    return count, seconds


def refill_of(rate: str | float, capacity: int | None = None) -> tuple[int, int, int]:
    """Return the interval (milliseconds), capacity and quantum of a token bucket for a rate.

    The interval is whole, and the bucket is never faster than its rate. The quantum is one token if that is slower by
    at most a thousandth, else as many as necessary, up to the tokens of a second. The default `capacity` is the number
    of requests in the rate. Raise `ValueError` or `TypeError` if the rate or capacity is not valid.
    """
    count, seconds = split_rate(rate) if isinstance(rate, str) else (parse_rate(rate), 1.0)
    tokens = max(1, math.ceil(count)) if capacity is None else capacity
    per_token = Fraction(seconds).limit_denominator(10**6) * 1000 / Fraction(count).limit_denominator(10**6)
    best, least_loss = 1, Fraction(1)
    for quantum in range(1, max(1, min(tokens, int(1000 / per_token))) + 1):
        exact = per_token * quantum
        loss = (math.ceil(exact) - exact) / exact
        if loss < least_loss:
            best, least_loss = quantum, loss
        if least_loss <= MAX_LOSS:
            break
    return math.ceil(per_token * best), tokens, best


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
        seconds = float(span)
    if not 0 <= seconds < math.inf:
        raise ValueError(f"A duration must be at least 0, not {span!r}.")
    return seconds


def _seconds(text: str) -> float:
    unit = UNITS.get(text.strip().lower())
    if unit is not None:
        return unit
    total, end = 0.0, 0
    stripped = text.rstrip() if len(text) <= LONGEST_TEXT else ""
    while match := _SPAN.match(stripped, end):
        if match[2].lower() not in UNITS:
            raise ValueError(f"{text!r}: {match[2]!r} is not a unit of time. Use ms, s, m, h, d or w.")
        total += float(match[1]) * UNITS[match[2].lower()]
        end = match.end()
    if not end or end < len(stripped):
        raise ValueError(f'{text[:LONGEST_TEXT]!r} is not a duration such as "1h", "90s" or "500ms".')
    return total
