"""Replay of recorded requests through a policy, with a separate clock and a temporary store.

It shows what a policy would have done in the last hour: each key begins without a state, and the clock shows the times
of the recording. Requests that would have been refused are not repeated later, as real clients might do.
"""

from __future__ import annotations

import contextlib
import functools
import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median_low
from typing import Any, Final, NamedTuple, TypeAlias

from django.utils import timezone

from ..algorithms.decision import Decision
from ..enforcement.keys import MISSING, plain
from ..errors import NotFound
from ..limiters.base import Limiter
from ..limiters.concurrency import Concurrency
from ..overrides.override_set import Override
from ..overrides.rates import limiter_with_rate
from ..statistics.events import DELAYED, REFUSED, SHADOWED, UNKNOWN, Request
from ..statistics.recorder import MOST_EVENTS, Recording, tier_and_key
from ..statistics.reporter import SHORTEST_DELAY
from ..stores.local import LocalStore
from .routes import Scope, View, views_by_route
from .spec import PolicySpec, build, rate_specs, tier_specs

MOST_KEYS: Final = 20
"""The maximum number of keys that a replay lists."""
VIEW: Final = "view"
"""The part of a key that follows from the route."""


class NotReplayable(ValueError):
    """Recorded requests cannot be replayed through a policy. The text says why, and what to do instead."""


@dataclass(slots=True)
class KeyReplay:
    """The requests of one key. `refused_then`: refused, or in shadow mode counted as refused, when they were made."""

    key: str
    requests: int = 0
    refused_then: int = 0
    refused: int = 0
    delayed: int = 0


@dataclass(frozen=True, slots=True)
class Replay:
    """The outcome of recorded requests with another policy.

    `released`: the requests to which the policy would no longer apply; `uncertain`: those to which it may no longer
    apply, because that depends on a part of the path that was not recorded. They count as limited.
    `keys`: those with the most refusals, at most `MOST_KEYS`; `key_count`: the number of all keys.
    `overridden`: the number of keys with an override. `share`: the share
    of the keys that were recorded. `first`, `last`: the times of the first and the last request. `assumed`: for
    concurrency, the milliseconds that are assumed for requests whose duration was not measured, if there are any.
    """

    requests: int
    released: int
    uncertain: int
    refused_then: int
    shadowed_then: int
    delayed_then: int
    refused: int
    delayed: int
    keys: list[KeyReplay]
    key_count: int
    overridden: int
    share: float
    first: datetime | None
    last: datetime | None
    assumed: int | None

    @property
    def limited(self) -> int:
        """The number of requests to which the policy would apply."""
        return self.requests - self.released


class _Clock:
    """The time of the current request, in the middle of a millisecond, so that rounding does not matter."""

    def __init__(self) -> None:
        self.milliseconds = 0

    def __call__(self) -> float:
        return (self.milliseconds + 0.5) / 1000


Limiters: TypeAlias = "Sequence[Limiter[Any]]"


class _Slot(NamedTuple):
    """A slot of a request in progress. `order`: makes slots with the same end comparable."""

    end: int
    order: int
    limiter: Concurrency
    key: str
    token: str
    cost: int
    duration: int


class _Run:
    """The requests of a replay in progress. `assumed`: the duration of requests that were not measured."""

    def __init__(self, clock: _Clock, assumed: int) -> None:
        self._clock = clock
        self._assumed = assumed
        self._slots: list[_Slot] = []
        self._order = itertools.count()

    def decide(self, limiters: Limiters | None, key: str, cost: int, request: Request) -> tuple[bool, float]:
        """Decide with limiters that must all let a request pass (None: all are refused). Return that, and the delay."""
        self._release_until(request.time)
        self._clock.milliseconds = request.time
        if limiters is None:
            return False, 0.0
        delay = 0.0
        for position, limiter in enumerate(limiters):
            decision = limiter.hit(key, cost)
            if not decision.allowed:
                for recorded in limiters[:position]:
                    recorded.uncommit(key, cost)
                return False, 0.0
            delay = max(delay, decision.delay)
            if isinstance(limiter, Concurrency):
                self._hold(limiter, key, cost, decision, request)
        return True, delay

    def _hold(self, limiter: Concurrency, key: str, cost: int, decision: Decision, request: Request) -> None:
        duration = request.duration if request.measured else self._assumed
        end = request.time + round(decision.delay * 1000) + duration
        units = 1 if decision.token else cost
        slot = _Slot(end, next(self._order), limiter, key, decision.token, units, duration)
        heapq.heappush(self._slots, slot)

    def _release_until(self, time: int) -> None:
        while self._slots and self._slots[0].end <= time:
            slot = heapq.heappop(self._slots)
            self._clock.milliseconds = slot.end
            with contextlib.suppress(NotFound):  # all leases of the key have ended
                slot.limiter.leaving(slot.key, slot.duration / 1000, slot.token, slot.cost)


class _Policy:
    """The limiters of the tiers of a policy, with temporary stores, and with the overrides of keys."""

    def __init__(self, spec: PolicySpec, clock: _Clock, override_of: Callable[[str], Override | None]) -> None:
        self._own = self._built(rate_specs(spec), clock)
        self._tiers = {tier: self._built(specs, clock) for tier, specs in tier_specs(spec).items()}
        self._override_of = override_of
        self._with_rate = functools.cache(_with_rate)
        self._chosen: dict[tuple[str, str], Limiters | None] = {}
        self.overridden: set[str] = set()
        """Keys with an override."""

    @staticmethod
    def _built(specs: Iterable[PolicySpec], clock: _Clock) -> Limiters:
        return [build(spec, store=LocalStore(MOST_EVENTS, clock=clock), clock=clock) for spec in specs]

    def limiters(self, tier: str, key: str) -> Limiters | None:
        """Return the limiters for requests of a key; empty: no limit, None: all are refused."""
        try:
            return self._chosen[tier, key]
        except KeyError:
            chosen = self._chosen[tier, key] = self._choose(tier, key)
            return chosen

    def _choose(self, tier: str, key: str) -> Limiters | None:
        limiters = self._tiers.get(tier, self._own)
        override = self._override_of(key)
        if override is None:
            return limiters
        self.overridden.add(key)
        if override.blocks:
            return None
        return [] if override.lifts else [self._with_rate(limiter, override.rate) for limiter in limiters]


def _with_rate(limiter: Limiter[Any], rate: str) -> Limiter[Any]:
    try:
        return limiter_with_rate(limiter, rate)
    except (ValueError, TypeError):  # an override of all limits that does not fit this one does not apply
        return limiter


def _no_override(key: str) -> None:
    return None


def replay(
    spec: PolicySpec,
    recording: Recording,
    saved: PolicySpec,
    override_of: Callable[[str], Override | None] = _no_override,
) -> Replay:
    """Replay a recording through a valid policy.

    `saved`: the policy that the requests were recorded with. `override_of`: returns the override of a key.

    Raise `NotReplayable`, and `BadPolicy` if the policy is not valid.
    """
    requests, level = recording
    views = views_by_route()
    new_key = _regrouping(saved.key, spec.key, level, views)
    assumed = _assumed_duration(requests) if spec.algorithm == "concurrency" else UNKNOWN
    clock = _Clock()
    run = _Run(clock, assumed)
    scope = Scope(saved, spec, views)
    policy = _Policy(spec, clock, override_of)
    keys: dict[str, KeyReplay] = {}
    shadowed_then = delayed_then = released = uncertain = 0
    for request in requests[:MOST_EVENTS]:
        tier, key = tier_and_key(request.key)
        if new_key is not None:
            key = new_key(key, request.target)
        counts = keys.get(key)
        if counts is None:
            counts = keys[key] = KeyReplay(key)
        included = scope.includes(request.target)
        if included is False:
            released += 1
        else:
            uncertain += included is None
            allowed, delay = run.decide(policy.limiters(tier, key), key, spec.cost, request)
            counts.refused += not allowed
            counts.delayed += delay >= SHORTEST_DELAY
        counts.requests += 1
        if request.outcome in (REFUSED, SHADOWED):
            counts.refused_then += 1
            shadowed_then += request.outcome == SHADOWED
        elif request.outcome == DELAYED:
            delayed_then += 1
    measured = all(request.measured for request in requests)
    listed = sorted(keys.values(), key=_order)[:MOST_KEYS]
    return Replay(
        requests=len(requests),
        released=released,
        uncertain=uncertain,
        refused_then=sum(counts.refused_then for counts in keys.values()) - shadowed_then,
        shadowed_then=shadowed_then,
        delayed_then=delayed_then,
        refused=sum(counts.refused for counts in keys.values()),
        delayed=sum(counts.delayed for counts in keys.values()),
        keys=listed,
        key_count=len(keys),
        overridden=len(policy.overridden),
        share=recording.share,
        first=_time(requests[0].time) if requests else None,
        last=_time(requests[-1].time) if requests else None,
        assumed=None if assumed == UNKNOWN or measured else assumed,
    )


def _order(counts: KeyReplay) -> tuple[int, int, int, str]:
    return -counts.refused, -counts.refused_then, -counts.requests, counts.key


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, tz=timezone.get_current_timezone())


def _assumed_duration(requests: Iterable[Request]) -> int:
    """Return the median of the measured durations."""
    durations = [request.duration for request in requests if request.measured]
    if not durations:
        raise NotReplayable(
            "Concurrency cannot be tested with these requests: their durations were not measured, because the saved "
            "policy does not limit concurrency. Save the policy in shadow mode instead."
        )
    return median_low(durations)


def _regrouping(recorded_key: str, key: str, level: int, views: Mapping[str, View]) -> Callable[[str, str], str] | None:
    """Return a function of a recorded key and a target that returns the new key, or None if the keys are equal."""
    before, after = _parts(recorded_key), _parts(key)
    if before == after:
        return None
    if after != ["all"] and not set(after) <= {*before, VIEW}:
        raise NotReplayable(
            f"The requests were recorded with the key {recorded_key}, so the key {key} cannot be tested. Save the "
            "policy with the new key in shadow mode instead."
        )
    if level and not set(before) <= set(after):
        raise NotReplayable(
            f"Only some of the keys were recorded, so a change of the key from {recorded_key} to {key} cannot be "
            "tested. Save the policy with the new key in shadow mode instead."
        )
    if after == ["all"]:
        return lambda recorded, target: "all"

    def regrouped(recorded: str, target: str) -> str:
        values = dict(zip(before, recorded.split("|"), strict=False))
        if len(values) != len(before):
            return recorded
        view = views.get(target.partition(" ")[2])
        return "|".join({VIEW: MISSING if view is None else plain(view.name), **values}[part] for part in after)

    return regrouped


def _parts(key: str) -> list[str]:
    return [part.strip() for part in key.split("+")]
