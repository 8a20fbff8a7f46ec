"""The rate of an override, applied to a limiter."""

from __future__ import annotations

from typing import Final, Protocol, Self, runtime_checkable

from django.utils.translation import gettext as _

from resty_django.text.durations import split_rate, whole_rate
from resty_django.text.localized import grouped, translated

from ..limiters.base import Limiter
from ..limiters.concurrency import Concurrency
from ..limiters.rate import FixedWindow, LeakyBucket, SlidingWindow, TokenBucket
from ..limiters.units import parse_rate, refill_of, split_amount
from .policy import MAX_REQUESTS, MAX_SPAN_SECONDS

NONE: Final = "none"
"""The rate of an override without a limit."""
BLOCKED: Final = "blocked"
"""The rate of an override that refuses all requests."""


@runtime_checkable
class CountsUnits(Protocol):
    """A quota: it has a number of units per period instead of a rate."""

    def with_limit(self, limit: int) -> Self:
        """Return the quota with another number of units."""


def limiter_with_rate(limiter: Limiter, text: str) -> Limiter:
    """Return a limiter with another rate that shares the states of `limiter`.

    A leaky bucket keeps its burst, unless the text contains another one, as in "60/m burst=20". The capacity of a token
    bucket is the number in the rate, or in the text: "60/m capacity=20". For a concurrency limiter, the text is a
    number of slots, for a quota a number of units. Raise `ValueError` if the limiter cannot have this rate.
    """
    if isinstance(limiter, CountsUnits):
        return limiter.with_limit(units_of(text))
    if isinstance(limiter, Concurrency):
        return limiter.with_numbers(max=_slots(text))
    if isinstance(limiter, LeakyBucket):
        rate, burst = split_amount(text, "burst")
        _check_size(str(rate))
        return limiter.with_numbers(rate=parse_rate(rate), burst=limiter.burst if burst is None else burst)
    if isinstance(limiter, FixedWindow | SlidingWindow):
        split_amount(text, "")  # raises for a burst
        most, window = whole_rate(text)
        _check_size(text)
        return limiter.with_numbers(limit=most, window=window)
    if isinstance(limiter, TokenBucket):
        rate, capacity = split_amount(text, "capacity")
        _check_size(str(rate))
        interval_ms, tokens, quantum = refill_of(rate, capacity)
        return limiter.with_numbers(interval_ms=interval_ms, capacity=tokens, quantum=quantum)
    raise ValueError(_("This limit has no rate that can be replaced. Enter none or blocked."))


def check_general_rate(text: str) -> None:
    """Raise `ValueError` if not all limiters with a rate can have this one."""
    try:
        whole_rate(text)
    except ValueError as error:
        text = _("%(error)s An override of all limits needs a rate such as 60/m, none or blocked.")
        raise ValueError(text % {"error": translated(error)}) from error
    _check_size(text)


def check_any_rate(text: str) -> None:
    """Raise `ValueError` if no limiter can have this rate."""
    if text.isascii() and text.isdecimal():
        _slots(text)
        return
    name = "capacity" if "capacity=" in text else "burst"
    _check_size(str(split_amount(text, name)[0]))


def units_of(text: str) -> int:
    """Return the units per period in the rate of an override of a quota. Raise `ValueError`."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 16 and 1 <= int(text) <= 10**15):
        message = _(
            "%(text)s is not a number of units, which quotas count. Enter a whole number from 1, none or blocked."
        )
        raise ValueError(message % {"text": repr(text)})
    return int(text)


def _slots(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:12]) <= MAX_REQUESTS):
        message = _(
            "%(text)s is not a number of concurrent requests, which this limit counts. Enter a whole number from 1, "
            "none or blocked."
        )
        raise ValueError(message % {"text": repr(text)})
    return int(text)


def _check_size(rate: str) -> None:
    count, seconds = split_rate(rate)
    if not (count / seconds <= MAX_REQUESTS and seconds <= MAX_SPAN_SECONDS):
        text = _("%(rate)s is out of range. Use at most %(max)s requests per second, and at most 366 days.")
        raise ValueError(text % {"rate": repr(rate), "max": grouped(MAX_REQUESTS)})
