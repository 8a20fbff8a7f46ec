"""Descriptions of limits: "200 requests/s, up to 100 wait, then refused". Units as in the algorithms.

They are in the active language; what is stored or logged is described by `in_english`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from django.utils import translation
from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from resty_django.text.localized import grouped

from .units import passing_rate, slower

_PERIODS: Final = {
    86_400: gettext_lazy("day"),
    3600: gettext_lazy("hour"),
    60: gettext_lazy("minute"),
    1: gettext_lazy("second"),
}


class DescribesItself(Protocol):
    """A limit, a quota or a rule of bans."""

    def describe(self) -> str: ...


def in_english(limit: DescribesItself) -> str:
    """Return the description of a limit, quota or ban without a translation."""
    with translation.override(None):
        return str(limit.describe())


def leaky_bucket(rate: float, burst: float = 0) -> str:
    """Describe a leaky bucket; `rate` in requests per second, `burst` in requests."""
    text = rate_text(rate)
    passing = passing_rate(rate, burst)
    if slower(rate, passing):
        values = {"rate": text, "passing": rate_text(passing)}
        text = _("%(rate)s (a larger burst is needed: at most %(passing)s pass)") % values
    if not burst:
        return _("%(rate)s, then refused") % {"rate": text}
    return _("%(rate)s, up to %(burst)s wait, then refused") % {"rate": text, "burst": number(burst)}


def fixed_window(limit: int, window: float) -> str:
    """Describe a fixed window; `window` in seconds."""
    values = {"requests": _requests(limit), "period": period(window)}
    return _("%(requests)s per %(period)s from the first one on, then refused") % values


def sliding_window(limit: int, window: float) -> str:
    """Describe a sliding window; `window` in seconds."""
    values = {"requests": _requests(limit), "period": period(window)}
    return _("about %(requests)s in any %(period)s, then refused") % values


def concurrency(maximum: float, burst: float = 0) -> str:
    """Describe a concurrency limit; both numbers in requests."""
    values = {"requests": _requests(maximum), "burst": number(burst)}
    if not burst:
        return _("%(requests)s at a time, then refused") % values
    return _("%(requests)s at a time, up to %(burst)s wait, then refused") % values


def token_bucket(interval_ms: float, capacity: float, quantum: float = 1, max_wait_ms: float | None = None) -> str:
    """Describe a token bucket; times in milliseconds, `max_wait_ms` None: no limit."""
    rates = _("%(requests)s each %(interval)s") % {
        "requests": _requests(quantum),
        "interval": duration(interval_ms / 1000),
    }
    if capacity:
        rates = _("%(requests)s at once, then %(refill)s") % {"requests": _requests(capacity), "refill": rates}
    if max_wait_ms is None:
        return _("%(rates)s; the others wait without a limit") % {"rates": rates}
    if not max_wait_ms:
        return _("%(rates)s, then refused") % {"rates": rates}
    wait = duration(max_wait_ms / 1000)
    return _("%(rates)s; refused if the wait would exceed %(wait)s") % {"rates": rates, "wait": wait}


def joined(texts: Iterable[str]) -> str:
    """Return the descriptions of limits that apply together as one; empty without any."""
    rates = ""
    for text in texts:
        rates = _("%(rates)s and %(rate)s") % {"rates": rates, "rate": text} if rates else text
    return rates


def rate_text(rate: float) -> str:
    """Return a rate per second, or if below 1 in the unit that makes it a whole number, or at least 1."""
    if rate >= 1:
        return f"{_requests(rate)}/s"
    units = [(1, "s"), (60, "min"), (3600, "h"), (86_400, "day")]
    tolerance = 1e-9  # of floats that were divided
    for seconds, unit in units:
        count = rate * seconds
        if count > 1 - tolerance and abs(count - round(count)) < tolerance * seconds:
            return f"{_requests(round(count))}/{unit}"
    seconds, unit = next((pair for pair in units if rate * pair[0] >= 1), units[-1])
    return f"{_requests(rate * seconds)}/{unit}"


def duration(seconds: float) -> str:
    """Return a duration: "1 hour", "90 seconds", "500 ms"."""
    if 0 < seconds < 1:
        return _("%(count)s ms") % {"count": number(seconds * 1000)}
    size = _unit(seconds)
    count = seconds / size
    exact = _plural_number(count)
    texts = {
        86_400: ngettext("%(count)s day", "%(count)s days", exact),
        3600: ngettext("%(count)s hour", "%(count)s hours", exact),
        60: ngettext("%(count)s minute", "%(count)s minutes", exact),
        1: ngettext("%(count)s second", "%(count)s seconds", exact),
    }
    return texts[size] % {"count": number(count)}


def period(seconds: float) -> str:
    """Return a duration for use after "per": "hour", "90 seconds"."""
    return str(_PERIODS[int(seconds)]) if seconds in _PERIODS else duration(seconds)


def number(value: float) -> str:
    """Return a number with thousands separators and at most three decimals, or three digits if below 0.001."""
    if value == int(value):
        return grouped(int(value))
    text = f"{value:.3f}".rstrip("0") if abs(value) >= 0.001 else f"{value:.3g}"
    return text if "e" in text else str(number_format(text, force_grouping=True))


def _unit(seconds: float) -> int:
    """Return the seconds of the largest unit that divides a duration."""
    return next((size for size in _PERIODS if seconds >= size and not seconds % size), 1)


def _requests(count: float) -> str:
    texts = ngettext("%(count)s request", "%(count)s requests", _plural_number(count))
    return texts % {"count": number(count)}


def _plural_number(count: float) -> int:
    """Return the number that chooses the plural: fractions have the plural of 2."""
    return int(count) if count == int(count) else 2
