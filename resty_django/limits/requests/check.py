"""The check of a request against its limits: waiting, the view, and the header fields of its response.

The `burst` of a limit limits the number of waiting requests of a key, and a client that forges its key has any number
of keys. So at most MAX_WAITING requests, sync and async together, wait at the same time; further ones are refused, and
no limit counts them.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from math import ceil, inf
from types import SimpleNamespace
from typing import Any, Final, cast

from django.http import HttpResponseBase

from resty_django.callables import plain_value
from resty_django.sansio import Step, Steps, arun, run

from ..callers import request_settings
from ..callers.request_settings import DRAFT, LEGACY
from ..decision import Decision
from ..errors import LimitError
from ..limiters.waiting import WaitingCounter
from ..overrides.current import current
from ..refusals import Refusal, aannounce, announce, would_refuse
from .headers import LARGEST, AdvertisedLimit
from .request_limit import SHORTEST_SLEEP, RequestLimit
from .response import response_to
from .results import HeldSlot, LimitResult, limits_of

_new_tuple = tuple.__new__

waiting_requests: Final = WaitingCounter("requests", "MAX_WAITING", lambda: request_settings.current.max_waiting)


class LimitCheck:
    """The check of a request against its limits.

    `delay`: seconds to sleep before the view. `results`: the decisions. `refused`: the first refusal, or None.
    `banned`: whether it is due to a ban or a block. `queued`: the longest wait among the limits to which MAX_WAITING
    applies, or None.
    """

    __slots__ = (
        "_costs",
        "_counted_later",
        "_slots",
        "_unrecorded",
        "banned",
        "delay",
        "queued",
        "refused",
        "request",
        "results",
    )

    def __init__(self, request: Any) -> None:
        self.request = request
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
            self._costs[limit] = plain_value(limit.cost(self.request), "cost of a limit")
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
            limits_of(self.request).add(result, self.cost_of(limit))
        if limit.count_when is not None and decision.allowed and not decision.failed:
            self._counted_later = [*self._counted_later, result]
        if limit.record is not None:
            if delay:  # recorded by `admit`, when it is known whether the request may wait
                self._unrecorded = [*self._unrecorded, result]
            else:
                limit.record(key, decision, request=self.request)
        if not decision.allowed:
            if limit.shadow:
                would_refuse(self.request, _refusal(result))
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
            longer = refused._replace(decision=refused.decision.replace(retry_after=retry_after))
            self.refused = longer
            self.results = [longer if result is refused else result for result in self.results]

    def admit(self) -> None:
        """Record that the request may wait for its delay, or does not need to wait."""
        unrecorded, self._unrecorded = self._unrecorded, ()
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
        queues = self.queued is not None and seconds >= SHORTEST_SLEEP
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
            if seconds >= SHORTEST_SLEEP:
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
                and decision.delay > request_settings.current.max_wait
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
        self._unrecorded = ()
        self._counted_later = [result for result in self._counted_later if result.limit.advises]
        self.results = [result for result in self.results if result.limit.advises]
        self.add(limit, key, refused)

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
            if not limit.block and limits_of(self.request).was_refunded(result):
                continue
            counts = limit.count_when is not None and response is not None and limit.count_when(response)
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


def _refusal(result: LimitResult | None, results: Iterable[LimitResult] = (), banned: bool = False) -> Refusal:
    """Return the refusal by the limit of a result. `results`: of all limits. `banned`: as in `Refusal`."""
    assert result is not None  # noqa: S101 (for the type checker)
    violated: dict[str, None] = {}
    for limit, _, decision in results:
        if not (decision.allowed or limit.advises):
            violated[limit.label] = None
    limit, key, decision = result
    return Refusal(limit.name, limit.label, type(limit.limiter), key, decision, limit.status, tuple(violated), banned)


async def _release_all(slots: Sequence[HeldSlot]) -> None:
    for slot in slots:
        await slot.arelease()


def add_headers(headers: Any, advertised: AdvertisedLimit, decision: Decision, fields: int = DRAFT | LEGACY) -> None:
    """Add a limit to the `headers` of a response. `fields`: flags of the fields, see `SELECTIONS`.

    Write to the private mapping of Django's `ResponseHeaders`: the public method checks each value and takes longer
    than the decision. These values are ASCII without line breaks.
    """
    allowed, _, _, total, quota_left, seconds, wait, _, _ = decision
    if not allowed:  # no request of this cost passes before `retry_after`, if ever
        quota_left, seconds = 0, wait if wait < inf else seconds
    remaining = str(quota_left if quota_left < LARGEST else LARGEST)
    reset = str(ceil(seconds))
    store = getattr(headers, "_store", None)
    if store is None:  # not Django's mapping
        copy = SimpleNamespace(_store={name.lower(): (name, value) for name, value in headers.items()})
        add_headers(copy, advertised, decision, fields)
        headers.update(copy._store.values())
        return
    if fields & DRAFT:
        if advertised.config is not advertised.limiter.config:
            advertised.refresh()
        item = f"{advertised.name};r={remaining};t={reset}"
        policy = advertised.policy
        if "ratelimit" in store:
            item = f"{item}, {store['ratelimit'][1]}"
        if "ratelimit-policy" in store:
            policy = f"{policy}, {store['ratelimit-policy'][1]}"
        store["ratelimit"] = ("RateLimit", item)
        store["ratelimit-policy"] = ("RateLimit-Policy", policy)
    if not fields & LEGACY or ("x-ratelimit-remaining" in store and not _tighter(quota_left, int(reset), store)):
        return
    store["x-ratelimit-limit"] = ("X-RateLimit-Limit", str(total))
    store["x-ratelimit-remaining"] = ("X-RateLimit-Remaining", remaining)
    store["x-ratelimit-reset"] = ("X-RateLimit-Reset", reset)


def _tighter(remaining: int, reset: int, store: Mapping[str, tuple[str, str]]) -> bool:
    """Return whether this limit is tighter than the reported one: fewer remaining, or as few for longer."""
    try:
        tightest = int(store["x-ratelimit-remaining"][1]), -int(store["x-ratelimit-reset"][1])
    except (KeyError, ValueError):
        return True
    return (remaining, -reset) < tightest


def fast_path(
    check_of: Callable[[Any, Mapping[str, Any]], LimitCheck | None],
    limit: RequestLimit,
    view: Callable[..., Any],
    longest: float | None,
) -> Callable[..., Any]:
    """Return the decorated view for one limit that applies to all requests and usually lets them pass at once."""
    key_of, hit, advertised, nodelay = limit.key.of, limit.limiter.hit, limit.advertised, limit.nodelay
    record, series, roles = limit.record, limit.series, limit.key.roles

    def wrapped(*args: Any, **kwargs: Any) -> HttpResponseBase:
        request = args[0] if hasattr(args[0], "META") else args[1]
        settings = request_settings.current
        if settings.exempt is not None:
            return call(check_of, view, args, kwargs, longest)
        key = key_of(request, kwargs)
        if key is None:
            return view(*args, **kwargs)  # type: ignore[no-any-return]
        active = current.active
        if active is not None and active.applies(series, key, roles):
            return call(check_of, view, args, kwargs, longest)
        decision = hit(key)
        may_sleep = not nodelay and (settings.max_delay if longest is None else longest)
        if decision.allowed and not decision.failed and (not may_sleep or decision.delay < SHORTEST_SLEEP):
            if record is not None:
                record(key, decision)
            response: HttpResponseBase = view(*args, **kwargs)
            if settings.headers and response is not None:  # None is a mistake that Django explains
                add_headers(response.headers, advertised, decision, settings.headers)
            return response
        check = LimitCheck(request)
        check.add(limit, key, decision)
        return _respond(check, view, args, kwargs, longest)

    return wrapped


def call(
    check_of: Callable[[Any, Mapping[str, Any]], LimitCheck | None],
    view: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    longest: float | None,
) -> HttpResponseBase:
    """Return the response of the view, or the refusal."""
    check = check_of(_request(args), kwargs)
    if check is None:
        return view(*args, **kwargs)  # type: ignore[no-any-return]
    return _respond(check, view, args, kwargs, longest)


def _respond(
    check: LimitCheck, view: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], longest: float | None
) -> HttpResponseBase:
    if check.refused is not None:
        return check.refuse()
    try:
        if check.delay and not check.wait_turn(request_settings.current.max_delay if longest is None else longest):
            return check.refuse()
        response = view(*args, **kwargs)
    except BaseException:
        check.abandon()
        raise
    return check.finish(response)


async def acall(
    check_of: Callable[[Any, Mapping[str, Any]], Awaitable[LimitCheck | None]],
    view: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    longest: float | None,
) -> HttpResponseBase:
    """Return the response of an async view, or the refusal."""
    check = await check_of(_request(args), kwargs)
    if check is None:
        return await _awaited(view(*args, **kwargs))
    if check.refused is not None:
        return await check.arefuse()
    try:
        if check.delay and not await check.await_turn(inf if longest is None else longest):
            return await check.arefuse()
        response = await _awaited(view(*args, **kwargs))
    except BaseException:
        await check.aabandon()
        raise
    return await check.afinish(response)


def _request(args: tuple[Any, ...]) -> Any:
    """Return the request from the arguments of a view: the first, or for a method the second."""
    return args[0] if hasattr(args[0], "META") else args[1]


async def _awaited(response: Any) -> HttpResponseBase:
    """Await a response if necessary: `dispatch` of an async class-based view is a plain function."""
    return cast("HttpResponseBase", await response if inspect.isawaitable(response) else response)
