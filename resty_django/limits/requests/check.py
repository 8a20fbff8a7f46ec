"""The check of a request against its limits: what they decided, and what that means for the request and its response.

A limit's `burst` bounds the number of waiting requests of one key only, and a client that forges its key has any number
of keys. So at most MAX_WAITING requests, sync and async together, wait at the same time. Further ones are refused, and
no limit counts them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Sequence
from typing import Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase, ResponseHeaders

from resty_django.callables import plain_value
from resty_django.sansio import Step, Steps, arun, run

from ..callers import request_settings
from ..decision import Decision
from ..errors import LimitError
from ..limiters.waiting import WaitingCounter
from ..refusals import Refusal, aannounce, announce, would_refuse
from .headers import add_headers
from .request_limit import MIN_SLEEP_SECONDS, RequestLimit
from .response import response_to
from .results import HeldSlot, LimitResult, limits_of

waiting_requests: Final = WaitingCounter("requests", "MAX_WAITING", lambda: request_settings.current().max_waiting)


class LimitCheck:
    """The check of a request against its limits."""

    delay = 0.0
    """Seconds to sleep before the view."""
    refused: LimitResult | None = None
    """The first refusal."""
    banned = False
    """Whether the refusal is due to a ban or a block."""
    queued: LimitResult | None = None
    """The longest wait among the limits to which MAX_WAITING applies."""

    def __init__(self, request: HttpRequest) -> None:
        self.request = request
        self.results: list[LimitResult] = []
        """The decisions."""
        self._slots: list[HeldSlot] = []
        self._unrecorded: list[LimitResult] = []
        self._counted_later: list[LimitResult] = []
        self._costs: dict[RequestLimit, int] = {}

    def cost_of(self, limit: RequestLimit) -> int:
        """Return the cost of the request for the limit. A cost function is called once."""
        cost = limit.options.cost
        if isinstance(cost, int):
            return cost
        if limit not in self._costs:
            self._costs[limit] = plain_value(cost(self.request), "cost of a limit")
        return self._costs[limit]

    def add(self, limit: RequestLimit, key: str, decision: Decision) -> None:
        """Add the decision of a limit."""
        result = LimitResult(limit, key, decision)
        self.results.append(result)
        if limit.passes_at_once(decision):
            if limit.record is not None:
                limit.record(key, decision)
            return
        options = limit.options
        waits = decision.delay >= MIN_SLEEP_SECONDS or limit.obeys_max_wait
        delay = limit.delay_of(decision) if waits and not limit.advises else 0.0
        if not options.block:
            limits_of(self.request).add(result, self.cost_of(limit))
        if options.count_when is not None and decision.allowed and not decision.failed:
            self._counted_later.append(result)
        if limit.record is not None:
            if delay:  # recorded by `admit`, when it is known whether the request may wait
                self._unrecorded.append(result)
            else:
                limit.record(key, decision, request=self.request)
        if not decision.allowed:
            if options.shadow:
                would_refuse(self.request, _refusal(result))
            elif options.block and self.refused is None:
                self.refused = result
            return
        if limit.holds_slot and (decision.token or not decision.failed):
            cost = 1 if decision.token else self.cost_of(limit)
            self._slots.append(HeldSlot(limit.limiter, key, decision.token, cost))
        if delay:
            self.delay = max(self.delay, delay)
            if limit.queues and (self.queued is None or delay > self.queued.decision.delay):
                self.queued = result

    def extend_refusal(self, retry_after: float) -> None:
        """Report a longer time after a refusal, because it caused a ban."""
        refused = self.refused
        if refused is not None and refused.decision.retry_after < retry_after:
            longer = refused._replace(decision=refused.decision.replace(retry_after=retry_after))
            self.refused = longer
            self.results = [longer if result is refused else result for result in self.results]

    def admit(self) -> None:
        """Record that the request may wait for its delay, or does not need to wait."""
        unrecorded, self._unrecorded = self._unrecorded, []
        for limit, key, decision in unrecorded:
            if limit.record is not None:
                limit.record(key, decision)

    def wait_turn(self, longest: float) -> bool:
        """Sleep for the delay of the request, at most `longest` seconds. Return False if it is refused instead."""
        return run(self._waiting(longest))

    async def await_turn(self, longest: float) -> bool:
        """Run `wait_turn` without blocking the event loop."""
        return await arun(self._waiting(longest))

    def _waiting(self, longest: float) -> Steps[bool]:
        seconds = min(self.delay, longest)
        queues = self.queued is not None and seconds >= MIN_SLEEP_SECONDS
        with waiting_requests.wait() as wait:
            refused = self._too_long()
            if refused is None and queues and not wait.enter():
                refused = self.queued
            if refused is not None:
                for slot in self._slots:
                    slot.discard_timing()
                yield Step(self._undo, self._aundo)
                self._refuse_queued(refused)
                return False
            self.admit()
            if seconds >= MIN_SLEEP_SECONDS:
                yield Step(time.sleep, asyncio.sleep, (seconds,))
                for slot in self._slots:  # the latency of the request does not include the delay
                    slot.start_timing()
            return True

    def _too_long(self) -> LimitResult | None:
        """Return the result of a limit for which the request would wait longer than MAX_WAIT, or None."""
        for result in self.results:
            limit, _, decision = result
            if (
                limit.obeys_max_wait
                and not limit.advises
                and limit.delay_of(decision)
                and decision.delay > request_settings.current().max_wait
            ):
                return result
        return None

    def _undo(self) -> None:
        """Undo the decisions of all limits."""
        self.release()
        run(self._uncommitting())

    async def _aundo(self) -> None:
        """Run `_undo` without blocking, to completion even if the task is cancelled."""
        await self.arelease()
        await asyncio.shield(asyncio.ensure_future(arun(self._uncommitting())))

    def _uncommitting(self) -> Steps[None]:
        """Undo the decisions of all limits except concurrency limits, whose slots are released."""
        for limit, key, decision in self.results:
            if decision.allowed and not (limit.advises or limit.holds_slot or decision.failed):
                with contextlib.suppress(LimitError):
                    yield Step(limit.limiter.uncommit, limit.limiter.auncommit, (key, self.cost_of(limit)))

    def _refuse_queued(self, queued: LimitResult) -> None:
        """Refuse the request because it may not wait for the limit of this result."""
        limit, key, decision = queued
        refused = decision.replace(allowed=False, delay=0.0, state=None, remaining=0, retry_after=decision.delay)
        self._unrecorded = []
        self._counted_later = [result for result in self._counted_later if result.limit.advises]
        self.results = [result for result in self.results if result.limit.advises]
        self.add(limit, key, refused)

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

    def _giving_back(self, response: HttpResponseBase | None) -> Steps[None]:
        """Undo the decisions of limits for which the response does not count (None: the view raised)."""
        counted_later, self._counted_later = self._counted_later, []
        for result in counted_later:
            limit, key, decision = result
            options = limit.options
            if not options.block and limits_of(self.request).was_refunded(result):
                continue
            counts = options.count_when is not None and response is not None and options.count_when(response)
            if plain_value(counts, "count_when of a limit"):
                continue
            cost = self.cost_of(limit)
            with contextlib.suppress(LimitError):
                yield Step(limit.limiter.uncommit, limit.limiter.auncommit, (key, cost))
                regained = decision.replace(remaining=decision.remaining + cost)
                self.results = [
                    LimitResult(limit, key, regained) if other is result else other for other in self.results
                ]

    def finish(self, response: HttpResponseBase) -> HttpResponseBase:
        """Set the header fields, and release the slots: now, or when a streamed response is closed."""
        if self._slots:
            self.release_after(response)
        if self._counted_later:
            run(self._giving_back(response))
        report(response.headers, self.results)
        return response

    async def afinish(self, response: HttpResponseBase) -> HttpResponseBase:
        """Run `finish` without blocking the event loop."""
        if self._slots and not self._release_on_close(response):
            await self.arelease()
        if self._counted_later:
            await asyncio.shield(asyncio.ensure_future(arun(self._giving_back(response))))
        report(response.headers, self.results)
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

    def refuse(self) -> HttpResponseBase:
        """Return the response to a refused request."""
        return self.finish(response_to(self.request, self.announce()))

    async def arefuse(self) -> HttpResponseBase:
        """Run `refuse` without blocking the event loop."""
        refusal = _refusal(self.refused, self.results, self.banned)
        await aannounce(self.request, refusal)
        return await self.afinish(response_to(self.request, refusal))

    def announce(self) -> Refusal:
        """Log the refusal, send the signal, and return the refusal."""
        refusal = _refusal(self.refused, self.results, self.banned)
        announce(self.request, refusal)
        return refusal


def report(headers: ResponseHeaders, results: Iterable[LimitResult]) -> None:
    """Report decisions in the header fields of a response."""
    fields = request_settings.current().headers
    if fields:
        for limit, _, decision in results:
            if not (limit.options.shadow or decision.failed):
                add_headers(headers, limit.advertised, decision, fields)


def _refusal(result: LimitResult | None, results: Iterable[LimitResult] = (), banned: bool = False) -> Refusal:
    """Return the refusal by the limit of a result. `results`: of all limits. `banned`: as in `Refusal`."""
    assert result is not None  # noqa: S101 (for the type checker)
    violated: dict[str, None] = {}
    for limit, _, decision in results:
        if not (decision.allowed or limit.advises):
            violated[limit.label] = None
    limit = result.limit
    return Refusal(
        name=limit.name,
        label=limit.label,
        sender=type(limit.limiter),
        key=result.key,
        decision=result.decision,
        status=limit.options.status,
        violated=tuple(violated),
        banned=banned,
    )


async def _release_all(slots: Sequence[HeldSlot]) -> None:
    for slot in slots:
        await slot.arelease()
