"""Simulation of a policy with a series of requests, a separate clock and a temporary store."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final, NamedTuple

from ..decision import Decision
from ..limiters.combined import together
from ..limiters.concurrency import Concurrency
from ..specs.policy import PolicySpec, build, rate_specs, state_prefix
from ..stores.local import LocalStore

MAX_REQUESTS: Final = 200
"""The maximum number of requests in a simulation."""


class SimulatedRequest(NamedTuple):
    """One request: seconds since the first one, the decision, and the number in progress (concurrency, else None)."""

    number: int
    at: float
    decision: Decision
    running: int | None

    @property
    def outcome(self) -> str:
        if not self.decision.allowed:
            return "refused"
        return "delayed" if self.decision.delay >= 0.001 else "passed"


class _Clock:
    """A manual clock. Its time since the start is in the middle of a millisecond, so that rounding does not matter."""

    def __init__(self) -> None:
        self.milliseconds = 0

    def __call__(self) -> float:
        return (1e12 + self.milliseconds + 0.5) / 1000


def run(spec: PolicySpec, arrivals: int, interval: float, lasts: float = 0.0) -> Iterator[SimulatedRequest]:
    """Simulate up to `MAX_REQUESTS` requests of one key.

    `interval`: the seconds between two requests. `lasts`: the seconds for which each runs after its delay. The policy's
    own rates decide together; its tiers are ignored. Raise `BadPolicy` if the policy is not valid.
    """
    clock = _Clock()
    store = LocalStore(clock=clock)
    limiter = together(
        [
            build(rate_spec, store=store, clock=clock, prefix=state_prefix(rate_spec, "", position))
            for position, rate_spec in enumerate(rate_specs(spec))
        ]
    )
    under_way: list[tuple[int, int, str]] = []
    for number in range(1, min(arrivals, MAX_REQUESTS) + 1):
        now = round((number - 1) * interval * 1000)
        while under_way and under_way[0][0] <= now:
            clock.milliseconds, _, token = heapq.heappop(under_way)
            if isinstance(limiter, Concurrency):
                limiter.leaving("key", lasts, token)
        clock.milliseconds = now
        decision = limiter.hit("key", spec.cost)
        running = None
        if isinstance(limiter, Concurrency):
            if decision.allowed:
                end = now + round((decision.delay + lasts) * 1000)
                heapq.heappush(under_way, (end, number, decision.token))
            running = sum(1 for _ in under_way) * spec.cost
        yield SimulatedRequest(number, now / 1000, decision, running)
