"""Decorators that limit views, sync and async, of Django and Django REST framework.

    @limit_req("10/s", burst=20, key="user")
    def search(request): ...

    @limit_req("200/s", burst=100)              leaky bucket, nginx's limit_req
    @limit_count(5000, per="1h", key="user")    fixed window
    @limit_window(100, per="1m")                sliding window
    @limit_conn(100, burst=20)                  concurrency, nginx's limit_conn
    @limit_rate("10/s", capacity=50)            token bucket
    @limit_rate_either("1000/s", "10/s")        a bucket for all and one per client: either has to have a token
    @limit("checkout", other_limiter)           policies by name, and limiters, decided together
    @limit_req("10/s;1000/h")                   several rates, decided together
    @limit_req(rate=rate_of_user)               a function of the request returns the rate
    @limit_req(tiers={"free": "60/m", "pro": "600/m"}, tier=plan_of)

A limit handles a request in three steps:

1. Its key is found (`callers/keys.py`): by default the client's address, so each address has a separate count. A limit
   whose `methods`, `when` or exemptions leave the request out, or whose key function returns None, is skipped.
2. The limiter reads and changes the key's state in its store, which all processes share, and so decides: the request
   passes, passes after a delay, or is refused, which does not count it (`requests/enforcer.py`).
3. A refused request gets a 429 with `Retry-After`, as a page or as JSON (`requests/response.py`), and the view does not
   run. A delayed request sleeps before the view, at most `max_delay` seconds (`requests/wrapper.py`). The response
   reports the limit in `RateLimit` header fields.

Decorators can be stacked in any order; each decides independently. They decorate functions and methods; for a class,
apply them to `dispatch` with `method_decorator`.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Unpack

from resty_django.callables import caller
from resty_django.text.durations import Duration, parse_duration, whole_rate

from .callers import keys
from .limiters.base import Limiter
from .limiters.concurrency import Concurrency
from .limiters.rate import IDLE_SECONDS, FixedWindow, LeakyBucket, SlidingWindow, TokenBucket
from .limiters.units import parse_rate, refill_of, split_amount
from .policies.enforcers import NamedPolicies, enforcer_for
from .requests.chosen_rates import Rate
from .requests.declared import (
    DeclaredLimit,
    DecoratorOptions,
    LimiterSpec,
    RateOptions,
    RequestOptions,
    need_brackets,
    note_user,
    options_of,
    rate_argument,
)
from .requests.enforcer import EitherEnforcer, Enforcer
from .requests.request_limit import LimitOptions, RequestLimit
from .requests.wrapper import ViewDecorator
from .statistics.catalog import LimitKind

# Each decorator describes its limiter by a `LimiterSpec`, a class and its arguments. `DeclaredLimit.of` checks the
# other options. `by_limiters` and `by_rate` return the decorator, which creates the limiter for each view. `by_rate`
# takes a function from a rate to a `LimiterSpec`: there may be several rates, or the rate may depend on the request.
# A decorator passes itself to `of` and `rate_argument`, whose errors name it and its parameters.


def limit_req(
    rates: Rate | None = None,
    /,
    burst: float = 0,
    *,
    nodelay: bool = False,
    delay: float = 0,
    **options: Unpack[RateOptions],
) -> ViewDecorator:
    """Limit to a rate such as "10/s", with `burst` more requests in a queue, like nginx's `limit_req`.

    A queued request sleeps until its turn, if the view may sleep: see `max_delay`. `nodelay`: no request sleeps.
    `delay`: the number of requests of the burst that do not sleep. Of several rates, as in "10/s;1000/h", a request
    must pass all. A rate may contain its burst: "60/m burst=20".
    """

    def leaky_bucket(rate: Rate) -> LimiterSpec:
        number, burst_of_rate = split_amount(rate, "burst")
        return LimiterSpec(LeakyBucket, (parse_rate(number), burst if burst_of_rate is None else burst_of_rate))

    chosen = rate_argument(limit_req, rates, options, example='"10/s"')
    declared = DeclaredLimit.of(limit_req, "req", options, RateOptions)
    declared.options.nodelay, declared.options.undelayed = nodelay, delay
    return declared.by_rate(chosen, leaky_bucket)


def limit_count(
    count: int | Rate | None = None, /, per: Duration | None = None, **options: Unpack[RateOptions]
) -> ViewDecorator:
    """Limit to `count` requests in each window of length `per`, which begins with the first request.

    A rate such as "5000/h" replaces both `count` and `per`.
    """
    chosen = rate_argument(limit_count, count, options, example='5000, per="1h"')
    declared = DeclaredLimit.of(limit_count, "count", options, RateOptions)
    return declared.by_rate(chosen, lambda rate: LimiterSpec(FixedWindow, _window(rate, per)))


def limit_window(
    count: int | Rate | None = None, /, per: Duration | None = None, **options: Unpack[RateOptions]
) -> ViewDecorator:
    """Limit to approximately `count` requests in any period of length `per`.

    A rate such as "100/m" replaces both `count` and `per`.
    """
    chosen = rate_argument(limit_window, count, options, example='100, per="1m"')
    declared = DeclaredLimit.of(limit_window, "window", options, RateOptions)
    return declared.by_rate(chosen, lambda rate: LimiterSpec(SlidingWindow, _window(rate, per)))


def _window(rate: Rate, per: Duration | None) -> tuple[object, float]:
    """Return the limit and the seconds of a window: `rate` is a number of requests if there is `per`, else "100/m"."""
    return whole_rate(rate) if per is None else (rate, parse_duration(per))


def limit_conn(
    slots: int,
    burst: int = 0,
    *,
    default_delay: Duration = 0.1,
    lease: Duration | None = 120.0,
    **options: Unpack[DecoratorOptions],
) -> ViewDecorator:
    """Limit to `slots` concurrent requests, and `burst` more that are delayed, like nginx's `limit_conn`.

    `default_delay`: the assumed duration of a request until one was measured. `lease`: the time after which the slot of
    a killed process is released; must exceed the longest request (None: never). A streamed response holds its slot
    until it is closed.
    """
    need_brackets(limit_conn, slots, "20")
    times = {
        "default_delay": parse_duration(default_delay),
        "lease": None if lease is None else parse_duration(lease),
    }
    declared = DeclaredLimit.of(limit_conn, "conn", options)
    return declared.by_limiters([LimiterSpec(Concurrency, (slots, burst), times)])


def limit_rate(
    rates: Rate | None = None,
    /,
    capacity: int | None = None,
    *,
    max_wait: Duration | None = None,
    **options: Unpack[RateOptions],
) -> ViewDecorator:
    """Limit by a token bucket: `capacity` requests at once (default: the number in the rate), then the rate.

    `max_wait`: a request that would have to wait longer for its token is refused (None: the setting MAX_WAIT, which is
    1 second; "unlimited": no request is refused). A waiting request sleeps, if the view may sleep: see `max_delay`. At
    most MAX_WAITING requests of a process wait at the same time, except with "unlimited". A rate may contain its
    capacity: "10/s capacity=50".
    """
    if max_wait is None:
        max_wait_ms: float | str = "site"  # the limiter reads the setting MAX_WAIT
    else:
        max_wait_ms = inf if max_wait == "unlimited" else parse_duration(max_wait) * 1000

    def token_bucket(rate: Rate) -> LimiterSpec:
        number, capacity_of_rate = split_amount(rate, "capacity")
        refill = refill_of(number, capacity if capacity_of_rate is None else capacity_of_rate)
        return LimiterSpec(TokenBucket.from_interval, (*refill, max_wait_ms), {"idle": IDLE_SECONDS})

    chosen = rate_argument(limit_rate, rates, options, example='"10/s"')
    declared = DeclaredLimit.of(limit_rate, "rate", options, RateOptions)
    return declared.by_rate(chosen, token_bucket)


def limit_rate_either(
    total: str | float,
    each: str | float,
    *,
    total_capacity: int | None = None,
    each_capacity: int | None = None,
    **options: Unpack[DecoratorOptions],
) -> ViewDecorator:
    """Limit by two token buckets, one for all requests and one for each `key`. A request passes if either has a token.

    It takes one from both: each key has a guaranteed rate, and can use what others leave. A request is refused only if
    both buckets are empty.
    """

    def token_bucket(rate: str | float, capacity: int | None) -> LimiterSpec:
        arguments = {"max_wait_ms": 0, "idle": IDLE_SECONDS}  # no request waits for a token
        return LimiterSpec(TokenBucket.from_interval, refill_of(rate, capacity), arguments)

    total_bucket = token_bucket(total, total_capacity)
    each_bucket = token_bucket(each, each_capacity)
    per_key = DeclaredLimit.of(limit_rate_either, "each", options)
    shared = replace(per_key, kind="total", options=replace(per_key.options, key=keys.make("all")))

    def build(view: str) -> Enforcer:
        return EitherEnforcer([shared.for_view(view, total_bucket), per_key.for_view(view, each_bucket)])

    return per_key.decorator(build)


def limit(*limits: str | Limiter, **options: Unpack[RequestOptions]) -> ViewDecorator:
    """Limit by policies, given by name, and limiters: a request must pass all, and is counted by all or by none.

    A policy defines its key, methods, cost and status, so the options apply to the limiters only; without a limiter,
    options other than `max_delay` raise `TypeError`. A limiter defines its name, store, `on_error` and the prefix of
    its state, which all views that it limits share.
    """
    if not limits:
        raise ValueError("@limit() has no limits. Pass the name of a policy, or a limiter.")
    limit_options = options_of(limit, options)
    ignored = [name for name in options if name != "max_delay"]
    if ignored and all(isinstance(source, str) for source in limits):
        raise TypeError(
            f"{ignored[0]} has no effect on the policies of @limit(), which define it. Set it in the policy, or add a "
            "limiter."
        )
    in_order: list[str | RequestLimit] = []
    for source in limits:
        if isinstance(source, Limiter):
            in_order.append(_request_limit(source, limit_options, caller()))
        elif isinstance(source, str):
            in_order.append(source)
        else:
            raise TypeError(f"@limit() accepts names of policies and limiters, not {source!r}.")

    fixed = [source for source in in_order if isinstance(source, RequestLimit)]
    # The policies in force can change between two requests; limiters alone cannot.
    enforcer = enforcer_for(tuple(fixed)) if len(fixed) == len(in_order) else NamedPolicies(in_order)
    return ViewDecorator(lambda view: enforcer, options.get("max_delay"), advises=not limit_options.block)


def _request_limit(limiter: Limiter, options: LimitOptions, location: str) -> RequestLimit:
    """Return the limit of requests by a limiter. `location`: the place in the code, for the statistics."""
    name = limiter.name or type(limiter).__name__
    series = name if limiter.name else limiter.prefix.rstrip(":") or name
    note_user(options, location)
    return RequestLimit.counted(LimitKind.DECORATOR, name, limiter, options, series=series, location=location)
