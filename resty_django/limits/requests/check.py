"""The check of a request against its limits, and its results."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from django.http import HttpResponseBase

from resty_django.callables import plain_value
from resty_django.sansio import Step, Steps, arun, run
from resty_django.text import logger

from ..callers import request_settings
from ..decision import Decision
from ..errors import LimitError, NotFound
from ..limiters.concurrency import Concurrency
from ..refusals import Refusal, aannounce, announce, would_refuse
from .headers import add_headers
from .request_limit import SHORTEST_SLEEP, RequestLimit
from .response import response_to

log = logger("resty_django.limits")

_new_tuple = tuple.__new__


class LimitResult(NamedTuple):
    """The decision of one limit for a request."""

    limit: RequestLimit
    key: str
    decision: Decision

    def refusal(self, results: Iterable[LimitResult] = (), banned: bool = False) -> Refusal:
        """Return the refusal by this limit. `results`: of all limits. `banned`: as in `Refusal`."""
        violated: dict[str, None] = {}
        for limit, _, decision in results:
            if not (decision.allowed or limit.advises):
                violated[limit.label] = None
        limit, key, decision = self
        sender = type(limit.limiter)
        return Refusal(limit.name, limit.label, sender, key, decision, limit.status, tuple(violated), banned)


class RequestLimits(list[LimitResult]):
    """`request.limits`: the results of limits with `block=False`, in the order of their decisions."""

    def __init__(self) -> None:
        super().__init__()
        self._costs: list[int] = []
        self._refunded = 0
        """The number of results that a refund has processed."""

    def add(self, result: LimitResult, cost: int) -> None:
        """Add the result of a limit for which the request counts as `cost` requests."""
        self.append(result)
        self._costs.append(cost)

    def was_refunded(self, result: LimitResult) -> bool:
        """Return whether the request no longer counts for the limit of this result."""
        return any(refunded is result for refunded in self[: self._refunded])

    def refund(self) -> None:
        """Undo the recording of the request by these limits. A second call changes nothing.

        Limits that the request exceeds have not recorded it, and a concurrency limit holds its slot until the end.
        Raise `StoreFailed` if the store is down and the limiter's `on_error` is "raise".
        """
        run(self._refunding())

    async def arefund(self) -> None:
        """Run `refund` without blocking the event loop."""
        await arun(self._refunding())

    def _refunding(self) -> Steps[None]:
        start, self._refunded = self._refunded, len(self)
        for (limit, key, decision), cost in zip(self[start:], self._costs[start:], strict=True):
            if decision.allowed and not (limit.holds_slot or decision.failed):
                with contextlib.suppress(NotFound):  # the state has expired or was evicted
                    yield Step(limit.limiter.uncommit, limit.limiter.auncommit, (key, cost))

    @property
    def exceeded(self) -> bool:
        """Whether the request is over one of these limits."""
        return any(not result.decision.allowed for result in self)

    @property
    def retry_after(self) -> float:
        """The seconds until all of these limits would let the request pass; 0 if they do."""
        return max((result.decision.retry_after for result in self if not result.decision.allowed), default=0.0)


class HeldSlot:
    """A slot of a concurrency limiter, released only once.

    It is also released when it is garbage-collected, for example if a response is discarded without being closed. A
    pickled copy, for example in a cache, does not hold the slot, nor does the copy in a forked child.
    """

    __slots__ = ("_cost", "_key", "_limiter", "_pid", "_started", "_token")

    def __init__(
        self,
        limiter: Concurrency | None = None,
        key: str = "",
        token: str = "",
        cost: int = 1,
    ) -> None:
        self._limiter = limiter
        self._key = key
        self._token = token
        self._cost = cost
        self._pid = os.getpid()
        self._started: float | None = time.monotonic()

    def __reduce__(self) -> tuple[type[HeldSlot], tuple[()]]:
        return HeldSlot, ()

    def start_timing(self) -> None:
        """Measure the latency of the request from now on."""
        self._started = time.monotonic()

    def discard_timing(self) -> None:
        """Report no latency, because the request does not run."""
        self._started = None

    def _latency(self) -> float | None:
        """Return the seconds for which the request ran; None if it did not run."""
        return None if self._started is None else time.monotonic() - self._started

    def release(self) -> None:
        """Release the slot, and report the latency of the request."""
        limiter, self._limiter = self._limiter, None
        if limiter is not None:
            try:
                limiter.leaving(self._key, self._latency(), self._token, self._cost)
            except LimitError as error:
                log.warning("A slot of %s could not be released: %s", self._key, error)

    async def arelease(self) -> None:
        """Run `release` without blocking the event loop."""
        limiter, self._limiter = self._limiter, None
        if limiter is not None:
            try:
                await limiter.aleaving(self._key, self._latency(), self._token, self._cost)
            except LimitError as error:
                log.warning("A slot of %s could not be released: %s", self._key, error)

    def __del__(self) -> None:
        if getattr(self, "_limiter", None) is not None and self._pid == os.getpid():
            with contextlib.suppress(Exception):  # the process may be shutting down
                self.release()


class LimitCheck:
    """The check of a request against its limits.

    `delay`: seconds to sleep before the view. `results`: the decisions. `refused`: the first refusal, or None.
    `banned`: whether it is due to a ban or a block. `queued`: the longest wait among the limits to which MAX_WAITING
    applies, or None.
    """

    __slots__ = (
        "_costs",
        "_counted_later",
        "_request",
        "_slots",
        "_unrecorded",
        "banned",
        "delay",
        "queued",
        "refused",
        "results",
    )

    def __init__(self, request: Any) -> None:
        self._request = request
        self._slots: Sequence[HeldSlot] = ()
        self.results: list[LimitResult] = []
        self.refused: LimitResult | None = None
        self.queued: LimitResult | None = None
        self._unrecorded: Sequence[LimitResult] = ()
        self._counted_later: Sequence[LimitResult] = ()
        self._costs: dict[RequestLimit, int] | None = None
        self.delay = 0.0
        self.banned = False

    def cost_of(self, limit: RequestLimit) -> int:
        """Return the cost of the request for the limit. A cost function is called once."""
        if isinstance(limit.cost, int):
            return limit.cost
        if self._costs is None:
            self._costs = {}
        if limit not in self._costs:
            self._costs[limit] = plain_value(limit.cost(self._request), "cost of a limit")
        return self._costs[limit]

    def add(self, limit: RequestLimit, key: str, decision: Decision) -> None:
        """Add the decision of a limit."""
        result = _new_tuple(LimitResult, (limit, key, decision))
        self.results.append(result)
        waits = decision.delay and (decision.delay >= SHORTEST_SLEEP or limit.obeys_max_wait)
        if decision.allowed and not (waits or limit.acts_on_passes):
            if limit.record is not None:
                limit.record(key, decision)
            return
        delay = limit.delay_of(decision) if waits and not limit.advises else 0.0
        if not limit.block:
            _limits_of(self._request).add(result, self.cost_of(limit))
        if limit.count_when is not None and decision.allowed and not decision.failed:
            self._counted_later = [*self._counted_later, result]
        if limit.record is not None:
            if delay:  # recorded by `admit`, when it is known whether the request may wait
                self._unrecorded = [*self._unrecorded, result]
            else:
                limit.record(key, decision)
        if not decision.allowed:
            if limit.shadow:
                would_refuse(self._request, result.refusal())
            elif limit.block and self.refused is None:
                self.refused = result
            return
        if limit.holds_slot and (decision.token or not decision.failed):
            cost = 1 if decision.token else self.cost_of(limit)
            self._slots = [*self._slots, HeldSlot(limit.limiter, key, decision.token, cost)]
        if delay:
            self.delay = max(self.delay, delay)
            if limit.queues and (self.queued is None or delay > self.queued.decision.delay):
                self.queued = result

    def extend_refusal(self, retry_after: float) -> None:
        """Report a longer time after a refusal, because it caused a ban."""
        refused = self.refused
        if refused is not None and refused.decision.retry_after < retry_after:
            longer = refused._replace(decision=refused.decision._replace(retry_after=retry_after))
            self.refused = longer
            self.results = [longer if result is refused else result for result in self.results]

    def admit(self) -> None:
        """Record that the request may wait for its delay, or does not need to wait."""
        unrecorded, self._unrecorded = self._unrecorded, ()
        for limit, key, decision in unrecorded:
            if limit.record is not None:
                limit.record(key, decision)

    def reject_queued(self, queued: LimitResult) -> None:
        """Refuse the request because it may not wait for the limit of this result, and undo its decisions."""
        self._discard_timing()
        self.release()
        run(self._uncommitting())
        self._refuse_queued(queued)

    async def areject_queued(self, queued: LimitResult) -> None:
        """Run `reject_queued` without blocking, to completion even if the task is cancelled."""
        self._discard_timing()
        await self.arelease()
        await asyncio.shield(asyncio.ensure_future(arun(self._uncommitting())))
        self._refuse_queued(queued)

    def _discard_timing(self) -> None:
        for slot in self._slots:
            slot.discard_timing()

    def _uncommitting(self) -> Steps[None]:
        """Undo the decisions of all limits except concurrency limits, whose slots are released."""
        for limit, key, decision in self.results:
            if decision.allowed and not (limit.advises or limit.holds_slot or decision.failed):
                with contextlib.suppress(LimitError):
                    yield Step(limit.limiter.uncommit, limit.limiter.auncommit, (key, self.cost_of(limit)))

    def _refuse_queued(self, queued: LimitResult) -> None:
        limit, key, decision = queued
        refused = decision._replace(allowed=False, delay=0.0, state=None, remaining=0, retry_after=decision.delay)
        self._unrecorded = ()
        self._counted_later = [result for result in self._counted_later if result.limit.advises]
        self.results = [result for result in self.results if result.limit.advises]
        self.add(limit, key, refused)

    def start_timing(self) -> None:
        """Measure latencies from now on, after the delay."""
        for slot in self._slots:
            slot.start_timing()

    def release(self) -> None:
        """Release all slots."""
        slots, self._slots = self._slots, ()
        for slot in slots:
            slot.release()

    async def arelease(self) -> None:
        """Run `release` without blocking, to completion even if the task is cancelled."""
        slots, self._slots = self._slots, ()
        if slots:
            await asyncio.shield(asyncio.ensure_future(_release_all(slots)))

    @property
    def holds_slots(self) -> bool:
        """Whether the request holds slots."""
        return bool(self._slots)

    def abandon(self) -> None:
        """Release all slots, and undo what counts only after certain responses, because the view raised."""
        self.release()
        if self._counted_later:
            run(self._giving_back(None))

    async def aabandon(self) -> None:
        """Run `abandon` without blocking, to completion even if the task is cancelled."""
        await self.arelease()
        if self._counted_later:
            await asyncio.shield(asyncio.ensure_future(arun(self._giving_back(None))))

    def _giving_back(self, response: Any) -> Steps[None]:
        """Undo the decisions of limits for which the response does not count (None: there is none)."""
        counted_later, self._counted_later = self._counted_later, ()
        for result in counted_later:
            limit, key, decision = result
            if not limit.block and _limits_of(self._request).was_refunded(result):
                continue
            counts = limit.count_when is not None and response is not None and limit.count_when(response)
            if plain_value(counts, "count_when of a limit"):
                continue
            cost = self.cost_of(limit)
            with contextlib.suppress(LimitError):
                yield Step(limit.limiter.uncommit, limit.limiter.auncommit, (key, cost))
                regained = decision._replace(remaining=decision.remaining + cost)
                self.results = [
                    LimitResult(limit, key, regained) if other is result else other for other in self.results
                ]

    def finish(self, response: HttpResponseBase) -> HttpResponseBase:
        """Set the header fields, and release the slots: now, or when a streamed response is closed."""
        if self._slots:
            self.release_after(response)
        if self._counted_later:
            run(self._giving_back(response))
        self.set_headers(response.headers)
        return response

    async def afinish(self, response: HttpResponseBase) -> HttpResponseBase:
        """Run `finish` without blocking the event loop."""
        if self._slots and not self._release_on_close(response):
            await self.arelease()
        if self._counted_later:
            await asyncio.shield(asyncio.ensure_future(arun(self._giving_back(response))))
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
        slots, self._slots = self._slots, ()
        response._resource_closers.extend(slot.release for slot in slots)  # type: ignore[attr-defined]
        return True

    def set_headers(self, headers: Any) -> None:
        """Set the header fields of all decisions in the `headers` of a response."""
        fields = request_settings.current.headers
        if fields:
            for limit, _, decision in self.results:
                if not (limit.shadow or decision.failed):
                    add_headers(headers, limit.advertised, decision, fields)

    def refuse(self) -> HttpResponseBase:
        """Return the response to a refused request."""
        assert self.refused is not None  # noqa: S101 (for the type checker)
        refusal = self.refused.refusal(self.results, self.banned)
        announce(self._request, refusal)
        return self.finish(response_to(self._request, refusal))

    async def arefuse(self) -> HttpResponseBase:
        """Run `refuse` without blocking the event loop."""
        assert self.refused is not None  # noqa: S101 (for the type checker)
        refusal = self.refused.refusal(self.results, self.banned)
        await aannounce(self._request, refusal)
        return await self.afinish(response_to(self._request, refusal))

    def announce(self) -> Refusal:
        """Log the refusal, send the signal, and return the refusal."""
        assert self.refused is not None  # noqa: S101 (for the type checker)
        refusal = self.refused.refusal(self.results, self.banned)
        announce(self._request, refusal)
        return refusal


def _limits_of(request: Any) -> RequestLimits:
    """Return `request.limits`."""
    if not isinstance(getattr(request, "limits", None), RequestLimits):
        request.limits = RequestLimits()
    limits: RequestLimits = request.limits
    return limits


async def _release_all(slots: Sequence[HeldSlot]) -> None:
    for slot in slots:
        await slot.arelease()
