"""Stores that run a function of ours as one step: a shared dictionary in LMDB, and the memory of a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from resty_django.shdict import Change

from ..algorithms import Outcome
from ..algorithms.protocol import Answers, two_phases
from ..decision import Decision
from ..outage import Watch

if TYPE_CHECKING:
    from ..limiter import Limiter, Operation

Changes = tuple[Sequence[Change | None], Answers]


class Updating(Protocol):
    """What this needs of a dictionary."""

    name: str

    def revise(self, key: object, function: Callable[[Any], Outcome[Any]]) -> Any: ...

    def update_many(
        self, keys: Sequence[object], function: Callable[[list[Any]], tuple[Sequence[Change | None], Any]]
    ) -> Any: ...

    def delete(self, key: object) -> bool: ...


class DirectStore:
    """Decides inside of `revise`; nothing waits for a network, so the twins for asyncio are the calls themselves."""

    waits = False

    def __init__(self, dictionary: Updating) -> None:
        self.dictionary = dictionary
        self.watch = Watch(dictionary.name)
        self.revise: Callable[..., Any] = dictionary.revise

    def decide(self, limiter: Limiter[Any], key: object, commit: bool, cost: int) -> Decision:
        if commit and cost == 1:
            return self.revise(key, limiter.one)  # type: ignore[no-any-return]
        return self.revise(key, partial(limiter.step, commit, cost))  # type: ignore[no-any-return]

    def change(self, limiter: Limiter[Any], operation: Operation, key: object, numbers: Any, cost: float) -> Any:
        return self.revise(key, lambda old: operation.pure(old, limiter.now(), numbers, cost))

    def together(self, limiters: Sequence[Limiter[Any]], keys: Sequence[object]) -> Answers:
        """Decide by all limiters in one step."""
        numbers = [limiter.call_numbers() for limiter in limiters]
        if len(set(keys)) == len(keys):
            return self.dictionary.update_many(keys, partial(_apart, limiters, numbers))  # type: ignore[no-any-return]
        names = list(dict.fromkeys(keys))
        work = partial(_overlapping, limiters, numbers, [names.index(key) for key in keys])
        return self.dictionary.update_many(names, work)  # type: ignore[no-any-return]

    def forget(self, key: object) -> bool:
        return self.dictionary.delete(key)

    async def adecide(self, limiter: Limiter[Any], key: object, commit: bool, cost: int) -> Decision:
        return self.decide(limiter, key, commit, cost)

    async def achange(self, limiter: Limiter[Any], operation: Operation, key: object, numbers: Any, cost: float) -> Any:
        return self.change(limiter, operation, key, numbers, cost)

    async def atogether(self, limiters: Sequence[Limiter[Any]], keys: Sequence[object]) -> Answers:
        return self.together(limiters, keys)

    async def aforget(self, key: object) -> bool:
        return self.forget(key)


def _apart(limiters: Sequence[Limiter[Any]], numbers: Sequence[Any], states: Sequence[Any]) -> Changes:
    """The protocol where no limiter sees the key of another: the second phase would say what the first has said."""
    now = limiters[0].now()
    changes: list[Change | None] = []
    decisions: list[Decision | None] = []
    for index, old in enumerate(states):
        state, ttl, decision = limiters[index].pure(old, now, numbers[index], 1, True)
        changes.append(None if state is None else Change(state, ttl))
        decisions.append(decision)
        if not decision[0]:
            break
    else:
        return changes, (None, decisions)
    refused, last = len(decisions) - 1, len(limiters) - 1
    kept = [*[None] * last, changes[refused] if refused == last else None]
    return kept, (refused, [*[None] * refused, decision, *[None] * (last - refused)])


def _overlapping(
    limiters: Sequence[Limiter[Any]], numbers: Sequence[Any], places: Sequence[int], old: Sequence[Any]
) -> Changes:
    """The protocol where several limiters have one key, and see what those before them have recorded."""
    now = limiters[0].now()
    states = list(old)
    changes: list[Change | None] = [None] * len(states)
    phases = two_phases(len(limiters))
    answer: Decision | None = None
    while True:
        try:
            index, commit = phases.send(answer)
        except StopIteration as done:
            return changes, done.value
        algorithm, place = limiters[index].algorithm, places[index]
        if commit is None:
            state, ttl, _ = algorithm.uncommit.pure(states[place], now, numbers[index], 1)
        else:
            state, ttl, answer = algorithm.incoming(states[place], now, numbers[index], 1, commit)
        if state is not None:
            before = changes[place]
            states[place] = state
            changes[place] = Change(state, before.ttl if ttl is None and before is not None else ttl)
