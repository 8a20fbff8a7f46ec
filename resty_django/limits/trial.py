"""What a policy would say of a row of requests, on a clock of its own and in a memory of its own: nothing is stored."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final, NamedTuple

from .decision import Decision
from .limiters import Concurrency
from .spec import PolicySpec, build
from .stores.local import LocalStore

MOST: Final = 200
"""Requests of one trial."""
_START: Final = 1_000_000_000_000
"""Milliseconds."""


class Step(NamedTuple):
    """One request: seconds since the first one, what was decided, and how many run with it (concurrency, else None)."""

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
    """Seconds that pass only when told; in the middle of a millisecond, so that no rounding matters."""

    def __init__(self) -> None:
        self.milliseconds = 0

    def __call__(self) -> float:
        return (_START + self.milliseconds + 0.5) / 1000


def run(spec: PolicySpec, arrivals: int, interval: float, lasts: float = 0.0, key: str = "key") -> Iterator[Step]:
    """Requests of one key, `interval` seconds apart, at most `MOST`; each lasts `lasts` seconds after its delay.

    Raises `BadPolicy` where the policy cannot be used.
    """
    clock = _Clock()
    limiter = build(spec, store=LocalStore(clock=clock), clock=clock)
    under_way: list[tuple[int, int, str]] = []
    for number in range(1, min(arrivals, MOST) + 1):
        now = round((number - 1) * interval * 1000)
        while under_way and under_way[0][0] <= now:
            clock.milliseconds, _, token = heapq.heappop(under_way)
            if isinstance(limiter, Concurrency):
                limiter.leaving(key, lasts, token)
        clock.milliseconds = now
        decision = limiter.hit(key, spec.cost)
        running = None
        if isinstance(limiter, Concurrency):
            if decision.allowed:
                end = now + round((decision.delay + lasts) * 1000)
                heapq.heappush(under_way, (end, number, decision.token))
            running = sum(1 for _ in under_way) * spec.cost
        yield Step(number, now / 1000, decision, running)


__all__ = ["MOST", "Step", "run"]
