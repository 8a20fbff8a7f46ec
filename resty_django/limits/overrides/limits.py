"""Limits with the rates of overrides."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from resty_django.text import logger

from ..decision import CombinedDecision
from ..limiters.base import Limiter
from ..limiters.concurrency import Concurrency
from ..specs.rates import CountsUnits, limiter_with_rate
from ..statistics.counting import DecisionCounter
from .current import current, now

log = logger("resty_django.limits")


@functools.lru_cache(1024)
def overridden_limiter(limiter: Limiter, rate: str) -> Limiter:
    """Return a limiter with another rate, or `limiter` itself if it cannot have this rate."""
    try:
        return limiter_with_rate(limiter, rate)
    except (ValueError, TypeError) as error:
        if not isinstance(limiter, Concurrency | CountsUnits):  # which a rate for all limits leaves out
            log.error("The override %r does not apply to %s: %s", rate, limiter.name or limiter.prefix, error)
        return limiter


class OverriddenCalls(NamedTuple):
    """The limiters of a call with the rates of overrides, and their counters. `blocked`: the refusal, or None."""

    limiters: list[Limiter]
    counters: list[DecisionCounter]
    blocked: CombinedDecision | None = None


def overridden_calls(limiters: Sequence[Limiter], counters: Sequence[DecisionCounter], key: str) -> OverriddenCalls:
    """Return what decides on a call with this key: all limiters for which there is no override "none"."""
    calls = OverriddenCalls([], [])
    for position, (limiter, counter) in enumerate(zip(limiters, counters, strict=True)):
        override = current.find(counter.series, key, counter.roles)
        if override is not None and override.blocks:
            decision = override.refusal(limiter.shown_limit, now())
            decisions = [None] * position + [decision]
            refusal = CombinedDecision(
                allowed=False,
                limit=decision.limit,
                retry_after=decision.retry_after,
                refused_by=position,
                decisions=(*decisions, *[None] * (len(limiters) - position - 1)),
            )
            return calls._replace(blocked=refusal)
        if override is None or not override.lifts:
            calls.limiters.append(limiter if override is None else overridden_limiter(limiter, override.rate))
            calls.counters.append(counter)
    return calls
