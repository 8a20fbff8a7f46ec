"""Parser for rates: "200/s", "30 per minute", "10/30s". Pure."""

from __future__ import annotations

import math
import re

from resty_django.text.durations import MAX_TEXT_CHARS, BadText, gettext_noop, split_rate

from .validation import MAX_AMOUNT, positive


def parse_rate(rate: str | float) -> float:
    """Return the requests per second of "200/s", "30r/m", "5 per hour", "10/30s", or a number of requests per second.

    Raise `ValueError` if it is not a rate above 0 and up to `MAX_AMOUNT`, `TypeError` if it is neither a string nor a
    number.
    """
    if isinstance(rate, str):
        count, seconds = split_rate(rate)
        return count / seconds
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise TypeError(f'A rate must be a string such as "200/s" or a number of requests per second, not {rate!r}.')
    if not 0 < rate <= MAX_AMOUNT:
        message = gettext_noop("A rate must be greater than 0 and at most 10^15 per second, not %(rate)r.")
        raise BadText(message, rate=rate)
    return float(rate)


def split_rates(rate: str | float) -> list[str | float]:
    """Return the rates of a text such as "10/s;1000/h". Raise `ValueError` if one of them is empty."""
    if not isinstance(rate, str) or ";" not in rate:
        return [rate]
    rates: list[str | float] = [piece.strip() for piece in rate.split(";")]
    if not all(rates):
        message = gettext_noop('%(rate)r contains an empty rate. Write "10/s;1000/h".')
        raise BadText(message, rate=rate[:MAX_TEXT_CHARS])
    return rates


def split_amount(rate: str | float, name: str) -> tuple[str | float, int | None]:
    """Return a rate and the number after its `burst=` or `capacity=`: ("60/m", 20) for "60/m burst=20".

    `name`: the word that the rate may contain; empty: none. Raise `ValueError` for another one.
    """
    if not isinstance(rate, str):
        return rate, None
    match = re.fullmatch(r"(.*?)\s+(burst|capacity)=([0-9]{1,15})\s*", rate)
    if match is None:
        return rate, None
    if match[2] != name:
        if name:
            message = gettext_noop("%(rate)r: this limit has no %(word)s=. Use %(name)s=.")
        else:
            message = gettext_noop("%(rate)r: this limit has no %(word)s=. Remove it.")
        raise BadText(message, rate=rate, word=match[2], name=name)
    return match[1], int(match[3])


def passing_rate(rate: float, burst: float) -> float:
    """Return the requests per second that a leaky bucket lets pass, because its times are whole milliseconds.

    This is the rate if the burst is at least a thousandth of it.
    """
    if 1000 * burst >= rate:
        return rate
    whole = 1000 * math.floor(burst)
    return whole + 1000 / math.ceil(1000 / (rate - whole))


def slower(rate: float, passing: float) -> bool:
    """Return whether a limit with whole milliseconds falls short of its rate by more than a tenth."""
    return passing < 0.9 * rate


def refill_of(rate: str | float, capacity: int | None = None) -> tuple[float, int, int]:
    """Return the interval (milliseconds), capacity and quantum of a token bucket for a rate.

    The quantum is the tokens of a millisecond, at least one and at most `capacity`, so that tokens are evenly spaced.
    The default `capacity` is the number of requests in the rate. Raise `ValueError` or `TypeError` if the rate or
    capacity is not valid.
    """
    count, seconds = split_rate(rate) if isinstance(rate, str) else (parse_rate(rate), 1.0)
    positive("rate", count / seconds)
    tokens = max(1, math.ceil(count)) if capacity is None else capacity
    quantum = max(1, min(tokens, math.ceil(count / (seconds * 1000))))
    return seconds * 1000 * quantum / count, tokens, quantum
