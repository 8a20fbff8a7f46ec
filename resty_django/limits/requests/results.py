"""The results of limits for a request: `request.limits`, and the slots that it holds."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, NamedTuple

from resty_django.sansio import Step, Steps, arun, run
from resty_django.text import logger

from ..decision import Decision
from ..errors import LimitError, NotFound
from ..limiters.concurrency import Concurrency
from .request_limit import RequestLimit

log = logger("resty_django.limits")


class LimitResult(NamedTuple):
    """The decision of one limit for a request."""

    limit: RequestLimit
    key: str
    decision: Decision


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


def limits_of(request: Any) -> RequestLimits:
    """Return `request.limits`."""
    if not isinstance(getattr(request, "limits", None), RequestLimits):
        request.limits = RequestLimits()
    limits: RequestLimits = request.limits
    return limits
