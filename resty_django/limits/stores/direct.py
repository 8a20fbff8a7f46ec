"""Stores that run the algorithm in Python, atomically: a shared dictionary in LMDB, and the memory of a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from msgspec import Struct

from ..algorithms import Outcome, StateOperation
from ..algorithms.protocol import Answers, two_phases
from ..decision import Decision
from .circuit_breaker import CircuitBreaker
from .interface import LimiterParts, Revise

R = TypeVar("R")


class RevisedDict(Protocol):
    """The dictionary methods that this store needs."""

    name: str

    def revise(self, key: object, function: Callable[[bytes | None], Outcome[R]], /) -> R: ...

    def revise_many(
        self, keys: Sequence[object], function: Callable[..., tuple[Sequence[Outcome[object]], R]], *args: object
    ) -> R: ...

    def delete(self, key: object) -> bool: ...


class DirectStore:
    """Decides in `revise`. No call waits for a network, so the async methods call the sync ones."""

    waits = False

    def __init__(self, dictionary: RevisedDict) -> None:
        self.dictionary = dictionary
        self.breaker = CircuitBreaker(dictionary.name)
        self.revise: Revise = dictionary.revise

    def decide(self, limiter: LimiterParts, key: object, commit: bool, cost: int) -> Decision:
        return self.revise(key, partial(limiter.step, commit, cost))

    def change(
        self, limiter: LimiterParts, operation: StateOperation, key: object, config: Struct, cost: int
    ) -> float | None:
        return self.revise(key, lambda data: operation.pure(data, limiter.now(), config, cost))

    def together(self, limiters: Sequence[LimiterParts], keys: Sequence[object]) -> Answers:
        """Decide with all limiters atomically."""
        if len(set(keys)) == len(keys):
            return self.dictionary.revise_many(keys, _decide_apart, limiters)
        names = list(dict.fromkeys(keys))
        positions = [names.index(key) for key in keys]
        return self.dictionary.revise_many(names, _decide_overlapping, limiters, positions)

    def forget(self, key: object) -> bool:
        return self.dictionary.delete(key)

    async def adecide(self, limiter: LimiterParts, key: object, commit: bool, cost: int) -> Decision:
        return self.decide(limiter, key, commit, cost)

    async def achange(
        self, limiter: LimiterParts, operation: StateOperation, key: object, config: Struct, cost: int
    ) -> float | None:
        return self.change(limiter, operation, key, config, cost)

    async def atogether(self, limiters: Sequence[LimiterParts], keys: Sequence[object]) -> Answers:
        return self.together(limiters, keys)

    async def aforget(self, key: object) -> bool:
        return self.forget(key)


def _decide_apart(
    states: Sequence[bytes | None], limiters: Sequence[LimiterParts]
) -> tuple[list[Outcome[object]], Answers]:
    """Run the protocol for different keys: the second phase would only repeat the decisions of the first."""
    now = limiters[0].now()
    last = len(limiters) - 1
    decisions: list[Decision | None] = [None] * len(limiters)
    outcomes: list[Outcome[object]] = []
    for index, limiter in enumerate(limiters):
        outcome = limiter.algorithm.incoming(states[index], now, limiter.call_config(), 1, True)
        outcomes.append(outcome)
        decision = decisions[index] = outcome[2]
        if not decision.allowed:
            decisions[:index] = [None] * index
            unchanged = (None, None, None)
            return [*[unchanged] * last, outcome if index == last else unchanged], (index, decisions)
    return outcomes, (None, decisions)


def _decide_overlapping(
    stored: Sequence[bytes | None], limiters: Sequence[LimiterParts], positions: Sequence[int]
) -> tuple[list[Outcome[object]], Answers]:
    """Run the protocol for limiters that share a key: each sees the records of the ones before it."""
    now = limiters[0].now()
    configs = [limiter.call_config() for limiter in limiters]
    states = list(stored)
    revisions: list[Outcome[object]] = [(None, None, None)] * len(states)
    phases = two_phases(len(limiters))
    answer: Decision | None = None
    while True:
        try:
            index, commit = phases.send(answer)
        except StopIteration as done:
            return revisions, done.value
        algorithm, position = limiters[index].algorithm, positions[index]
        if commit is None:
            data, ttl, _ = algorithm.uncommit.pure(states[position], now, configs[index], 1)
        else:
            data, ttl, answer = algorithm.incoming(states[position], now, configs[index], 1, commit)
        if data is not None:
            states[position] = data
            revisions[position] = data, revisions[position][1] if ttl is None else ttl, None
