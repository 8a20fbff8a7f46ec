"""A request on its way through its limits, and what they have said of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from django.http import HttpResponseBase

from . import keys
from .decision import Decision
from .errors import LimitError
from .exempt import Exemption
from .headers import Shown, show
from .limiters import Concurrency, LeakyBucket
from .refusal import Refusal, aannounce, announce, response_to, would_refuse
from .site import site

log = logging.getLogger("resty_django.limits")


class Limit:
    """A limiter as it applies to requests.

    `name`: in logs and signals. `label`: what clients see (default: `name`). `key`: whom it counts together. `cost`:
    a number, or a function of the request. `methods`: those it applies to (none: all). `when`: a function of the
    request that says whether it applies. `exemption`: requests it does not apply to. `shadow`: decide and log, let
    pass. `status`: of the response where it refuses (None: the setting). `nodelay`: delays are ignored. `free`: of a
    leaky bucket, requests of its burst that pass without a delay (nginx's `delay=`). `record`: called with key and
    decision.
    """

    __slots__ = (
        "cost",
        "exemption",
        "free",
        "holds",
        "key",
        "label",
        "limiter",
        "methods",
        "name",
        "nodelay",
        "record",
        "shadow",
        "shown",
        "status",
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
        free: float = 0,
        record: Callable[[str, Decision], object] | None = None,
    ) -> None:
        self.name = name
        self.label = label or name
        self.limiter = limiter
        self.key = key
        self.cost = cost
        self.methods = frozenset(methods)
        self.when = when
        self.exemption = exemption or None
        self.shadow = shadow
        self.status = status
        self.nodelay = nodelay
        self.free = free
        self.record = record
        self.holds = isinstance(limiter, Concurrency)
        self.shown = Shown(self.label, limiter)

    @property
    def plain(self) -> bool:
        """Whether it applies to each request, and only decides."""
        choosy = self.methods or self.when or self.exemption
        return self.cost == 1 and not (choosy or self.holds or self.shadow or self.record)

    def covers(self, request: Any) -> bool:
        """Whether it applies to such requests, whoever sends them."""
        if self.methods and request.method not in self.methods:
            return False
        return self.when is None or bool(self.when(request))

    def cost_of(self, request: Any) -> int:
        return self.cost if isinstance(self.cost, int) else self.cost(request)

    def delay_of(self, decision: Decision) -> float:
        """Seconds to sleep: all of the delay, what nginx's `delay=` leaves of it, or none."""
        if self.nodelay or not decision.delay:
            return 0.0
        if self.free and isinstance(self.limiter, LeakyBucket) and decision.state is not None:
            return max(0.0, (decision.state - self.free) / self.limiter.rate)
        return decision.delay


class Result(NamedTuple):
    """What a limit decided of a request."""

    limit: Limit
    key: str
    decision: Decision

    def refusal(self) -> Refusal:
        limit = self.limit
        return Refusal(limit.name, limit.label, type(limit.limiter), self.key, self.decision, limit.status)


class Hold:
    """A slot of a concurrency limiter, given back once. It goes back too when nobody refers to it any more, as where a
    response was thrown away that nobody closed. A copy by pickle, as caches make of a response, holds nothing, and
    neither does the copy in a child of a fork."""

    __slots__ = ("_cost", "_key", "_limiter", "_pid", "_started", "_token")

    def __init__(self, limiter: Concurrency | None = None, key: str = "", token: str = "", cost: int = 1) -> None:
        self._limiter = limiter
        self._key = key
        self._token = token
        self._cost = cost
        self._pid = os.getpid()
        self._started = time.monotonic()

    def __reduce__(self) -> tuple[type[Hold], tuple[()]]:
        return Hold, ()

    def begin(self) -> None:
        """The latency of the request counts from here."""
        self._started = time.monotonic()

    def leave(self) -> None:
        limiter, self._limiter = self._limiter, None
        if limiter is not None:
            try:
                limiter.leaving(self._key, time.monotonic() - self._started, self._token, self._cost)
            except LimitError as error:
                log.warning("a slot of %s could not be given back: %s", self._key, error)

    async def aleave(self) -> None:
        limiter, self._limiter = self._limiter, None
        if limiter is not None:
            try:
                await limiter.aleaving(self._key, time.monotonic() - self._started, self._token, self._cost)
            except LimitError as error:
                log.warning("a slot of %s could not be given back: %s", self._key, error)

    def __del__(self) -> None:
        if getattr(self, "_limiter", None) is not None and self._pid == os.getpid():
            with contextlib.suppress(Exception):  # the process may be at its end
                self.leave()


class Passage:
    """A request on its way through its limits. `delay`: seconds to sleep before the view. `refused`: what said no."""

    __slots__ = ("_holds", "_request", "delay", "refused", "results")

    def __init__(self, request: Any) -> None:
        self._request = request
        self._holds: list[Hold] = []
        self.results: list[Result] = []
        self.refused: Result | None = None
        self.delay = 0.0

    def note(self, limit: Limit, key: str, decision: Decision) -> None:
        """Take in what a limit decided."""
        result = Result(limit, key, decision)
        self.results.append(result)
        if limit.record is not None:
            limit.record(key, decision)
        if not decision.allowed:
            if limit.shadow:
                would_refuse(self._request, result.refusal())
            elif self.refused is None:
                self.refused = result
            return
        if limit.holds and (decision.token or not decision.failed):
            cost = 1 if decision.token else limit.cost_of(self._request)
            self._holds.append(Hold(limit.limiter, key, decision.token, cost))
        if decision.delay and not limit.shadow:
            self.delay = max(self.delay, limit.delay_of(decision))

    def begin(self) -> None:
        """The delay is over: latencies count from here."""
        for hold in self._holds:
            hold.begin()

    def leave(self) -> None:
        """Give back all slots."""
        holds, self._holds = self._holds, []
        for hold in holds:
            hold.leave()

    async def aleave(self) -> None:
        """As `leave`, even where the task is cancelled meanwhile."""
        holds, self._holds = self._holds, []
        if holds:
            await asyncio.shield(asyncio.ensure_future(_leave_all(holds)))

    @property
    def holding(self) -> bool:
        """Whether it took a slot."""
        return bool(self._holds)

    def finish(self, response: HttpResponseBase) -> HttpResponseBase:
        """Tell of the limits in the response, and give back the slots: now, or when a response is closed whose content
        is still to be made."""
        if self._holds:
            self.settle(response)
        self.tell(response.headers)
        return response

    def settle(self, response: HttpResponseBase) -> None:
        """Give back the slots, now or when the response is closed."""
        if not self._kept(response):
            self.leave()

    async def afinish(self, response: HttpResponseBase) -> HttpResponseBase:
        """As `finish`, without blocking."""
        if self._holds and not self._kept(response):
            await self.aleave()
        self.tell(response.headers)
        return response

    def _kept(self, response: HttpResponseBase) -> bool:
        if not response.streaming and getattr(response, "is_rendered", True):
            return False
        holds, self._holds = self._holds, []
        response._resource_closers.extend(hold.leave for hold in holds)  # type: ignore[attr-defined]
        return True

    def tell(self, headers: Any) -> None:
        """Set the header fields of all decisions in `headers`, a mapping of a response."""
        if site().headers:
            for limit, _, decision in self.results:
                if not (limit.shadow or decision.failed):
                    show(headers, limit.shown, decision)

    def refuse(self) -> HttpResponseBase:
        """The response of a refused request."""
        refusal = self._refusal()
        announce(self._request, refusal)
        return self.finish(response_to(self._request, refusal))

    async def arefuse(self) -> HttpResponseBase:
        """As `refuse`, without blocking."""
        refusal = self._refusal()
        await aannounce(self._request, refusal)
        return await self.afinish(response_to(self._request, refusal))

    def announce(self) -> None:
        """Log and signal the refusal."""
        announce(self._request, self._refusal())

    def _refusal(self) -> Refusal:
        assert self.refused is not None  # noqa: S101 (for the type checker)
        return self.refused.refusal()


async def _leave_all(holds: Sequence[Hold]) -> None:
    for hold in holds:
        await hold.aleave()


__all__ = ["Hold", "Limit", "Passage", "Result"]
