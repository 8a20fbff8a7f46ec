"""Rate limiters.

from resty_django.limits import LeakyBucket

limiter = LeakyBucket(200, burst=100, prefix="search:")
decision = limiter.hit("192.0.2.1")
if decision:
    time.sleep(decision.delay)
"""

from __future__ import annotations

import math
import warnings
import weakref
from datetime import timedelta
from functools import cached_property
from typing import Any, ClassVar, Final, Literal, Self, Unpack

from msgspec import Struct

from resty_django.conf import conf, on_change
from resty_django.conf.schema import SETTING
from resty_django.text.durations import parse_duration

from ..algorithms import (
    KEEP_SLOT_MS,
    Algorithm,
    StateOperation,
    fixed_window,
    leaky_bucket,
    sliding_window,
    token_bucket,
)
from ..decision import Decision
from . import descriptions
from .base import Limiter, LimiterOptions
from .units import passing_rate, refill_of, slower
from .validation import MAX_AMOUNT, MAX_SECONDS, check_cost, not_negative, positive, whole_limit, window_ms

IDLE_SECONDS: Final = 60.0
"""The `idle` in seconds of leaky buckets, and of the token buckets of decorators, policies and throttles."""


class LeakyBucket(Limiter):
    """Limits to `rate` requests per second, with a queue of `burst` requests.

    A request that passes may have to wait (`delay`) for its turn, as in nginx's `limit_req`. If you ignore the delay,
    this is `limit_req ... nodelay`. `rate` > 0 and `burst` >= 0 may be fractions. `clamp`: treat a clock that went back
    as stopped, at most for the time in which the bucket drains; else as if it went forward by the same time. `idle`:
    seconds after which a key with an empty bucket is forgotten, counted from when a bucket of burst + 1 requests would
    be empty (None: never).

    Times are whole milliseconds: a `RuntimeWarning` reports a `burst` that is too small for the `rate`.
    """

    algorithm: ClassVar = Algorithm(
        lua="leaky_bucket",
        incoming=leaky_bucket.incoming,
        decide=leaky_bucket.decide,
        can_pass=leaky_bucket.can_pass,
        uncommit=StateOperation(leaky_bucket.uncommit, "uncommit", flag=True),
    )

    def __init__(
        self,
        rate: float,
        burst: float = 0,
        *,
        clamp: bool = False,
        idle: float | None = IDLE_SECONDS,
        **options: Unpack[LimiterOptions],
    ) -> None:
        self.rate = rate
        self.burst = burst
        self.clamp = clamp
        self.idle = idle
        super().__init__(**options)
        _warn_if_slower(f"LeakyBucket({rate!r}, burst={burst!r})", rate, passing_rate(rate, burst), "burst", 3)

    def _make_config(self) -> leaky_bucket.LeakyBucketConfig:
        positive("rate", self.rate)
        not_negative("burst", self.burst)
        if self.idle is not None:
            not_negative("idle", self.idle)
        burst = self.burst * 1000
        # a request of the highest cost, burst + 1, finds a full bucket
        drain_seconds = (2 * self.burst + 1) / self.rate
        return leaky_bucket.LeakyBucketConfig(
            rate=self.rate * 1000,
            burst=burst,
            whole_burst=int(burst),
            limit=int(self.burst) + 1,
            clamp=self.clamp,
            keep=_keep_seconds(self.idle, drain_seconds),
            keep_units=math.inf if self.idle is None else self.idle * self.rate * 1000,
        )

    def set_rate(self, rate: float) -> None:
        """Change the rate, in requests per second. Existing requests in buckets drain at the new rate."""
        self._set(rate=rate)

    def set_burst(self, burst: float) -> None:
        """Change the length of the queue, in requests. Fuller buckets are reduced to it."""
        self._set(burst=burst)

    def describe(self) -> str:
        return descriptions.leaky_bucket(self.rate, self.burst)


class Window(Limiter):
    """A limit of requests per window; a subclass says when windows begin."""

    def __init__(self, limit: int, window: float, **options: Unpack[LimiterOptions]) -> None:
        self.limit = limit
        self.window = window
        super().__init__(**options)

    def set_limit(self, limit: int) -> None:
        """Change the limit, including windows that have begun."""
        self._set(limit=limit)


class FixedWindow(Window):
    """Limits to `limit` requests in a window of `window` seconds, which begins with a key's first recorded request.

    `limit` > 0, `window` > 0 with a resolution of a millisecond. Up to twice the limit can pass around the end of a
    window. A recorded request counts even if it is refused.
    """

    algorithm: ClassVar = Algorithm(
        lua="fixed_window",
        incoming=fixed_window.incoming,
        decide=fixed_window.decide,
        can_pass=fixed_window.can_pass,
        uncommit=StateOperation(fixed_window.uncommit, "uncommit"),
    )

    def _make_config(self) -> fixed_window.FixedWindowConfig:
        return fixed_window.FixedWindowConfig(whole_limit(self.limit), window_ms(self.window))

    def set_window(self, window: float) -> None:
        """Change the length of future windows. A window that has begun lasts at most that long from now on."""
        self._set(window=window)

    def describe(self) -> str:
        return descriptions.fixed_window(self.limit, self.window)


class SlidingWindow(Window):
    """Limits to approximately `limit` requests in any period of `window` seconds.

    Counts in windows that begin at whole multiples of their length, and assumes that requests in the previous window
    are evenly spread. Refused requests do not count.
    """

    algorithm: ClassVar = Algorithm(
        lua="sliding_window",
        incoming=sliding_window.incoming,
        decide=sliding_window.decide,
        can_pass=sliding_window.can_pass,
        uncommit=StateOperation(sliding_window.uncommit, "uncommit"),
    )

    def _make_config(self) -> sliding_window.SlidingWindowConfig:
        return sliding_window.SlidingWindowConfig(whole_limit(self.limit), window_ms(self.window))

    def set_window(self, window: float) -> None:
        """Change the length of windows.

        Requests that passed in longer windows are forgotten; requests in shorter windows count in the current one.
        """
        self._set(window=window)

    def describe(self) -> str:
        return descriptions.sliding_window(self.limit, self.window)


class TokenBucket(Limiter):
    """A bucket of `capacity` tokens, refilled at `rate`; a request takes one token.

    `rate`: a string such as "10/s", or requests per second. `capacity`: None: the number of requests in `rate`. If no
    token is left, a request waits (`delay`) for the next one. `max_wait`: if it would wait longer than these seconds,
    or a duration such as "500ms", it is refused. None: the limiter refuses no request, but in a view no request waits
    longer than the setting LIMITS MAX_WAIT; `math.inf`: no limit, not even in views; "site": the setting. `clamp`:
    treat a clock that went back as stopped, at most for the time in which the bucket fills; else remove tokens. `idle`:
    the minimum number of seconds for which a full bucket is remembered (None: indefinitely). Forgetting it only affects
    its ticks, which restart with the next request.

    Times are whole milliseconds: a `RuntimeWarning` reports a `capacity` that is too small for the `rate`.
    `from_interval` accepts the numbers of lua-resty-limit-traffic instead of a rate.
    """

    algorithm: ClassVar = Algorithm(
        lua="token_bucket",
        incoming=token_bucket.incoming,
        decide=token_bucket.decide,
        can_pass=token_bucket.can_pass,
        uncommit=StateOperation(token_bucket.uncommit, "uncommit", flag=True),
    )
    _take_available: ClassVar = StateOperation(token_bucket.take_available, "take_available")

    def __init__(
        self,
        rate: str | float,
        capacity: int | None = None,
        *,
        max_wait: str | float | timedelta | None = None,
        clamp: bool = False,
        idle: float | None = None,
        **options: Unpack[LimiterOptions],
    ) -> None:
        interval_ms, tokens, quantum = refill_of(rate, capacity)
        self._fill(interval_ms, tokens, quantum, _wait_ms(max_wait), clamp, idle, options)

    @classmethod
    def from_interval(
        cls,
        interval_ms: float,
        capacity: float,
        quantum: float = 1,
        max_wait_ms: float | Literal["site"] | None = None,
        *,
        clamp: bool = False,
        idle: float | None = None,
        **options: Unpack[LimiterOptions],
    ) -> Self:
        """Return a bucket with `quantum` new tokens per `interval_ms` milliseconds, as in lua-resty-limit-traffic."""
        bucket = cls.__new__(cls)
        bucket._fill(interval_ms, capacity, quantum, max_wait_ms, clamp, idle, options)
        return bucket

    def _fill(
        self,
        interval_ms: float,
        capacity: float,
        quantum: float,
        max_wait_ms: float | str | None,
        clamp: bool,
        idle: float | None,
        options: LimiterOptions,
    ) -> None:
        self.interval_ms = interval_ms
        self.capacity = capacity
        self.quantum = quantum
        self.max_wait_ms: float | str | None = 0 if max_wait_ms == "site" else max_wait_ms
        self.clamp = clamp
        self.idle = idle
        super().__init__(**options)
        if max_wait_ms == 0:
            rate = quantum * 1000 / interval_ms
            title = f"TokenBucket({rate:g}, capacity={capacity!r}, max_wait=0)"
            _warn_if_slower(title, rate, 1000 * capacity if interval_ms < 1 else rate, "capacity", 4)
        if max_wait_ms == "site":  # the settings are read on the first call
            self.max_wait_ms = "site"
            del self.config
            _reading_settings.add(self)

    @cached_property
    def config(self) -> token_bucket.TokenBucketConfig:  # type: ignore[override]
        """The numbers for the algorithm; with `max_wait="site"`, they are computed when they are first needed."""
        return self._make_config()

    @property
    def max_wait(self) -> float | str | None:
        """The value in seconds as passed, including None, `math.inf` and "site"."""
        return self.max_wait_ms / 1000 if isinstance(self.max_wait_ms, int | float) else self.max_wait_ms

    @property
    def longest_wait(self) -> float:
        """The maximum wait in milliseconds before a request is refused; may be infinite."""
        if self.max_wait_ms is None:
            return math.inf
        return conf.limits.max_wait * 1000 if isinstance(self.max_wait_ms, str) else self.max_wait_ms

    def _make_config(self) -> token_bucket.TokenBucketConfig:
        positive("interval_ms", self.interval_ms)
        not_negative("capacity", self.capacity)
        positive("quantum", self.quantum)
        if self.max_wait_ms not in (None, "site", math.inf):
            not_negative("max_wait", self.max_wait_ms)
        if self.idle is not None:
            not_negative("idle", self.idle)
        max_wait = self.longest_wait
        interval = math.ceil(self.interval_ms * token_bucket.PARTS_PER_MS) / token_bucket.PARTS_PER_MS
        fill_time = math.ceil(self.capacity / self.quantum) * interval
        keep_tokens = -math.inf
        if self.idle is not None:
            keep_tokens = self.capacity - self.idle * 1000 // interval * self.quantum
        return token_bucket.TokenBucketConfig(
            interval=interval,
            capacity=self.capacity,
            quantum=self.quantum,
            max_wait=max_wait,
            clamp=self.clamp,
            keep=_keep_seconds(self.idle, fill_time / 1000),
            min_tokens=max(token_bucket.min_tokens(interval, self.quantum, max_wait), -1000 * MAX_AMOUNT),
            fill_time=max(fill_time, interval),
            keep_tokens=keep_tokens,
        )

    def take(self, key: object, count: int, commit: bool = False) -> Decision:
        """Take `count` tokens, like `incoming` with that cost. Raise `ValueError` if `count` is not above 0."""
        return self.incoming(key, commit, check_cost(count))

    async def atake(self, key: object, count: int, commit: bool = False) -> Decision:
        """Run `take` without blocking the event loop."""
        return await self.aincoming(key, commit, check_cost(count))

    def take_available(self, key: object, count: int) -> float:
        """Take the available tokens, at most `count`, and return the number taken. The call is always recorded.

        Return 0 for a `count` of 0 or less, and for a key that is not a string. While the store cannot be used,
        `on_error` decides: all for "open", none for "closed".
        """
        if count <= 0 or not isinstance(key, str):
            return 0
        return self._change(self._take_available, key, self.config, min(count, MAX_AMOUNT)) or 0

    async def atake_available(self, key: object, count: int) -> float:
        """Run `take_available` without blocking the event loop."""
        if count <= 0 or not isinstance(key, str):
            return 0
        return await self._achange(self._take_available, key, self.config, min(count, MAX_AMOUNT)) or 0

    def _change_without_store(self, operation: StateOperation, key: object, config: Struct, cost: int) -> float | None:
        if operation is not self._take_available:
            return 0
        self.store.breaker.calls += 1
        if self.on_error == "local":
            return self.local.change(self, operation, self.key(key), config, cost)
        return cost if self.on_error == "open" else 0

    def with_numbers(self, **numbers: Any) -> Self:
        other = super().with_numbers(**numbers)
        if other.max_wait_ms == "site":
            _reading_settings.add(other)
        return other

    def set_max_wait(self, max_wait: str | float | timedelta | None) -> None:
        """Change the maximum wait, in seconds; None or `math.inf`: no limit."""
        self._set(max_wait_ms=_wait_ms(max_wait))

    def describe(self) -> str:
        longest = self.longest_wait
        return descriptions.token_bucket(
            self.interval_ms, self.capacity, self.quantum, None if longest == math.inf else longest
        )


def _keep_seconds(idle: float | None, seconds: float) -> int:
    """Return the seconds for which to keep the state of a bucket that is initial again after `seconds`; 0: forever."""
    if idle is None:
        return 0
    keep = idle + KEEP_SLOT_MS / 1000 + seconds
    return math.ceil(keep) if keep < MAX_SECONDS else 0


def _warn_if_slower(title: str, rate: float, passing: float, option: str, stacklevel: int) -> None:
    if slower(rate, passing):
        warnings.warn(
            f"{title} lets only {passing:,.0f} requests/s pass, because times are whole milliseconds. "
            f"Set {option} to at least {math.ceil(rate / 1000)}.",
            RuntimeWarning,
            stacklevel=stacklevel,
        )


def _wait_ms(max_wait: str | float | timedelta | None) -> float | str | None:
    """Return a `max_wait` in milliseconds. Raise `TypeError` or `ValueError`."""
    if max_wait is None or max_wait == "site":
        return None if max_wait is None else "site"
    if isinstance(max_wait, str | timedelta):
        return round(parse_duration(max_wait) * 1000, 6)
    if max_wait != math.inf:
        not_negative("max_wait", max_wait, MAX_SECONDS)
    return round(max_wait * 1000, 6)


_reading_settings: Final[weakref.WeakSet[TokenBucket]] = weakref.WeakSet()
"""Buckets whose numbers depend on a setting."""


def _forget() -> None:
    for bucket in list(_reading_settings):
        vars(bucket).pop("config", None)


on_change(_forget, SETTING)
