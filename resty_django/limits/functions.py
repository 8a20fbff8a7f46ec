"""A limit for any function, sync or async: outgoing calls, jobs, commands, WebSocket consumers.

@limited("10/s", key=lambda phone, text: phone, wait=5)
def send_sms(phone, text): ...

@limited("5/min", key=lambda code: code, ban="15m", ban_after=3)
def redeem(code): ...
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, NamedTuple, TypeVar, Unpack, cast

from asgiref.sync import iscoroutinefunction

from resty_django.callables import plain_function, plain_value
from resty_django.sansio import Step, Steps, arun, run
from resty_django.shdict import SharedDict
from resty_django.text.durations import Duration, parse_duration

from .bans.banning import Banning
from .callers.key_kinds import roles_of, stored_key
from .callers.keys import digest
from .decision import CombinedDecision
from .errors import Limited, TooManyWaiting
from .limiters.base import Limiter, LimiterOptions
from .limiters.combined import acombine, combine
from .limiters.descriptions import in_english
from .limiters.rate import IDLE_SECONDS, TokenBucket
from .limiters.slots import MIN_PAUSE_SECONDS
from .limiters.units import split_amount, split_rates
from .limiters.validation import unknown_option
from .limiters.waiting import Wait, WaitingCounter, counter_of_calls
from .overrides.current import current
from .overrides.limits import overridden_calls
from .refusals import announcing
from .requests.chosen_rates import Rate
from .requests.wrapper import view_name
from .specs.ban import BanOptions, ban_rule
from .statistics.catalog import LimitKind
from .statistics.counting import DecisionCounter
from .stores import LocalStore

F = TypeVar("F", bound=Callable[..., Any])


class FunctionOptions(BanOptions, total=False):
    """Options of `limited`, as in `LimiterOptions` and `BanOptions`."""

    store: str | SharedDict | LocalStore | None
    on_error: str | None


def limited(
    rate: Rate,
    /,
    *,
    key: str | Callable[..., object] = "",
    key_kind: str | None = None,
    wait: Duration | None = 0,
    max_waiting: int | None = None,
    name: str = "",
    **options: Unpack[FunctionOptions],
) -> Callable[[F], F]:
    """Return a decorator that limits the calls of a function, over all processes, by token buckets.

    `rate`: a rate such as "10/s" or "10/s capacity=50", or several, as in "10/s;1000/h". `key`: calls with the same key
    are counted together; a string, or a function of the call's arguments that returns one, or None for no limit.
    `key_kind`: "user" or "address" if the keys are IDs of users or addresses, so that their overrides apply.
    `wait`: the seconds or the duration that a call may wait for its turn (None: indefinitely); a call that would wait
    longer raises `Limited`. An async function waits without blocking the event loop. `max_waiting`: the maximum number
    of calls of this function that wait in a process at a time (None: the setting MAX_WAITING_CALLS, which counts the
    calls of all functions); a further call that would have to wait raises `TooManyWaiting`, a `Limited`, at once.
    `name`: functions with the same name and rate share a limit (default: each function has a separate limit).
    `options`: see `FunctionOptions`. With `ban`, a key whose calls raise `Limited` too often is banned, and its calls
    raise it without waiting; `TooManyWaiting` does not count.

    Raise `TypeError` or `ValueError` for wrong arguments. The function raises `Limited`, and `StoreFailed` if
    `on_error` is "raise".
    """
    if callable(rate):
        raise TypeError('@limited() was given the function in place of its rate. Write @limited("10/s").')
    for option in options:
        if option not in FunctionOptions.__annotations__:
            raise TypeError(unknown_option("@limited()", option, limited, FunctionOptions.__annotations__))
    if not isinstance(key, str) and not callable(key):
        raise TypeError(f"key of @limited() must be a string or a function of the arguments, not {key!r}.")
    seconds = inf if wait is None else parse_duration(wait)
    key_of = plain_function(key, "key of @limited()") if callable(key) else lambda *args, **kwargs: key
    roles = roles_of(key_kind, "@limited()")
    if roles and key == "":
        raise TypeError(
            "@limited(): key_kind= describes keys, so it needs key=, such as key=lambda user, text: user.pk."
        )
    rule = ban_rule(options, "@limited()")
    if rule is not None and key == "":
        raise TypeError("@limited(): ban= bans a key, so it needs key=, such as key=lambda phone, text: phone.")
    store, on_error = options.get("store"), options.get("on_error")
    _buckets_of(rate, "", {"store": store, "on_error": on_error})
    counter_of_calls(max_waiting, "")

    def decorate(function: F) -> F:
        location = view_name(function)
        full_name = name or location
        buckets = _buckets_of(rate, full_name, {"store": store, "on_error": on_error})
        counters = _counters_of(buckets, location, roles)
        banning = None
        if rule is not None:
            banning = Banning(rule, full_name, prefix=f"function:{full_name}:", store=store, on_error=on_error)
            banning.list_in_catalog(location)
        limit = _FunctionLimit(buckets, counters, seconds, counter_of_calls(max_waiting, full_name), banning)
        wrapper: Callable[..., Any]

        def admitting(call_key: object) -> Steps[None]:
            stored = stored_key(plain_value(call_key, "key of @limited()"), key_kind)
            return announcing(_admitting(limit, stored), LimitKind.FUNCTION, full_name, TokenBucket, stored)

        if iscoroutinefunction(function):

            @functools.wraps(function)
            async def wrapper(*args: Any, **kwargs: Any) -> Any:
                call_key = key_of(*args, **kwargs)
                if call_key is not None:
                    await arun(admitting(call_key))
                return await function(*args, **kwargs)
        else:

            @functools.wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                call_key = key_of(*args, **kwargs)
                if call_key is not None:
                    run(admitting(call_key))
                return function(*args, **kwargs)

        return cast("F", wrapper)

    return decorate


def _buckets_of(rate: Rate, name: str, options: LimiterOptions) -> list[TokenBucket]:
    """Return the token buckets of a rate, or of several in one text. Raise `ValueError` or `TypeError`."""
    buckets = []
    for text in split_rates(rate):
        number, capacity = split_amount(text, "capacity")
        bucket_options: LimiterOptions = {**options, "prefix": f"function:{name}:{digest(text)}:", "name": name}
        buckets.append(TokenBucket(number, capacity, max_wait=0, idle=IDLE_SECONDS, **bucket_options))
    return buckets


def _counters_of(buckets: Sequence[TokenBucket], location: str, roles: tuple[str, ...]) -> list[DecisionCounter]:
    """Return the counters of the decisions of each bucket. `location`, `roles`: see `DecisionCounter`."""
    counters = []
    for position, bucket in enumerate(buckets, 1):
        counted = bucket.name if position == 1 else f"{bucket.name}:{position}"
        counters.append(DecisionCounter(LimitKind.FUNCTION, counted, bucket, location, roles=roles))
    return counters


class _FunctionLimit(NamedTuple):
    """The limit of a function. `wait`: the seconds that a call may wait. `waiting`: counts its waiting calls."""

    buckets: Sequence[TokenBucket]
    counters: Sequence[DecisionCounter]
    wait: float
    waiting: WaitingCounter
    banning: Banning | None


def _admitting(limit: _FunctionLimit, key: str) -> Steps[None]:
    """Wait for the turn of a call. A banned key is refused before that, and a refusal counts for its ban."""
    limiters: Sequence[Limiter] = limit.buckets
    counters, banning = limit.counters, limit.banning
    if current.active is not None:
        limiters, counters = yield from _overridden(limiters, counters, key)
    if banning is not None and limiters:
        refusal = yield from banning.refusing(key)
        banning.record(key, refusal)
        if refusal is not None:
            refusal = refusal.replace(limit=limiters[0].shown_limit)
            counters[0].record(key, refusal)
            raise Limited(refusal)
    try:
        with limit.waiting.wait() as waiting:
            yield from _turn(limiters, key, limit.wait, counters, waiting)
    except TooManyWaiting:
        raise
    except Limited as error:
        decision = error.decision
        if banning is None or decision.failed or not isinstance(decision, CombinedDecision):
            raise
        ban = yield from banning.counting(key, f"over {in_english(limiters[decision.refused_by or 0])}")
        if ban is None:
            raise
        seconds = max(decision.retry_after, ban.until - ban.since)
        raise Limited(decision.replace(retry_after=seconds)) from None


def _overridden(
    limiters: Sequence[Limiter], counters: Sequence[DecisionCounter], key: str
) -> Steps[tuple[Sequence[Limiter], Sequence[DecisionCounter]]]:
    """Return the limiters with the rates of overrides, and their counters. Raise `Limited` for a blocked key."""
    yield Step(current.get, current.aget, ())
    calls = overridden_calls(limiters, counters, key)
    if calls.blocked is not None:
        _count_together(counters, key, calls.blocked)
        raise Limited(calls.blocked)
    return calls.limiters, calls.counters


def _turn(
    buckets: Sequence[Limiter],
    key: str,
    wait: float,
    counters: Sequence[DecisionCounter],
    waiting: Wait,
) -> Steps[None]:
    """Wait until all buckets let the call pass, and count that as one decision of each. Raise `Limited`."""
    if not buckets:
        return
    start = time.monotonic()
    end, keys, waited = start + wait, [key] * len(buckets), False
    while True:
        decision: CombinedDecision = yield Step(combine, acombine, (buckets, keys))
        if decision.allowed:
            _count_together(counters, key, decision, time.monotonic() - start if waited else 0.0)
            return
        if time.monotonic() + decision.retry_after > end:
            _count_together(counters, key, decision, 0.0)
            raise Limited(decision)
        if not waiting.enter():
            _count_together(counters, key, decision, 0.0)
            raise waiting.refusal(decision)
        waited = True
        yield Step(time.sleep, asyncio.sleep, (max(decision.retry_after, MIN_PAUSE_SECONDS),))


def _count_together(
    counters: Sequence[DecisionCounter], key: str, combined: CombinedDecision, delay: float = 0.0
) -> None:
    """Count the decisions; of a refusal only the refusing one, because the others were undone.

    `delay`: the seconds that it waited until all of them let it pass.
    """
    for counter, decision in zip(counters, combined.decisions, strict=True):
        if decision is not None and decision.allowed == combined.allowed:
            counter.record(key, decision.replace(delay=delay) if decision.allowed else decision)
