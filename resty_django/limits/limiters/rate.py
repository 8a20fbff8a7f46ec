"""The limiters of requests over time.

from resty_django.limits import LeakyBucket

limiter = LeakyBucket(200, burst=100, prefix="search:")
decision = limiter.hit("192.0.2.1")
if decision:
    time.sleep(decision.delay)
"""

from __future__ import annotations

import math
import weakref
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self, Unpack

from resty_django.conf import conf, on_change
from resty_django.conf.schema import SETTING

from ..algorithms import fixed_window, leaky_bucket, sliding_window, token_bucket
from ..algorithms.decision import Decision
from . import descriptions
from .base import Algorithm, Limiter, LimiterOptions, Operation
from .units import parse_duration, refill_of
from .validation import check_cost, not_negative, positive, whole_limit, window_ms

LONGEST: Final = 1e9
"""Seconds: a state that would be kept longer is kept indefinitely."""
SITE: Final = "site"
"""The `max_wait` of a token bucket that takes it from the setting LIMITS MAX_WAIT."""
IDLE: Final = 60.0
"""Seconds: the `idle` of a leaky bucket, and of the token buckets of decorators, policies and throttles."""


class LeakyBucket(Limiter[leaky_bucket.Numbers]):
    """At most `rate` requests a second, with a queue of `burst` requests before it.

    A request that passes may have to wait (`delay`) until it is its turn: nginx's `limit_req`. Without the waiting it
    is `limit_req ... nodelay`. `rate` > 0 and `burst` >= 0 may be fractions. `clamp`: a clock that went back is taken
    to stand still, for as long as the bucket takes to drain at most; else as to have gone as far forward. `idle`:
    seconds after which a key is forgotten whose bucket is empty, and would be for a request of any cost up to burst + 1
    (None: never).
    """

    algorithm: ClassVar = Algorithm(
        "leaky_bucket",
        leaky_bucket.incoming,
        leaky_bucket.decide,
        leaky_bucket.SENT.pack,
        leaky_bucket.MEASURED.unpack,
        leaky_bucket.passable,
        Operation(leaky_bucket.uncommit, "uncommit", True),
    )

    def __init__(
        self,
        rate: float,
        burst: float = 0,
        *,
        clamp: bool = False,
        idle: float | None = IDLE,
        **options: Unpack[LimiterOptions],
    ) -> None:
        self.rate = rate
        self.burst = burst
        self.clamp = clamp
        self.idle = idle
        super().__init__(**options)

    def _numbers(self) -> leaky_bucket.Numbers:
        positive("rate", self.rate)
        not_negative("burst", self.burst)
        if self.idle is not None:
            not_negative("idle", self.idle)
        burst = self.burst * 1000
        # keep = idle + slot + seconds in which the burst and a request of the highest cost, burst + 1, drain
        keep = LONGEST if self.idle is None else self.idle + leaky_bucket.SLOT / 1000 + (2 * self.burst + 1) / self.rate
        keep = math.ceil(keep) if keep < LONGEST else 0
        spare = math.inf if self.idle is None else self.idle * self.rate * 1000
        limit = int(self.burst) + 1
        return leaky_bucket.Numbers(self.rate * 1000, burst, int(burst), limit, self.clamp, keep, spare)

    def set_rate(self, rate: float) -> None:
        """Change the rate, in requests a second. Requests in the buckets drain at that rate."""
        self._set(rate=rate)

    def set_burst(self, burst: float) -> None:
        """Change the length of the queue, in requests. Fuller buckets count as that full."""
        self._set(burst=burst)

    def describe(self) -> str:
        return descriptions.leaky_bucket(self.rate, self.burst)


class FixedWindow(Limiter[fixed_window.Numbers]):
    """`limit` requests in a window of `window` seconds, which begins with the first recorded request of the key.

    `limit` > 0, `window` > 0 with a resolution of a millisecond. Up to twice the limit can pass around the end of a
    window. A refused request that is recorded counts as well.
    """

    algorithm: ClassVar = Algorithm(
        "fixed_window",
        fixed_window.incoming,
        fixed_window.decide,
        fixed_window.SENT.pack,
        fixed_window.MEASURED.unpack,
        fixed_window.passable,
        Operation(fixed_window.uncommit, "uncommit"),
    )

    def __init__(self, limit: int, window: float, **options: Unpack[LimiterOptions]) -> None:
        self.limit = limit
        self.window = window
        super().__init__(**options)

    def _numbers(self) -> fixed_window.Numbers:
        return fixed_window.Numbers(whole_limit(self.limit), window_ms(self.window))

    def set_limit(self, limit: int) -> None:
        """Change the limit, also of windows that have begun."""
        self._set(limit=limit)

    def set_window(self, window: float) -> None:
        """Change the length of windows that begin from now on. One that has begun lasts no longer than that."""
        self._set(window=window)

    def describe(self) -> str:
        return descriptions.fixed_window(self.limit, self.window)


class SlidingWindow(Limiter[sliding_window.Numbers]):
    """About `limit` requests in any stretch of `window` seconds.

    Counts by windows that begin at whole multiples of their length, and takes the requests of the one before as spread
    evenly. Refused requests do not count.
    """

    algorithm: ClassVar = Algorithm(
        "sliding_window",
        sliding_window.incoming,
        sliding_window.decide,
        sliding_window.SENT.pack,
        sliding_window.MEASURED.unpack,
        sliding_window.passable,
        Operation(sliding_window.uncommit, "uncommit"),
    )

    def __init__(self, limit: int, window: float, **options: Unpack[LimiterOptions]) -> None:
        self.limit = limit
        self.window = window
        super().__init__(**options)

    def _numbers(self) -> sliding_window.Numbers:
        return sliding_window.Numbers(whole_limit(self.limit), window_ms(self.window))

    def set_limit(self, limit: int) -> None:
        """Change the limit."""
        self._set(limit=limit)

    def set_window(self, window: float) -> None:
        """Change the length of windows.

        Requests that passed in longer windows are forgotten; those of shorter ones count in the current one.
        """
        self._set(window=window)

    def describe(self) -> str:
        return descriptions.sliding_window(self.limit, self.window)


class TokenBucket(Limiter[token_bucket.Numbers]):
    """A stock of `capacity` tokens, refilled at `rate`; a request takes one.

    `rate`: a text such as "10/s", or requests per second. `capacity`: None: the number of requests that `rate` names.
    A request that comes too early waits (`delay`) until its token is there. `max_wait`: where it would wait longer than
    these seconds, or a duration such as "500ms", it is refused. None: the limiter refuses none, but a view lets none
    wait longer than the setting LIMITS MAX_WAIT; `math.inf`: unbounded, in views too; "site": that setting. `clamp`: a
    clock that went back is taken to stand still, for at most as long as the bucket takes to fill; else tokens are taken
    away. `idle`: seconds for which a full bucket is remembered at least (None: indefinitely). Forgetting it changes
    only its ticks: they begin anew with the next request.

    `from_interval` takes the numbers of lua-resty-limit-traffic instead of a rate.
    """

    algorithm: ClassVar = Algorithm(
        "token_bucket",
        token_bucket.incoming,
        token_bucket.decide,
        token_bucket.SENT.pack,
        token_bucket.MEASURED.unpack,
        token_bucket.passable,
        Operation(token_bucket.uncommit, "uncommit", True),
    )
    _take_available: ClassVar = Operation(token_bucket.take_available, "take_available")

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
        """Return a bucket into which `quantum` tokens come each `interval_ms` milliseconds, as in
        lua-resty-limit-traffic.
        """
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
        self.max_wait_ms: float | str | None = 0 if max_wait_ms == SITE else max_wait_ms
        self.clamp = clamp
        self.idle = idle
        super().__init__(**options)
        if max_wait_ms == SITE:  # the settings are not read before the first call
            self.max_wait_ms = SITE
            del self.numbers
            _reading_settings.add(self)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Compute `numbers` where they depend on a setting that was not read yet."""
            if name != "numbers":
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            numbers = self.numbers = self._numbers()
            return numbers

    @property
    def max_wait(self) -> float | str | None:
        """Seconds, as given: None, `math.inf` and "site" too."""
        return self.max_wait_ms / 1000 if isinstance(self.max_wait_ms, int | float) else self.max_wait_ms

    @property
    def longest_wait(self) -> float:
        """Milliseconds after which a request is refused that would have to wait longer; may be infinite."""
        if self.max_wait_ms is None:
            return math.inf
        return conf.limits.max_wait * 1000 if isinstance(self.max_wait_ms, str) else self.max_wait_ms

    def _numbers(self) -> token_bucket.Numbers:
        positive("interval_ms", self.interval_ms)
        not_negative("capacity", self.capacity)
        positive("quantum", self.quantum)
        if self.max_wait_ms not in (None, SITE, math.inf):
            not_negative("max_wait", self.max_wait_ms)
        if self.idle is not None:
            not_negative("idle", self.idle)
        max_wait = self.longest_wait
        full = math.ceil(self.capacity / self.quantum) * self.interval_ms
        fill_time = max(full, self.interval_ms)
        least = token_bucket.least_tokens(self.interval_ms, self.quantum, max_wait)
        low = -math.inf
        if self.idle is not None:
            low = self.capacity - self.idle * 1000 // self.interval_ms * self.quantum
        keep = LONGEST if self.idle is None else self.idle + (token_bucket.SLOT + full) / 1000
        keep = math.ceil(keep) if keep < LONGEST else 0
        numbers = self.interval_ms, self.capacity, self.quantum, max_wait, self.clamp, keep, least, fill_time, low
        return token_bucket.Numbers(*numbers)

    def take(self, key: object, count: int, commit: bool = False) -> Decision:
        """Take `count` tokens: as `incoming` with that cost. Raises `ValueError` where `count` is not above 0."""
        return self.incoming(key, commit, check_cost(count))

    async def atake(self, key: object, count: int, commit: bool = False) -> Decision:
        """As `take`."""
        return await self.aincoming(key, commit, check_cost(count))

    def take_available(self, key: object, count: int) -> float:
        """Take the tokens that are there, at most `count`; return the number taken. It is always recorded.

        0 for a `count` of 0 or less and for a key that is not a text. While the store cannot be used `on_error`
        decides: all for "open", none for "closed".
        """
        if count <= 0 or not isinstance(key, str):
            return 0
        tokens: float = self._change(self._take_available, key, self.numbers, count)
        return tokens

    async def atake_available(self, key: object, count: int) -> float:
        """As `take_available`."""
        if count <= 0 or not isinstance(key, str):
            return 0
        tokens: float = await self._achange(self._take_available, key, self.numbers, count)
        return tokens

    def _change_without_store(
        self, operation: Operation, key: object, numbers: token_bucket.Numbers, cost: float
    ) -> Any:
        if operation is not self._take_available:
            return 0
        self.store.breaker.decisions += 1
        if self.on_error == "local":
            return self.local.change(self, operation, self.key(key), numbers, cost)
        return cost if self.on_error == "open" else 0

    def set_max_wait(self, max_wait: str | float | timedelta | None) -> None:
        """Seconds that a request may wait from now on; None, `math.inf`: unbounded."""
        self._set(max_wait_ms=_wait_ms(max_wait))

    def describe(self) -> str:
        longest = self.longest_wait
        return descriptions.token_bucket(
            self.interval_ms, self.capacity, self.quantum, None if longest == math.inf else longest
        )


def _wait_ms(max_wait: str | float | timedelta | None) -> float | str | None:
    """Return a `max_wait` in milliseconds. Raise `TypeError`, `ValueError`."""
    if max_wait is None or max_wait == SITE:
        return None if max_wait is None else SITE
    if isinstance(max_wait, str | timedelta):
        return round(parse_duration(max_wait) * 1000, 6)
    if max_wait != math.inf:
        not_negative("max_wait", max_wait)
    return round(max_wait * 1000, 6)


_reading_settings: Final[weakref.WeakSet[TokenBucket]] = weakref.WeakSet()
"""Buckets whose numbers depend on a setting."""


def _forget() -> None:
    for bucket in list(_reading_settings):
        vars(bucket).pop("numbers", None)


on_change(_forget, SETTING)
