"""Stores that run the algorithm in Python, atomically: a shared dictionary in LMDB, and the memory of a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from ..algorithms import Operation, Outcome
from ..algorithms.protocol import Answers, two_phases
from ..decision import Decision
from .circuit_breaker import CircuitBreaker
from .interface import LimiterParts

Revisions = tuple[Sequence[Outcome[Any]], Answers]
NOTHING: Final = (None, None, None)
"""The revision of a key that does not change."""


class Updating(Protocol):
    """The dictionary methods that this store needs."""

    name: str

    def revise(self, key: object, function: Callable[[Any], Outcome[Any]]) -> Any: ...

    def revise_many(self, keys: Sequence[object], function: Callable[..., Revisions], *args: Any) -> Any: ...

    def delete(self, key: object) -> bool: ...


class DirectStore:
    """Decides in `revise`. No call waits for a network, so the async methods call the sync ones."""

    waits = False

    def __init__(self, dictionary: Updating) -> None:
        self.dictionary = dictionary
        self.breaker = CircuitBreaker(dictionary.name)
        self.revise: Callable[..., Any] = dictionary.revise

    def decide(self, limiter: LimiterParts, key: object, commit: bool, cost: int) -> Decision:
        if commit and cost == 1:
            return self.revise(key, limiter.decide_hit)  # type: ignore[no-any-return]
        return self.revise(key, partial(limiter.step, commit, cost))  # type: ignore[no-any-return]

    def change(self, limiter: LimiterParts, operation: Operation, key: object, numbers: Any, cost: float) -> Any:
        return self.revise(key, lambda old: operation.pure(old, limiter.now(), numbers, cost))

    def together(self, limiters: Sequence[LimiterParts], keys: Sequence[object]) -> Answers:
        """Decide with all limiters atomically."""
        if len(set(keys)) == len(keys):
            return self.dictionary.revise_many(keys, _apart, limiters)  # type: ignore[no-any-return]
        names = list(dict.fromkeys(keys))
        positions = [names.index(key) for key in keys]
        return self.dictionary.revise_many(names, _overlapping, limiters, positions)  # type: ignore[no-any-return]

    def forget(self, key: object) -> bool:
        return self.dictionary.delete(key)

    async def adecide(self, limiter: LimiterParts, key: object, commit: bool, cost: int) -> Decision:
        return self.decide(limiter, key, commit, cost)

    async def achange(self, limiter: LimiterParts, operation: Operation, key: object, numbers: Any, cost: float) -> Any:
        return self.change(limiter, operation, key, numbers, cost)

    async def atogether(self, limiters: Sequence[LimiterParts], keys: Sequence[object]) -> Answers:
        return self.together(limiters, keys)

    async def aforget(self, key: object) -> bool:
        return self.forget(key)


def _apart(states: Sequence[Any], limiters: Sequence[LimiterParts]) -> Revisions:
    """Run the protocol for different keys: the second phase would only repeat the decisions of the first."""
    now = limiters[0].now()
    decisions: list[Decision | None] = [None] * len(limiters)
    outcomes = []
    for index, old in enumerate(states):
        limiter = limiters[index]
        outcome = limiter.pure(old, now, limiter.call_numbers(), 1, True)
        outcomes.append(outcome)
        decision = decisions[index] = outcome[2]
        if not decision[0]:
            decisions[:index] = [None] * index
            last = len(limiters) - 1
            return [*[NOTHING] * last, outcome if index == last else NOTHING], (index, decisions)
    return outcomes, (None, decisions)


def _overlapping(old: Sequence[Any], limiters: Sequence[LimiterParts], positions: Sequence[int]) -> Revisions:
    """Run the protocol for limiters that share a key: each sees the records of the ones before it."""
    now = limiters[0].now()
    numbers = [limiter.call_numbers() for limiter in limiters]
    states = list(old)
    revisions: list[Outcome[Any]] = [NOTHING] * len(states)
    phases = two_phases(len(limiters))
    answer: Decision | None = None
    while True:
        try:
            index, commit = phases.send(answer)
        except StopIteration as done:
            return revisions, done.value
        algorithm, position = limiters[index].algorithm, positions[index]
        if commit is None:
            state, ttl, _ = algorithm.uncommit.pure(states[position], now, numbers[index], 1)
        else:
            state, ttl, answer = algorithm.incoming(states[position], now, numbers[index], 1, commit)
        if state is not None:
            states[position] = state
            revisions[position] = state, revisions[position][1] if ttl is None else ttl, None
