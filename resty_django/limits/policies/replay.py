"""Replay of recorded requests through a policy, with a separate clock and a temporary store.

It shows what a policy would have done in the last hour: each key begins without a state, and the clock shows the times
of the recording. Requests that would have been refused are not repeated later, as real clients might do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

from django.utils import timezone

from ..limiters.base import Limiter
from ..overrides.override_set import Override
from ..overrides.rates import limiter_with_rate
from ..statistics.events import DELAYED, REFUSED, SHADOWED
from ..statistics.recorder import MOST_EVENTS, Recording, tier_and_key
from ..statistics.reporter import SHORTEST_DELAY
from ..stores.local import LocalStore
from .spec import PolicySpec, build, rate_specs, tier_specs

MOST_KEYS: Final = 20
"""The maximum number of keys that a replay lists."""


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

    `keys`: those with the most refusals, at most `MOST_KEYS`; `key_count`: the number of all keys.
    `overridden`: the number of keys with an override. `share`: the share
    of the keys that were recorded. `first`, `last`: the times of the first and the last request.
    """

    requests: int
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


class _Clock:
    """The time of the current request, in the middle of a millisecond, so that rounding does not matter."""

    def __init__(self) -> None:
        self.milliseconds = 0

    def __call__(self) -> float:
        return (self.milliseconds + 0.5) / 1000


Limiters: TypeAlias = "Sequence[Limiter[Any]]"


def _hit(limiters: Limiters | None, key: str, cost: int) -> tuple[bool, float]:
    """Decide with limiters that must all let a request pass (None: all are refused). Return that, and the delay."""
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
    return True, delay


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
    recorded_key: str,
    override_of: Callable[[str], Override | None] = _no_override,
) -> Replay:
    """Replay a recording through a valid policy.

    `recorded_key`: the definition of the recorded keys. `override_of`: returns the override of a key.

    Raise `NotReplayable`, and `BadPolicy` if the policy is not valid.
    """
    if spec.algorithm == "concurrency":
        raise NotReplayable(
            "Concurrency cannot be tested with recorded requests, because their duration is not recorded. Save the "
            "policy in shadow mode instead."
        )
    events, level = recording
    new_key = _regrouping(recorded_key, spec.key, level)
    clock = _Clock()
    policy = _Policy(spec, clock, override_of)
    keys: dict[str, KeyReplay] = {}
    shadowed_then = delayed_then = 0
    for at, recorded, outcome in events[:MOST_EVENTS]:
        tier, key = tier_and_key(recorded)
        if new_key is not None:
            key = new_key(key)
        counts = keys.get(key)
        if counts is None:
            counts = keys[key] = KeyReplay(key)
        clock.milliseconds = at
        allowed, delay = _hit(policy.limiters(tier, key), key, spec.cost)
        counts.requests += 1
        counts.refused += not allowed
        counts.delayed += delay >= SHORTEST_DELAY
        if outcome in (REFUSED, SHADOWED):
            counts.refused_then += 1
            shadowed_then += outcome == SHADOWED
        elif outcome == DELAYED:
            delayed_then += 1
    listed = sorted(keys.values(), key=_order)[:MOST_KEYS]
    return Replay(
        requests=len(events),
        refused_then=sum(counts.refused_then for counts in keys.values()) - shadowed_then,
        shadowed_then=shadowed_then,
        delayed_then=delayed_then,
        refused=sum(counts.refused for counts in keys.values()),
        delayed=sum(counts.delayed for counts in keys.values()),
        keys=listed,
        key_count=len(keys),
        overridden=len(policy.overridden),
        share=recording.share,
        first=_time(events[0][0]) if events else None,
        last=_time(events[-1][0]) if events else None,
    )


def _order(counts: KeyReplay) -> tuple[int, int, int, str]:
    return -counts.refused, -counts.refused_then, -counts.requests, counts.key


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, tz=timezone.get_current_timezone())


def _regrouping(recorded_key: str, key: str, level: int) -> Callable[[str], str] | None:
    """Return a function of a recorded key that returns the new key, or None if they are equal."""
    before, after = _parts(recorded_key), _parts(key)
    if before == after:
        return None
    if after != ["all"] and not set(after) <= set(before):
        raise NotReplayable(
            f"The requests were recorded with the key {recorded_key}, so the key {key} cannot be tested. Save the "
            "policy with the new key in shadow mode instead."
        )
    if level:
        raise NotReplayable(
            f"Only some of the keys were recorded, so a change of the key from {recorded_key} to {key} cannot be "
            "tested. Save the policy with the new key in shadow mode instead."
        )
    if after == ["all"]:
        return lambda recorded: "all"
    places = [before.index(part) for part in after]

    def regrouped(recorded: str) -> str:
        values = recorded.split("|")
        return "|".join(values[place] for place in places) if len(values) == len(before) else recorded

    return regrouped


def _parts(key: str) -> list[str]:
    return [part.strip() for part in key.split("+")]
