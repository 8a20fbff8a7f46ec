"""Limits of requests: a limiter, the requests to which it applies, and the effect of a refusal."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from django.http import HttpRequest

from resty_django.callables import plain_function, plain_value

from ..bans.banning import Banning
from ..callers.exemptions import Exemption, limited_methods
from ..callers.keys import RequestFunction, RequestKey
from ..decision import Decision
from ..limiters.base import Limiter
from ..limiters.concurrency import Concurrency
from ..limiters.rate import LeakyBucket, TokenBucket
from ..overrides.limits import overridden_limiter
from ..specs.ban import BanRule
from ..statistics.catalog import LimitKind
from ..statistics.counting import DecisionCounter
from .headers import AdvertisedLimit

MIN_SLEEP_SECONDS: Final = 0.001
"""Shorter delays are ignored."""


@dataclass(kw_only=True)
class LimitOptions:
    """The requests that a limit counts, their cost, and the effect of a refusal.

    Raise `TypeError` or `ValueError` for wrong values.
    """

    key: RequestKey
    """How requests are grouped."""
    cost: int | RequestFunction[int] = 1
    """The number of requests that one request counts as, or a function of the request that returns it."""
    methods: Collection[str] = ()
    """The limited methods as declared; empty: all. GET includes HEAD."""
    when: RequestFunction[object] | None = None
    """Returns whether the limit applies to a request."""
    exemption: Exemption | None = None
    """Exempt requests."""
    count_when: Callable[[Any], object] | None = None
    """Returns whether a request with this response counts; None: always."""
    shadow: bool = False
    """Decide and log, but let all requests pass."""
    block: bool = True
    """Refuse requests; if not, the view decides with `request.limits`."""
    status: int | None = None
    """The status of refusals; None: the setting STATUS."""
    ban: BanRule | None = None
    """The rule that bans refused keys."""
    nodelay: bool = False
    """Ignore delays."""
    undelayed: float = 0
    """The number of requests of a leaky bucket's burst that pass without a delay (nginx's `delay=`)."""

    def __post_init__(self) -> None:
        plain_function(self.cost, "cost of a limit")
        plain_function(self.when, "when of a limit")
        if self.count_when is not None and not callable(self.count_when):
            raise TypeError(f"count_when of a limit must be a function of the response, not {self.count_when!r}.")
        plain_function(self.count_when, "count_when of a limit")
        if self.status is not None and not 400 <= self.status <= 599:
            raise ValueError(f"status of a limit must be an error status from 400 to 599, not {self.status!r}.")
        if self.ban is not None and not self.block:
            raise TypeError("A limit with block=False refuses nothing, so it cannot ban. Remove ban= or block=.")
        self._limited_methods = limited_methods(self.methods)
        self.exemption = self.exemption or None

    @property
    def needs_user(self) -> bool:
        """Whether the user of the request must be loaded first."""
        return self.key.needs_user or (self.exemption is not None and self.exemption.needs_user)

    def apply_to(self, request: HttpRequest) -> bool:
        """Return whether a limit with these options applies to the request's method and according to `when`."""
        if self._limited_methods and request.method not in self._limited_methods:
            return False
        return self.when is None or bool(plain_value(self.when(request), "when of a limit"))


class RequestLimit:
    """A limiter that is applied to requests.

    `name`: the name in logs and signals. `label`: the name that clients see (default: `name`). `record`: called with
    key and decision, for refusals also `request=`. `series`: the name under which decisions are counted (empty:
    overrides do not apply to it).

    Raise `TypeError` if the options do not fit the limiter.
    """

    __slots__ = (
        "acts_on_passes",
        "advertised",
        "advises",
        "ban",
        "holds_slot",
        "key",
        "label",
        "limiter",
        "name",
        "obeys_max_wait",
        "options",
        "queues",
        "record",
        "series",
    )

    def __init__(
        self,
        name: str,
        limiter: Any,
        options: LimitOptions,
        *,
        label: str = "",
        record: Callable[..., object] | None = None,
        series: str = "",
    ) -> None:
        self.name = name
        self.limiter = limiter
        self.options = options
        self.key = options.key
        self.label = label or name
        self.record = record
        self.series = series
        self.holds_slot = isinstance(limiter, Concurrency)
        if options.count_when is not None and self.holds_slot:
            raise TypeError("A concurrency limit has no count_when: each request holds its slot until it ends.")
        self.ban = None if options.ban is None else Banning.of_limiter(options.ban, name, limiter)
        self.advises = options.shadow or not options.block
        """Whether the limit refuses nothing, and so must not affect the decisions of other limits."""
        self.acts_on_passes = self.holds_slot or options.count_when is not None or not options.block
        """Whether a request that passes at once needs more than being recorded."""
        self.obeys_max_wait = isinstance(limiter, TokenBucket) and limiter.max_wait is None
        """Whether the setting MAX_WAIT limits the time that a request waits: for token buckets without a `max_wait`."""
        self.queues = not (isinstance(limiter, TokenBucket) and limiter.max_wait == inf)
        """Whether the setting MAX_WAITING limits the number of waiting requests: unless `max_wait` is infinite."""
        self.advertised = AdvertisedLimit(self.label, limiter)

    @classmethod
    def counted(
        cls,
        kind: LimitKind,
        name: str,
        limiter: Limiter,
        options: LimitOptions,
        *,
        label: str = "",
        series: str,
        location: str,
    ) -> RequestLimit:
        """Return a limit whose decisions are counted in the statistics, and list it in the catalog.

        `kind`: of the limit. `series`: the name under which it is counted. `location`: its dotted name in the code.
        """
        counter = DecisionCounter(
            kind,
            series,
            limiter,
            location,
            shadow=options.shadow or not options.block,
            nodelay=options.nodelay,
            roles=options.key.roles,
        )
        limit = cls(name, limiter, options, label=label, record=counter.record, series=counter.series)
        if limit.ban is not None:
            limit.ban.list_in_catalog(location)
        return limit

    def passes_at_once(self, decision: Decision) -> bool:
        """Return whether a request with this decision passes at once, and only has to be recorded and reported."""
        waits = decision.delay and (decision.delay >= MIN_SLEEP_SECONDS or self.obeys_max_wait)
        return decision.allowed and not (waits or self.acts_on_passes)

    def delay_of(self, decision: Decision) -> float:
        """Return the seconds to sleep: the delay, the part of it that nginx's `delay=` leaves, or 0."""
        if self.options.nodelay or not decision.delay:
            return 0.0
        undelayed = self.options.undelayed
        if undelayed and isinstance(self.limiter, LeakyBucket) and decision.state is not None:
            return max(0.0, (decision.state - undelayed) / self.limiter.rate)
        return decision.delay

    def with_rate(self, rate: str) -> RequestLimit:
        """Return the limit with another rate, or unchanged if it cannot have this rate; the latter is logged once."""
        limiter = overridden_limiter(self.limiter, rate)
        return self if limiter is self.limiter else _with_limiter(self, limiter)


@functools.lru_cache(1024)
def _with_limiter(limit: RequestLimit, limiter: Limiter) -> RequestLimit:
    """Return the limit with a limiter that has other numbers for the same states."""
    other = copy.copy(limit)
    other.limiter = limiter
    other.advertised = AdvertisedLimit(limit.label, limiter)
    return other
