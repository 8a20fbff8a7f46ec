"""Limits of requests, and the check of one request against them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, NamedTuple

from django.http import HttpResponseBase

from resty_django.sansio import Step, Steps, arun, run
from resty_django.text import logger

from ..algorithms.decision import Decision
from ..errors import LimitError
from ..limiters.concurrency import Concurrency
from ..limiters.rate import LeakyBucket, TokenBucket
from . import keys
from .exemptions import Exemption
from .headers import AdvertisedLimit, add_headers
from .response import Refusal, aannounce, announce, response_to, would_refuse
from .settings import request_settings

log = logger("resty_django.limits")


def limited_methods(methods: Iterable[str]) -> frozenset[str]:
    """Return the methods to which a limit for `methods` applies: GET includes HEAD, which runs the same view."""
    names = frozenset(methods)
    return names | {"HEAD"} if "GET" in names else names


class RequestLimit:
    """A limiter that is applied to requests.

    `name`: the name in logs and signals. `label`: the name that clients see (default: `name`). `key`: how requests are
    grouped. `cost`: a number, or a function of the request. `methods`: limited methods (empty: all; GET includes HEAD).
    `when`: a function of the request that returns whether the limit applies. `exemption`: exempt requests. `shadow`:
    decide and log, but let all requests pass. `status`: the status of refusals (None: the setting STATUS). `nodelay`:
    ignore delays. `undelayed`: the number of requests of a leaky bucket's burst that pass without a delay (nginx's
    `delay=`). `record`: called with key and decision.
    """

    __slots__ = (
        "advertised",
        "cost",
        "exemption",
        "holds_slot",
        "key",
        "label",
        "limiter",
        "methods",
        "name",
        "nodelay",
        "record",
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
        record: Callable[[str, Decision], object] | None = None,
    ) -> None:
        self.name = name
        self.label = label or name
        self.limiter = limiter
        self.key = key
        self.cost = cost
        self.methods = limited_methods(methods)
        self.when = when
        self.exemption = exemption or None
        self.shadow = shadow
        self.status = status
        self.nodelay = nodelay
        self.undelayed = undelayed
        self.record = record
        self.holds_slot = isinstance(limiter, Concurrency)
        self.advertised = AdvertisedLimit(self.label, limiter)

    @property
    def plain(self) -> bool:
        """Whether the limit applies to every request and only has to decide."""
        selective = self.methods or self.when or self.exemption
        unbounded = self.queues and self.limiter.max_wait is None
        return self.cost == 1 and not (selective or self.holds_slot or self.shadow or self.record or unbounded)

    @property
    def queues(self) -> bool:
        """Whether the setting MAX_WAITING limits the number of waiting requests.

        This is the case for token buckets, which have no `burst` to limit it, unless `max_wait` is infinite.
        """
        return isinstance(self.limiter, TokenBucket) and self.limiter.max_wait != inf

    def applies_to(self, request: Any) -> bool:
        """Return whether the limit applies to the request's method and according to `when`, for any client."""
        if self.methods and request.method not in self.methods:
            return False
        return self.when is None or bool(self.when(request))

    def delay_of(self, decision: Decision) -> float:
        """Return the seconds to sleep: the delay, the part of it that nginx's `delay=` leaves, or 0."""
        if self.nodelay or not decision.delay:
            return 0.0
        if self.undelayed and isinstance(self.limiter, LeakyBucket) and decision.state is not None:
            return max(0.0, (decision.state - self.undelayed) / self.limiter.rate)
        return decision.delay


class LimitResult(NamedTuple):
    """The decision of one limit for a request."""

    limit: RequestLimit
    key: str
    decision: Decision

    def refusal(self) -> Refusal:
        limit = self.limit
        return Refusal(limit.name, limit.label, type(limit.limiter), self.key, self.decision, limit.status)


class HeldSlot:
    """A slot of a concurrency limiter, released only once.

    It is also released when it is garbage-collected, for example if a response is discarded without being closed. A
    pickled copy, for example in a cache, does not hold the slot, nor does the copy in a forked child.
    """

    __slots__ = ("_cost", "_key", "_limiter", "_pid", "_started", "_token")

    def __init__(self, limiter: Concurrency | None = None, key: str = "", token: str = "", cost: int = 1) -> None:
        self._limiter = limiter
        self._key = key
        self._token = token
        self._cost = cost
        self._pid = os.getpid()
        self._started = time.monotonic()

    def __reduce__(self) -> tuple[type[HeldSlot], tuple[()]]:
        return HeldSlot, ()

    def start_timing(self) -> None:
        """Measure the latency of the request from now on."""
        self._started = time.monotonic()

    def release(self) -> None:
        """Release the slot, and report the latency of the request."""
        limiter, self._limiter = self._limiter, None
        if limiter is not None:
            try:
                limiter.leaving(self._key, time.monotonic() - self._started, self._token, self._cost)
            except LimitError as error:
                log.warning("A slot of %s could not be released: %s", self._key, error)

    async def arelease(self) -> None:
        """Run `release` without blocking the event loop."""
        limiter, self._limiter = self._limiter, None
        if limiter is not None:
            try:
                await limiter.aleaving(self._key, time.monotonic() - self._started, self._token, self._cost)
            except LimitError as error:
                log.warning("A slot of %s could not be released: %s", self._key, error)

    def __del__(self) -> None:
        if getattr(self, "_limiter", None) is not None and self._pid == os.getpid():
            with contextlib.suppress(Exception):  # the process may be shutting down
                self.release()


class LimitCheck:
    """The check of a request against its limits.

    `delay`: seconds to sleep before the view. `results`: the decisions. `refused`: the first refusal, or None.
    `queued`: the longest wait among the limits to which MAX_WAITING applies, or None.
    """

    __slots__ = ("_costs", "_request", "_slots", "_unrecorded", "delay", "queued", "refused", "results")

    def __init__(self, request: Any) -> None:
        self._request = request
        self._slots: list[HeldSlot] = []
        self.results: list[LimitResult] = []
        self.refused: LimitResult | None = None
        self.queued: LimitResult | None = None
        self._unrecorded: list[LimitResult] = []
        self._costs: dict[RequestLimit, int] = {}
        self.delay = 0.0

    def cost_of(self, limit: RequestLimit) -> int:
        """Return the cost of the request for the limit. A cost function is called once."""
        if isinstance(limit.cost, int):
            return limit.cost
        if limit not in self._costs:
            self._costs[limit] = limit.cost(self._request)
        return self._costs[limit]

    def add(self, limit: RequestLimit, key: str, decision: Decision) -> None:
        """Add the decision of a limit."""
        result = LimitResult(limit, key, decision)
        self.results.append(result)
        delay = limit.delay_of(decision) if decision.delay and not limit.shadow else 0.0
        if limit.record is not None:
            if delay:  # recorded by `admit`, when it is known whether the request may wait
                self._unrecorded.append(result)
            else:
                limit.record(key, decision)
        if not decision.allowed:
            if limit.shadow:
                would_refuse(self._request, result.refusal())
            elif self.refused is None:
                self.refused = result
            return
        if limit.holds_slot and (decision.token or not decision.failed):
            cost = 1 if decision.token else self.cost_of(limit)
            self._slots.append(HeldSlot(limit.limiter, key, decision.token, cost))
        if delay:
            self.delay = max(self.delay, delay)
            if limit.queues and (self.queued is None or delay > self.queued.decision.delay):
                self.queued = result

    def admit(self) -> None:
        """Record that the request may wait for its delay, or does not need to wait."""
        unrecorded, self._unrecorded = self._unrecorded, []
        for limit, key, decision in unrecorded:
            if limit.record is not None:
                limit.record(key, decision)

    def reject_queued(self) -> None:
        """Refuse the request because the queue of a limit is full, and undo its decisions."""
        self.release()
        run(self._uncommitting())
        self._refuse_queued()

    async def areject_queued(self) -> None:
        """Run `reject_queued` without blocking, to completion even if the task is cancelled."""
        await self.arelease()
        await asyncio.shield(asyncio.ensure_future(arun(self._uncommitting())))
        self._refuse_queued()

    def _uncommitting(self) -> Steps[None]:
        """Undo the decisions of all limits except concurrency limits, whose slots are released."""
        for limit, key, decision in self.results:
            if decision.allowed and not (limit.shadow or limit.holds_slot or decision.failed):
                with contextlib.suppress(LimitError):
                    yield Step(limit.limiter.uncommit, limit.limiter.auncommit, (key, self.cost_of(limit)))

    def _refuse_queued(self) -> None:
        assert self.queued is not None  # noqa: S101 (for the type checker)
        limit, key, decision = self.queued
        refused = decision._replace(allowed=False, delay=0.0, state=None, remaining=0, retry_after=decision.delay)
        self._unrecorded = []
        self.results = [result for result in self.results if result.limit.shadow]
        self.add(limit, key, refused)

    def start_timing(self) -> None:
        """Measure latencies from now on, after the delay."""
        for slot in self._slots:
            slot.start_timing()

    def release(self) -> None:
        """Release all slots."""
        slots, self._slots = self._slots, []
        for slot in slots:
            slot.release()

    async def arelease(self) -> None:
        """Run `release` without blocking, to completion even if the task is cancelled."""
        slots, self._slots = self._slots, []
        if slots:
            await asyncio.shield(asyncio.ensure_future(_release_all(slots)))

    @property
    def holds_slots(self) -> bool:
        """Whether the request holds slots."""
        return bool(self._slots)

    def finish(self, response: HttpResponseBase) -> HttpResponseBase:
        """Set the header fields, and release the slots: now, or when a streamed response is closed."""
        if self._slots:
            self.release_after(response)
        self.set_headers(response.headers)
        return response

    async def afinish(self, response: HttpResponseBase) -> HttpResponseBase:
        """Run `finish` without blocking the event loop."""
        if self._slots and not self._release_on_close(response):
            await self.arelease()
        self.set_headers(response.headers)
        return response

    def release_after(self, response: HttpResponseBase) -> None:
        """Release the slots now, or when a streamed response is closed."""
        if not self._release_on_close(response):
            self.release()

    def _release_on_close(self, response: HttpResponseBase) -> bool:
        """Release the slots when the response is closed. Return False if its content is already complete."""
        if not response.streaming and getattr(response, "is_rendered", True):
            return False
        slots, self._slots = self._slots, []
        response._resource_closers.extend(slot.release for slot in slots)  # type: ignore[attr-defined]
        return True

    def set_headers(self, headers: Any) -> None:
        """Set the header fields of all decisions in the `headers` of a response."""
        if request_settings().headers:
            for limit, _, decision in self.results:
                if not (limit.shadow or decision.failed):
                    add_headers(headers, limit.advertised, decision)

    def refuse(self) -> HttpResponseBase:
        """Return the response to a refused request."""
        refusal = self._refusal()
        announce(self._request, refusal)
        return self.finish(response_to(self._request, refusal))

    async def arefuse(self) -> HttpResponseBase:
        """Run `refuse` without blocking the event loop."""
        refusal = self._refusal()
        await aannounce(self._request, refusal)
        return await self.afinish(response_to(self._request, refusal))

    def announce(self) -> None:
        """Log the refusal and send the signal."""
        announce(self._request, self._refusal())

    def _refusal(self) -> Refusal:
        assert self.refused is not None  # noqa: S101 (for the type checker)
        return self.refused.refusal()


async def _release_all(slots: Sequence[HeldSlot]) -> None:
    for slot in slots:
        await slot.arelease()
