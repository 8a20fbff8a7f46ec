"""Several limits decided together: a request passes only if all of them let it pass.

    decision = combine([per_client, per_user, slots], [address, user, user])

The protocol has two phases, in which the last limiter decides once and the others twice:

1. Each limiter decides; only the last one records the request. The first refusal ends the protocol.
2. The limiters before the last decide again, and record the request. If one refuses now, all records are undone.

So a limiter that must not be probed, such as `Concurrency`, belongs at the end; a `FixedWindow` that refuses at the end
has counted the request. If all limiters use the same store, the protocol is one atomic transaction or round trip. It
takes several calls if the stores differ, if the keys are in different slots of a Redis Cluster (use a common hash tag
for them), and while a store cannot be used.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from resty_django.sansio import Step, Steps, arun, run

from ..algorithms.protocol import Answers, Ask, two_phases
from ..decision import CombinedDecision, Decision
from ..errors import LimitError
from ..stores import Store
from . import descriptions
from .base import STORE_ERRORS, Limiter, is_foreign
from .slots import Slot, aacquire, acquire

States = list[float | None]


def combine(limiters: Sequence[Limiter], keys: Sequence[object], states: States | None = None) -> CombinedDecision:
    """Decide on a request with all limiters, each with its key, and record it.

    `states` is filled in place with the states of the limiters that recorded it; after a refusal, some may have. Raise
    `ValueError` if the numbers of keys and limiters differ, `BadKey`, and `StoreFailed` if a limiter's `on_error` is
    "raise".
    """
    store, names = _together(limiters, keys)
    if store is not None:
        try:
            answers = store.together(limiters, names)
        except STORE_ERRORS as error:
            _record_failure(store, error)
            answers = None
        if answers is not None:
            return _combined(_notified(limiters, answers), states)
    return _combined(run(deciding_in_calls(limiters, keys)), states)


async def acombine(
    limiters: Sequence[Limiter], keys: Sequence[object], states: States | None = None
) -> CombinedDecision:
    """Run `combine` without blocking the event loop."""
    store, names = _together(limiters, keys)
    if store is not None:
        try:
            answers = await store.atogether(limiters, names)
        except STORE_ERRORS as error:
            _record_failure(store, error)
            answers = None
        if answers is not None:
            return _combined(_notified(limiters, answers), states)
    return _combined(await arun(deciding_in_calls(limiters, keys)), states)


def _together(limiters: Sequence[Limiter], keys: Sequence[object]) -> tuple[Store | None, list[object]]:
    """Return the common store of all limiters (None: they have none, or it is down) and the keys in it."""
    if len(limiters) != len(keys):
        raise ValueError(
            f"The numbers of keys ({len(keys)}) and limiters ({len(limiters)}) differ. Pass a key for each limiter."
        )
    if len(limiters) < 2:
        return None, []
    names: list[object] = []
    common = limiters[0].store
    for limiter, key in zip(limiters, keys):  # noqa: B905 - checked above, and `strict` is slow
        if limiter._stores[limiter._store] is not common:
            return None, names
        names.append(limiter.stored_prefix + key if type(key) is str else limiter.key(key))
    return (None if common.breaker.down else common), names


def _record_failure(store: Store, error: Exception) -> None:
    """Report an error of the store. Afterwards each limiter follows its `on_error`."""
    if not is_foreign(error):
        store.breaker.record_failure(error)


def deciding_in_calls(limiters: Sequence[Limiter], keys: Sequence[object]) -> Steps[Answers]:
    """Run the protocol with separate calls."""
    phases = two_phases(len(limiters))
    tokens = [""] * len(limiters)
    resume: Callable[[Any], Ask] = phases.send  # or throw, after an error
    answer: Decision | LimitError | None = None
    while True:
        try:
            index, commit = resume(answer)
        except StopIteration as done:
            answers: Answers = done.value
            return answers
        limiter, key = limiters[index], keys[index]
        resume = phases.send
        try:
            if commit is None:
                yield Step(limiter.undo, limiter.aundo, (key, tokens[index]))
            else:
                decision: Decision = yield Step(limiter.incoming, limiter.aincoming, (key, commit))
                tokens[index] = decision.token
                answer = decision
        except LimitError as error:
            if commit is not None:
                resume, answer = phases.throw, error


def _notified(limiters: Sequence[Limiter], answers: Answers) -> Answers:
    """Inform the limiters that hold slots whether they have recorded the request. Return the answers."""
    refused, decisions = answers
    for index, limiter in enumerate(limiters):
        if limiter.give_back is not None and (refused is None or decisions[-1] is not None or index <= refused):
            limiter.on_combined(decisions[index])
    return answers


def _combined(answers: Answers, states: States | None) -> CombinedDecision:
    refused_by, decisions = answers
    if states is not None:
        states[:] = [None if decision is None else decision.state for decision in decisions]
    if refused_by is not None:
        refusal = cast("Decision", decisions[refused_by])
        return CombinedDecision(
            allowed=False,
            limit=refusal.limit,
            remaining=refusal.remaining,
            reset_after=refusal.reset_after,
            retry_after=refusal.retry_after,
            failed=refusal.failed,
            refused_by=refused_by,
            decisions=tuple(decisions),
        )
    if not decisions:
        return CombinedDecision(True)
    passed = cast("list[Decision]", decisions)
    fewest = passed[0]
    delay, failed, token = 0.0, False, ""
    for decision in passed:
        if decision.remaining < fewest.remaining:
            fewest = decision
        if decision.delay > delay:
            delay = decision.delay
        failed = failed or decision.failed
        token = token or decision.token
    return CombinedDecision(
        allowed=True,
        delay=delay,
        limit=fewest.limit,
        remaining=fewest.remaining,
        reset_after=fewest.reset_after,
        failed=failed,
        token=token,
        decisions=tuple(passed),
    )


class CombinedLimiter:
    """Several rates for the same keys, with the calls of a limiter that has one rate: all must let a request pass.

    A decision has the longest delay, and the other numbers of the rate that refused, else of the one with the fewest
    `remaining`. `limiters`: rate limiters of one store.
    """

    def __init__(self, limiters: Sequence[Limiter]) -> None:
        self.limiters = tuple(limiters)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.describe()}>"

    def describe(self) -> str:
        """Return the limits in words."""
        return descriptions.joined(limiter.describe() for limiter in self.limiters)

    def hit(self, key: object, cost: int = 1) -> Decision:
        """Decide on a request that counts as `cost` requests, and record it with all limiters or with none."""
        if cost != 1:
            return run(self._hitting(key, cost))
        return _single(combine(self.limiters, [key] * len(self.limiters)))

    async def ahit(self, key: object, cost: int = 1) -> Decision:
        """Run `hit` without blocking the event loop."""
        if cost != 1:
            return await arun(self._hitting(key, cost))
        return _single(await acombine(self.limiters, [key] * len(self.limiters)))

    def peek(self, key: object, cost: int = 1) -> Decision:
        """Return the decision that `hit` would make now, without recording the request."""
        return _first_refusal(limiter.peek(key, cost) for limiter in self.limiters)

    async def apeek(self, key: object, cost: int = 1) -> Decision:
        """Run `peek` without blocking the event loop."""
        return _first_refusal(iter([await limiter.apeek(key, cost) for limiter in self.limiters]))

    def check(self, cost: int) -> None:
        """Raise `CostTooHigh` if a request of that cost can never pass, and `ValueError` if it is not a cost."""
        for limiter in self.limiters:
            limiter.check(cost)

    def uncommit(self, key: object, cost: int = 1) -> None:
        """Undo a recorded request. Raise `NotFound` as the limiters do."""
        for limiter in self.limiters:
            limiter.uncommit(key, cost)

    async def auncommit(self, key: object, cost: int = 1) -> None:
        """Run `uncommit` without blocking the event loop."""
        for limiter in self.limiters:
            await limiter.auncommit(key, cost)

    def reset(self, key: object) -> bool:
        """Delete the states of the key. Return whether there was one. Raise `Unavailable`."""
        return sum(limiter.reset(key) for limiter in self.limiters) > 0

    async def areset(self, key: object) -> bool:
        """Run `reset` without blocking the event loop."""
        return True in [await limiter.areset(key) for limiter in self.limiters]

    def slot(self, key: object, wait: float | None = 0, cost: int = 1) -> Slot:
        """Return a slot for a `with` or `async with` block: see `resty_django.limits.limiters.slots`."""
        return Slot(self, key, wait, cost)

    def acquire(self, key: object, wait: float | None = 0, cost: int = 1) -> Decision:
        """Hit, and wait up to `wait` seconds until the request may continue (None: indefinitely). Raise `Limited`."""
        return acquire(self, key, wait, cost)

    async def aacquire(self, key: object, wait: float | None = 0, cost: int = 1) -> Decision:
        """Run `acquire` without blocking the event loop."""
        return await aacquire(self, key, wait, cost)

    def _hitting(self, key: object, cost: int) -> Steps[Decision]:
        """Decide one limiter after the other. A refusal undoes the earlier records."""
        self.check(cost)
        decisions: list[Decision] = []
        for limiter in self.limiters:
            decision = yield Step(limiter.hit, limiter.ahit, (key, cost))
            decisions.append(decision)
            if not decision.allowed:
                for recorded in self.limiters[: len(decisions) - 1]:
                    with contextlib.suppress(LimitError):
                        yield Step(recorded.uncommit, recorded.auncommit, (key, cost))
                break
        return _first_refusal(iter(decisions))


def together(limiters: Sequence[Limiter]) -> Limiter | CombinedLimiter:
    """Return the only limiter, or one that decides by all of them."""
    return limiters[0] if len(limiters) == 1 else CombinedLimiter(limiters)


def _single(combined: CombinedDecision) -> Decision:
    """Return a combined decision in the form that one limiter returns."""
    return Decision(**{field: getattr(combined, field) for field in Decision.__struct_fields__})


def _first_refusal(decisions: Iterator[Decision]) -> Decision:
    """Return the first refusal, or if all let the request pass, what is true for all of them."""
    passed: list[Decision | None] = []
    for decision in decisions:
        if not decision.allowed:
            return decision
        passed.append(decision)
    return _single(_combined((None, passed), None))
