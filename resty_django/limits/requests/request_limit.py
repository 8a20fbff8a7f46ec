"""Limits of requests: a limiter with what selects requests, and what happens to them."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable
from math import inf
from typing import Any, Final

from resty_django.callables import plain_function, plain_value

from ..bans.banning import Banning
from ..callers import keys
from ..callers.exemptions import Exemption, limited_methods
from ..decision import Decision
from ..limiters.base import Limiter
from ..limiters.concurrency import Concurrency
from ..limiters.rate import LeakyBucket, TokenBucket
from ..overrides.limits import KEPT, overridden_limiter
from ..specs.ban import BanRule
from .headers import AdvertisedLimit

SHORTEST_SLEEP: Final = 0.001
"""Seconds; shorter delays are ignored."""


class RequestLimit:
    """A limiter that is applied to requests.

    `name`: the name in logs and signals. `label`: the name that clients see (default: `name`). `key`: how requests are
    grouped. `cost`: a number, or a function of the request. `methods`: limited methods (empty: all; GET includes HEAD).
    `when`: a function of the request that returns whether the limit applies. `exemption`: exempt requests. `shadow`:
    decide and log, but let all requests pass. `block`: whether requests are refused; else the view decides, with
    `request.limits`. `count_when`: a function of the response that returns whether the request counts (None: always).
    `status`: the status of refusals (None: the setting STATUS). `nodelay`: ignore delays. `undelayed`: the number of
    requests of a leaky bucket's burst that pass without a delay (nginx's `delay=`). `record`: called with key and
    decision, for refusals also `request=`. `ban`: the rule that bans refused keys, or None. `series`: the name under
    which it is counted (empty: overrides do not apply to it).
    """

    __slots__ = (
        "acts_on_passes",
        "advertised",
        "advises",
        "ban",
        "block",
        "cost",
        "count_when",
        "exemption",
        "holds_slot",
        "key",
        "label",
        "limiter",
        "methods",
        "name",
        "nodelay",
        "obeys_max_wait",
        "queues",
        "record",
        "series",
        "shadow",
        "status",
        "undelayed",
        "when",
    )

    def __init__(
        self,
        name: str,
        limiter: Any,
        key: keys.Key,
        *,
        label: str = "",
        cost: int | Callable[[Any], int] = 1,
        methods: Iterable[str] = (),
        when: Callable[[Any], object] | None = None,
        exemption: Exemption | None = None,
        shadow: bool = False,
        status: int | None = None,
        nodelay: bool = False,
        undelayed: float = 0,
        block: bool = True,
        count_when: Callable[[Any], object] | None = None,
        record: Callable[..., object] | None = None,
        ban: BanRule | None = None,
        series: str = "",
    ) -> None:
        self.name = name
        self.series = series
        self.label = label or name
        self.limiter = limiter
        self.key = key
        self.cost = plain_function(cost, "cost of a limit")
        self.methods = limited_methods(methods)
        self.when = plain_function(when, "when of a limit")
        self.exemption = exemption or None
        self.shadow = shadow
        self.status = status
        self.nodelay = nodelay
        self.undelayed = undelayed
        self.block = block
        self.count_when = plain_function(count_when, "count_when of a limit")
        self.record = record
        self.holds_slot = isinstance(limiter, Concurrency)
        if count_when is not None and self.holds_slot:
            raise TypeError("A concurrency limit has no count_when: each request holds its slot until it ends.")
        self.ban = None if ban is None else self._banning(ban)
        self.acts_on_passes = self.holds_slot or count_when is not None or not block
        """Whether a request that passes at once needs more than being recorded."""
        self.advises = shadow or not block
        """Whether the limit refuses nothing, and so must not affect the decisions of other limits."""
        self.obeys_max_wait = isinstance(limiter, TokenBucket) and limiter.max_wait is None
        """Whether the setting MAX_WAIT limits the time that a request waits: for token buckets without a `max_wait`."""
        self.queues = not (isinstance(limiter, TokenBucket) and limiter.max_wait == inf)
        """Whether the setting MAX_WAITING limits the number of waiting requests: unless `max_wait` is infinite."""
        self.advertised = AdvertisedLimit(self.label, limiter)

    def _banning(self, rule: BanRule) -> Banning:
        if not self.block:
            raise TypeError("A limit with block=False refuses nothing, so it cannot ban. Remove ban= or block=.")
        limiter = self.limiter
        return Banning(
            rule,
            self.name,
            prefix=limiter.prefix,
            store=limiter._store,
            on_error=limiter._on_error,
            clock=limiter.clock,
        )

    @property
    def plain(self) -> bool:
        """Whether the limit applies to every request and only has to decide."""
        selective = self.methods or self.when or self.exemption or self.count_when or self.ban or not self.block
        return self.cost == 1 and not (selective or self.holds_slot or self.shadow or self.obeys_max_wait)

    def applies_to(self, request: Any) -> bool:
        """Return whether the limit applies to the request's method and according to `when`, for any client."""
        if self.methods and request.method not in self.methods:
            return False
        return self.when is None or bool(plain_value(self.when(request), "when of a limit"))

    def delay_of(self, decision: Decision) -> float:
        """Return the seconds to sleep: the delay, the part of it that nginx's `delay=` leaves, or 0."""
        if self.nodelay or not decision.delay:
            return 0.0
        if self.undelayed and isinstance(self.limiter, LeakyBucket) and decision.state is not None:
            return max(0.0, (decision.state - self.undelayed) / self.limiter.rate)
        return decision.delay

    def with_rate(self, rate: str) -> RequestLimit:
        """Return the limit with another rate, or unchanged if it cannot have this rate; the latter is logged once."""
        limiter = overridden_limiter(self.limiter, rate)
        return self if limiter is self.limiter else _with_limiter(self, limiter)


@functools.lru_cache(KEPT)
def _with_limiter(limit: RequestLimit, limiter: Limiter[Any]) -> RequestLimit:
    """Return the limit with a limiter that has other numbers for the same states."""
    other = copy.copy(limit)
    other.limiter = limiter
    other.advertised = AdvertisedLimit(limit.label, limiter)
    return other
