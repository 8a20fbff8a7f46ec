"""Several limits at once: a request goes on only if all let it.

    decision = combine([per_client, per_user, slots], [address, user, user])

The rules are those of a protocol of two phases, in which the last limiter is asked once and the others twice:

1. Each is asked without recording, but the last with it. The first that refuses ends it.
2. Those before the last are asked again, with recording. Where one refuses now, what was recorded is taken back.

So a limiter that must not be asked in vain, such as `Concurrency`, belongs at the end; a `FixedWindow` that refuses at
the end has counted the request. Where all limiters have one store the protocol is one transaction, or one round trip,
in which nobody else comes between. It is made of several calls where they have different stores, where the keys are in
different slots of a Redis Cluster (give them a common hash tag), and while a store cannot be used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .algorithms.protocol import Answers, Ask, two_phases
from .decision import CombinedDecision, Decision
from .errors import LimitError
from .limiter import FAULTS, Limiter, is_foreign
from .stores import Store

States = list[float | None]

_new = tuple.__new__


def combine(limiters: Sequence[Limiter[Any]], keys: Sequence[object], states: States | None = None) -> CombinedDecision:
    """Decide on a request by all limiters, each with its key, and record it.

    `states` is filled in place with the states of those that recorded it, which after a refusal may be some of them.
    Raises `ValueError` where there are not as many keys as limiters, `BadKey`, and `StoreFailed` where a limiter's
    `on_error` is "raise".
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
    return _combined(_in_calls(limiters, keys), states)


async def acombine(
    limiters: Sequence[Limiter[Any]], keys: Sequence[object], states: States | None = None
) -> CombinedDecision:
    """As `combine`."""
    store, names = _together(limiters, keys)
    if store is not None:
        try:
            answers = await store.atogether(limiters, names)
        except FAULTS as error:
            _fault(store, error)
            answers = None
        if answers is not None:
            return _combined(_noted(limiters, answers), states)
    return _combined(await _in_acalls(limiters, keys), states)


def _together(limiters: Sequence[Limiter[Any]], keys: Sequence[object]) -> tuple[Store | None, list[object]]:
    """The store of all limiters, if they have one and it can be used, and the keys in it."""
    if len(limiters) != len(keys):
        raise ValueError(f"keys must be as many as limiters: there are {len(keys)} keys and {len(limiters)} limiters.")
    if len(limiters) < 2:
        return None, []
    names: list[object] = []
    common = limiters[0].store
    for index, key in enumerate(keys):
        limiter = limiters[index]
        if limiter._stores[limiter._store] is not common:
            return None, names
        names.append(limiter.prefix + key if type(key) is str else limiter.key(key))
    return (None if common.watch.down else common), names


def _fault(store: Store, error: Exception) -> None:
    """After this each limiter does as its own `on_error` says."""
    if not is_foreign(error):
        store.watch.failed(error)


def _in_calls(limiters: Sequence[Limiter[Any]], keys: Sequence[object]) -> Answers:
    """The protocol, call by call."""
    phases = two_phases(len(limiters))
    tokens = [""] * len(limiters)
    go_on: Callable[[Any], Ask] = phases.send
    answer: Any = None
    while True:
        try:
            index, commit = go_on(answer)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        limiter, key = limiters[index], keys[index]
        go_on = phases.send
        try:
            if commit is None:
                limiter.take_back(key, tokens[index])
            else:
                answer = limiter.incoming(key, commit)
                tokens[index] = answer.token
        except LimitError as error:
            if commit is not None:
                go_on, answer = phases.throw, error


async def _in_acalls(limiters: Sequence[Limiter[Any]], keys: Sequence[object]) -> Answers:
    phases = two_phases(len(limiters))
    tokens = [""] * len(limiters)
    go_on: Callable[[Any], Ask] = phases.send
    answer: Any = None
    while True:
        try:
            index, commit = go_on(answer)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        limiter, key = limiters[index], keys[index]
        go_on = phases.send
        try:
            if commit is None:
                await limiter.atake_back(key, tokens[index])
            else:
                answer = await limiter.aincoming(key, commit)
                tokens[index] = answer.token
        except LimitError as error:
            if commit is not None:
                go_on, answer = phases.throw, error


def _noted(limiters: Sequence[Limiter[Any]], answers: Answers) -> Answers:
    """Tell the limiters that were asked, and want to know, whether they have recorded the request."""
    refused, decisions = answers
    for index, limiter in enumerate(limiters):
        if limiter.give_back is not None and (refused is None or decisions[-1] is not None or index <= refused):
            limiter.note(decisions[index])
    return answers


def _combined(answers: Answers, states: States | None) -> CombinedDecision:
    refused, decisions = answers
    if states is not None:
        states[:] = [None if one is None else one.state for one in decisions]
    if refused is not None:
        one: Decision = decisions[refused]
        numbers = one.limit, one.remaining, one.reset_after, one.retry_after, one.failed
        return CombinedDecision(False, 0.0, None, *numbers, "", refused, tuple(decisions))
    if not decisions:
        return CombinedDecision(True)
    longest, slot, fails = 0.0, "", False
    limit = least = reset = None
    for _, delay, _, most, remaining, after, _, failed, token in decisions:
        if delay > longest:
            longest = delay
        if least is None or remaining < least:
            limit, least, reset = most, remaining, after
        if failed:
            fails = True
        if token and not slot:
            slot = token
    return _new(
        CombinedDecision,
        (True, longest, None, limit, least, reset, 0.0, fails, slot, None, tuple(decisions)),
    )


__all__ = ["acombine", "combine"]
