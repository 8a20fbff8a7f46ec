"""Descriptions of limits: "200 requests/s, up to 100 wait, then refused". Pure; units as in the algorithms."""

from __future__ import annotations

from typing import Final

_RATES: Final = ((1, "s"), (60, "min"), (3600, "h"), (86_400, "day"))
_SPANS: Final = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_CLOSE: Final = 1e-9


def leaky_bucket(rate: float, burst: float = 0) -> str:
    """Describe a leaky bucket; `rate` in requests per second, `burst` in requests."""
    return f"{rate_text(rate)}, {_queue(burst)}"


def fixed_window(limit: int, window: float) -> str:
    """Describe a fixed window; `window` in seconds."""
    return f"{_requests(limit)} per {per_text(window)} from the first one on, then refused"


def sliding_window(limit: int, window: float) -> str:
    """Describe a sliding window; `window` in seconds."""
    return f"{_requests(limit)} in any {per_text(window)}, then refused"


def concurrency(maximum: float, burst: float = 0) -> str:
    """Describe a concurrency limit; both numbers in requests."""
    return f"{_requests(maximum)} at a time, {_queue(burst)}"


def token_bucket(interval_ms: float, capacity: float, quantum: float = 1, max_wait_ms: float | None = None) -> str:
    """Describe a token bucket; times in milliseconds, `max_wait_ms` None: no limit."""
    refill = f"{_requests(quantum)} each {duration(interval_ms / 1000)}"
    begin = f"{_requests(capacity)} at once, then {refill}" if capacity else refill
    if max_wait_ms is None:
        return f"{begin}; the others wait without a limit"
    if not max_wait_ms:
        return f"{begin}, then refused"
    return f"{begin}; refused if the wait would exceed {duration(max_wait_ms / 1000)}"


def rate_text(rate: float) -> str:
    """Return a rate per second, or if below 1 in the unit that makes it a whole number, or at least 1."""
    if rate >= 1:
        return f"{_requests(rate)}/s"
    for seconds, unit in _RATES:
        count = rate * seconds
        if count > 1 - _CLOSE and abs(count - round(count)) < _CLOSE * seconds:
            return f"{_requests(round(count))}/{unit}"
    seconds, unit = next((pair for pair in _RATES if rate * pair[0] >= 1), _RATES[-1])
    return f"{_requests(rate * seconds)}/{unit}"


def duration(seconds: float) -> str:
    """Return a duration: "1 hour", "90 seconds", "500 ms"."""
    if 0 < seconds < 1:
        return f"{number(seconds * 1000)} ms"
    size, unit = next((pair for pair in _SPANS if seconds >= pair[0] and not seconds % pair[0]), _SPANS[-1])
    count = seconds / size
    return f"{number(count)} {unit}" + ("" if count == 1 else "s")


def per_text(seconds: float) -> str:
    """Return a duration for use after "per": "hour", "90 seconds"."""
    return duration(seconds).removeprefix("1 ")


def number(value: float) -> str:
    """Return a number with thousands separators and at most three decimals, or three digits if below 0.001."""
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.3f}".rstrip("0") if abs(value) >= 0.001 else f"{value:.3g}"


def _requests(count: float) -> str:
    return f"{number(count)} request" + ("" if count == 1 else "s")


def _queue(burst: float) -> str:
    return f"up to {number(burst)} wait, then refused" if burst else "then refused"
