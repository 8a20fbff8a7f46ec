"""The limiters.

from resty_django.limits import LeakyBucket

limiter = LeakyBucket(200, burst=100, prefix="search:")
decision = limiter.hit("192.0.2.1")
if decision:
    time.sleep(decision.delay)
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Final

from . import wording
from .algorithms import fixed_window, leaky_bucket, sliding_window, token_bucket
from .arguments import check_cost, not_negative, positive, whole_limit, window_ms
from .concurrency import Concurrency
from .decision import Decision
from .limiter import Algorithm, Limiter, Operation

LONGEST: Final = 1e9
"""Seconds: what would be kept longer is kept for ever."""
IDLE: Final = 60.0
"""Seconds: the `idle` of a leaky bucket, and of the token buckets of decorators, policies and throttles."""


class LeakyBucket(Limiter[leaky_bucket.Numbers]):
    """At most `rate` requests a second, with a queue of `burst` requests before it.

    A request that passes may have to wait (`delay`) until it is its turn: nginx's `limit_req`. Without the waiting it
    is `limit_req ... nodelay`. `rate` > 0 and `burst` >= 0 may be fractions. `clamp`: a clock that went back is taken
    to stand still, as nginx does; else as to have gone as far forward. `idle`: seconds after which a key is forgotten
    whose bucket is empty, and would be for a request of any cost up to burst + 1 (None: never).
    """

    algorithm: ClassVar = Algorithm(
        "leaky_bucket",
        leaky_bucket.incoming,
        leaky_bucket.decide,
        leaky_bucket.SENT.pack,
        leaky_bucket.MEASURED.unpack,
        Operation(leaky_bucket.uncommit, "uncommit"),
    )

    def __init__(
        self, rate: float, burst: float = 0, *, clamp: bool = False, idle: float | None = IDLE, **options: Any
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
        # A bucket holds no more than the burst; it pours out that, and the next request's own, in so many seconds.
        keep = LONGEST if self.idle is None else self.idle + leaky_bucket.SLOT / 1000 + (2 * self.burst + 1) / self.rate
        keep = math.ceil(keep) if keep < LONGEST else 0
        return leaky_bucket.Numbers(self.rate * 1000, burst, int(burst), int(self.burst) + 1, self.clamp, keep)

    def set_rate(self, rate: float) -> None:
        """Requests a second from now on; what is in the buckets stays."""
        self._set(rate=rate)

    def set_burst(self, burst: float) -> None:
        """Requests in the queue from now on."""
        self._set(burst=burst)

    def describe(self) -> str:
        return wording.leaky_bucket(self.rate, self.burst)


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
        Operation(fixed_window.uncommit, "uncommit"),
    )

    def __init__(self, limit: int, window: float, **options: Any) -> None:
        self.limit = limit
        self.window = window
        super().__init__(**options)

    def _numbers(self) -> fixed_window.Numbers:
        return fixed_window.Numbers(whole_limit(self.limit), window_ms(self.window))

    def set_limit(self, limit: int) -> None:
        """The limit of windows that begin from now on."""
        self._set(limit=limit)

    def set_window(self, window: float) -> None:
        """The length of windows that begin from now on."""
        self._set(window=window)

    def describe(self) -> str:
        return wording.fixed_window(self.limit, self.window)


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
        Operation(sliding_window.uncommit, "uncommit"),
    )

    def __init__(self, limit: int, window: float, **options: Any) -> None:
        self.limit = limit
        self.window = window
        super().__init__(**options)

    def _numbers(self) -> sliding_window.Numbers:
        return sliding_window.Numbers(whole_limit(self.limit), window_ms(self.window))

    def set_limit(self, limit: int) -> None:
        """The limit from now on."""
        self._set(limit=limit)

    def set_window(self, window: float) -> None:
        """The length of windows from now on; keys begin anew."""
        self._set(window=window)

    def describe(self) -> str:
        return wording.sliding_window(self.limit, self.window)


class TokenBucket(Limiter[token_bucket.Numbers]):
    """A stock of `capacity` tokens, into which `quantum` tokens come each `interval` milliseconds; a request takes one.

    Who comes too early waits (`delay`) until its token is there, but not longer than `max_wait` milliseconds (None:
    however long): then it is refused. `clamp`: a clock that went back is taken to stand still; else tokens are taken
    away. `idle`: seconds for which a full bucket is remembered at least (None: for ever). Then it is forgotten, which
    alters no more than its ticks: they begin anew with the next request.
    """

    algorithm: ClassVar = Algorithm(
        "token_bucket",
        token_bucket.incoming,
        token_bucket.decide,
        token_bucket.SENT.pack,
        token_bucket.MEASURED.unpack,
        Operation(token_bucket.uncommit, "uncommit"),
    )
    _take_available: ClassVar = Operation(token_bucket.take_available, "take_available")

    def __init__(
        self,
        interval: float,
        capacity: float,
        quantum: float = 1,
        max_wait: float | None = None,
        *,
        clamp: bool = False,
        idle: float | None = None,
        **options: Any,
    ) -> None:
        self.interval = interval
        self.capacity = capacity
        self.quantum = quantum
        self.max_wait = max_wait
        self.clamp = clamp
        self.idle = idle
        super().__init__(**options)

    def _numbers(self) -> token_bucket.Numbers:
        positive("interval", self.interval)
        not_negative("capacity", self.capacity)
        positive("quantum", self.quantum)
        if self.max_wait is not None:
            not_negative("max_wait", self.max_wait)
        if self.idle is not None:
            not_negative("idle", self.idle)
        max_wait = math.inf if self.max_wait is None else self.max_wait
        full = math.ceil(self.capacity / self.quantum) * self.interval
        keep = LONGEST if self.idle is None else self.idle + (token_bucket.SLOT + full) / 1000
        keep = math.ceil(keep) if keep < LONGEST else 0
        return token_bucket.Numbers(self.interval, self.capacity, self.quantum, max_wait, self.clamp, keep)

    def take(self, key: object, count: int, commit: bool = False) -> Decision:
        """Take `count` tokens: as `incoming` with that cost. Raises `ValueError` where `count` is not above 0."""
        return self.incoming(key, commit, check_cost(count))

    async def atake(self, key: object, count: int, commit: bool = False) -> Decision:
        """As `take`."""
        return await self.aincoming(key, commit, check_cost(count))

    def take_available(self, key: object, count: int) -> float:
        """Take at most `count` tokens, as many as are there; returns how many. It is always recorded.

        0 for a `count` of 0 or less and for a key that is no text. Where the store cannot be used `on_error` decides:
        all for "open", none for "closed".
        """
        if count <= 0 or not isinstance(key, str):
            return 0
        got: float = self._change(self._take_available, key, self.numbers, count)
        return got

    async def atake_available(self, key: object, count: int) -> float:
        """As `take_available`."""
        if count <= 0 or not isinstance(key, str):
            return 0
        got: float = await self._achange(self._take_available, key, self.numbers, count)
        return got

    def _unchanged(self, operation: Operation, key: object, numbers: token_bucket.Numbers, cost: float) -> Any:
        if operation is not self._take_available:
            return 0
        self.store.watch.decisions += 1
        if self.on_error == "local":
            return self.local.change(self, operation, self.key(key), numbers, cost)
        return cost if self.on_error == "open" else 0

    def set_max_wait(self, max_wait: float | None) -> None:
        """Milliseconds that a request may wait from now on; None: any."""
        self._set(max_wait=max_wait)

    def describe(self) -> str:
        return wording.token_bucket(self.interval, self.capacity, self.quantum, self.max_wait)


__all__ = ["Concurrency", "FixedWindow", "LeakyBucket", "Limiter", "SlidingWindow", "TokenBucket"]
