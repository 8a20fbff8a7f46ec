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

from collections.abc import Callable, Sequence
from typing import Any

from resty_django.sansio import Step, Steps, arun, run

from ..algorithms.decision import CombinedDecision, Decision
from ..algorithms.protocol import Answers, Ask, two_phases
from ..errors import LimitError
from ..stores import Store
from .base import FAULTS, Limiter, is_foreign

States = list[float | None]

_new_tuple = tuple.__new__


def combine(limiters: Sequence[Limiter[Any]], keys: Sequence[object], states: States | None = None) -> CombinedDecision:
    """Decide on a request with all limiters, each with its key, and record it.

    `states` is filled in place with the states of the limiters that recorded it; after a refusal, some may have. Raise
    `ValueError` if the numbers of keys and limiters differ, `BadKey`, and `StoreFailed` if a limiter's `on_error` is
    "raise".
    """
    store, names = _together(limiters, keys)
    if store is not None:
        try:
            answers = store.together(limiters, names)
        except FAULTS as error:
            _fault(store, error)
            answers = None
        if answers is not None:
            return _combined(_noted(limiters, answers), states)
    return _combined(run(deciding_in_calls(limiters, keys)), states)


async def acombine(
    limiters: Sequence[Limiter[Any]], keys: Sequence[object], states: States | None = None
) -> CombinedDecision:
    """Run `combine` without blocking the event loop."""
    store, names = _together(limiters, keys)
    if store is not None:
        try:
            answers = await store.atogether(limiters, names)
        except FAULTS as error:
            _fault(store, error)
            answers = None
        if answers is not None:
            return _combined(_noted(limiters, answers), states)
    return _combined(await arun(deciding_in_calls(limiters, keys)), states)


def _together(limiters: Sequence[Limiter[Any]], keys: Sequence[object]) -> tuple[Store | None, list[object]]:
    """Return the common store of all limiters (None: they have none, or it is down) and the keys in it."""
    if len(limiters) != len(keys):
        raise ValueError(
            f"The numbers of keys ({len(keys)}) and limiters ({len(limiters)}) differ. Pass a key for each limiter."
        )
    if len(limiters) < 2:
        return None, []
    names: list[object] = []
    common = limiters[0].store
    for limiter, key in zip(limiters, keys, strict=True):
        if limiter._stores[limiter._store] is not common:
            return None, names
        names.append(limiter.prefix + key if type(key) is str else limiter.key(key))
    return (None if common.breaker.down else common), names


def _fault(store: Store, error: Exception) -> None:
    """Report an error of the store. Afterwards each limiter follows its `on_error`."""
    if not is_foreign(error):
        store.breaker.record_failure(error)


def deciding_in_calls(limiters: Sequence[Limiter[Any]], keys: Sequence[object]) -> Steps[Answers]:
    """Run the protocol with separate calls."""
    phases = two_phases(len(limiters))
    tokens = [""] * len(limiters)
    resume: Callable[[Any], Ask] = phases.send
    answer: Any = None
    while True:
        try:
            index, commit = resume(answer)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        limiter, key = limiters[index], keys[index]
        resume = phases.send
        try:
            if commit is None:
                yield Step(limiter.undo, limiter.aundo, (key, tokens[index]))
            else:
                answer = yield Step(limiter.incoming, limiter.aincoming, (key, commit))
                tokens[index] = answer.token
        except LimitError as error:
            if commit is not None:
                resume, answer = phases.throw, error


def _noted(limiters: Sequence[Limiter[Any]], answers: Answers) -> Answers:
    """Notify the limiters that decided and track requests whether they have recorded this one."""
    refused, decisions = answers
    for index, limiter in enumerate(limiters):
        if limiter.give_back is not None and (refused is None or decisions[-1] is not None or index <= refused):
            limiter.on_combined(decisions[index])
    return answers


def _combined(answers: Answers, states: States | None) -> CombinedDecision:
    refused, decisions = answers
    if states is not None:
        states[:] = [None if decision is None else decision.state for decision in decisions]
    if refused is not None:
        refusal: Decision = decisions[refused]
        return CombinedDecision(
            allowed=False,
            limit=refusal.limit,
            remaining=refusal.remaining,
            reset_after=refusal.reset_after,
            retry_after=refusal.retry_after,
            failed=refusal.failed,
            refused_by=refused,
            decisions=tuple(decisions),
        )
    if not decisions:
        return CombinedDecision(True)
    longest, slot, any_failed = 0.0, "", False
    limit = least = reset = None
    for _, delay, _, its_limit, remaining, reset_after, _, failed, token in decisions:
        if delay > longest:
            longest = delay
        if least is None or remaining < least:
            limit, least, reset = its_limit, remaining, reset_after
        if failed:
            any_failed = True
        if token and not slot:
            slot = token
    return _new_tuple(
        CombinedDecision,
        (True, longest, None, limit, least, reset, 0.0, any_failed, slot, None, tuple(decisions)),
    )
