"""Replay of recorded requests through a policy, with a separate clock and a temporary store.

It shows what a policy would have done in the last hour: each key begins without a state, and the clock shows the times
of the recording. Requests that would have been refused are not repeated later, as real clients might do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.utils import timezone

from ..algorithms.decision import Decision
from ..statistics.events import DELAYED, REFUSED, SHADOWED
from ..statistics.recorder import MOST_EVENTS, Recording, tier_and_key
from ..statistics.reporter import SHORTEST_DELAY
from ..stores.local import LocalStore
from .spec import PolicySpec, build, tier_specs

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

    `keys`: those with the most refusals, at most `MOST_KEYS`; `key_count`: the number of all keys. `share`: the share
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
    share: float
    first: datetime | None
    last: datetime | None


class _Clock:
    """The time of the current request, in the middle of a millisecond, so that rounding does not matter."""

    def __init__(self) -> None:
        self.milliseconds = 0

    def __call__(self) -> float:
        return (self.milliseconds + 0.5) / 1000


class _Tier:
    """The limiters of the rates of a tier, all of which must let a request pass. Each has a temporary store."""

    def __init__(self, specs: Iterable[PolicySpec], clock: _Clock) -> None:
        self._limiters = [build(spec, store=LocalStore(MOST_EVENTS, clock=clock), clock=clock) for spec in specs]

    def hit(self, key: str, cost: int) -> Decision | None:
        """Decide on a request, and return the refusal, or the decision with the longest delay; None: no limit."""
        longest: Decision | None = None
        for position, limiter in enumerate(self._limiters):
            decision: Decision = limiter.hit(key, cost)
            if not decision.allowed:
                for recorded in self._limiters[:position]:
                    recorded.uncommit(key, cost)
                return decision
            if longest is None or decision.delay > longest.delay:
                longest = decision
        return longest


def replay(spec: PolicySpec, recording: Recording, recorded_key: str) -> Replay:
    """Replay a recording through a valid policy; `recorded_key`: the definition of the recorded keys.

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
    own = _Tier((spec,), clock)
    tiers = {tier: _Tier(specs, clock) for tier, specs in tier_specs(spec).items()}
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
        decision = tiers.get(tier, own).hit(key, spec.cost)
        counts.requests += 1
        if decision is None:
            pass
        elif not decision.allowed:
            counts.refused += 1
        elif decision.delay >= SHORTEST_DELAY:
            counts.delayed += 1
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
