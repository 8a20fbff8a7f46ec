"""Limits for views: functions, methods and classes, sync and async, of Django and of Django REST framework.

    @limit_req("200/s", burst=100)              leaky bucket, nginx's limit_req
    @limit_count(5000, per="1h", key="user")    fixed window
    @limit_window(100, per="1m")                sliding window
    @limit_conn(100, burst=20)                  concurrency, nginx's limit_conn
    @limit_rate("10/s", capacity=50)            token bucket
    @limit_rate_either("1000/s", "10/s")        a bucket for all and one for each: refused where both are empty
    @limit("checkout", other_limiter)           policies by name, and limiters, decided together

Decorators stand on top of each other as one likes; each decides in its turn. For a class: `method_decorator`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from datetime import timedelta
from fractions import Fraction
from math import ceil
from typing import Any, Final, TypedDict, Unpack

from . import keys
from .applied import guard_of, known
from .exempt import Exemption
from .guard import EitherGuard, Guard
from .limiters import IDLE, Concurrency, FixedWindow, LeakyBucket, Limiter, SlidingWindow, TokenBucket
from .passage import Limit
from .policy import Policy
from .rates import parse_duration, parse_rate, split_rate
from .views import Decorator

Span = str | float | timedelta

DELAY: Final = 0.1
"""Seconds that a request is taken to last, where `limit_conn` is not told."""
FINE: Final = 0.001
"""By how much a token bucket may be slower than its rate, for the sake of evenly spaced tokens."""


class Options(TypedDict, total=False):
    """What all decorators take.

    `key`: whom the limit counts together (see `resty_django.limits.keys`; default "ip"). `name`: views with a limit of
    one kind and name share it (default: each view has its own). `cost`: for how many requests one counts, a number or a
    function of the request. `methods`: those that are limited (default: all). `when`: a function of the request that
    says whether the limit applies. `exempt`: the contrary. `exempt_networks`, `exempt_permissions`: who is in one of
    these, or has one. `status`: of the response that refuses (default: the setting STATUS). `dry_run`: decide and log,
    let pass. `max_delay`: seconds for which a view sleeps at most; what the limiter wants more than that is not waited
    for (default: in sync views the setting MAX_DELAY, which is 0; in async views no bound). `store`, `on_error`: as in
    the limiters.
    """

    key: keys.KeySpec
    name: str
    cost: int | Callable[[Any], int]
    methods: Iterable[str]
    when: Callable[[Any], object]
    exempt: Callable[[Any], object]
    exempt_networks: Iterable[str]
    exempt_permissions: Iterable[str]
    status: int
    dry_run: bool
    max_delay: float
    store: Any
    on_error: str


def limit_req(
    rate: str | float, burst: float = 0, *, nodelay: bool = False, delay: float = 0, **options: Unpack[Options]
) -> Decorator:
    """At most `rate` requests a second, with `burst` more in a queue: nginx's `limit_req`.

    A queued request sleeps until its turn, where the view may sleep: see `max_delay`. `nodelay`: none sleeps. `delay`:
    so many of the burst do not sleep.
    """
    number = parse_rate(rate)
    return _one(
        "req",
        (number, burst),
        lambda **store: LeakyBucket(number, burst, **store),
        options,
        nodelay=nodelay,
        free=delay,
    )


def limit_count(limit: int, per: Span, **options: Unpack[Options]) -> Decorator:
    """`limit` requests in each window of the length `per`, which begins with the first request."""
    window = parse_duration(per)
    return _one("count", (limit, window), lambda **store: FixedWindow(limit, window, **store), options)


def limit_window(limit: int, per: Span, **options: Unpack[Options]) -> Decorator:
    """About `limit` requests in any stretch of the length `per`."""
    window = parse_duration(per)
    return _one("window", (limit, window), lambda **store: SlidingWindow(limit, window, **store), options)


def limit_conn(
    max: int, burst: int = 0, *, default_delay: Span = DELAY, lease: Span | None = 120.0, **options: Unpack[Options]
) -> Decorator:
    """At most `max` requests at a time, and `burst` more that are delayed: nginx's `limit_conn`.

    `default_delay`: how long a request takes until one was measured. `lease`: after this time the slot of a killed
    process is free again; longer than the longest request (None: never). A response that is streamed holds its slot
    until it is closed.
    """
    unit = parse_duration(default_delay)
    held = None if lease is None else parse_duration(lease)
    return _one("conn", (max, burst), lambda **store: Concurrency(max, burst, unit, lease=held, **store), options)


def limit_rate(
    rate: str | float, capacity: int | None = None, *, max_wait: Span | None = 0, **options: Unpack[Options]
) -> Decorator:
    """A token bucket: `capacity` requests at once (default: as many as `rate` names), then `rate`.

    `max_wait`: a request that would have to wait longer for its token is refused (None: none is). Waiting is sleeping,
    where the view may sleep: see `max_delay`.
    """
    numbers = bucket_numbers(rate, capacity)
    wait = None if max_wait is None else parse_duration(max_wait) * 1000
    return _one("rate", (*numbers, wait), lambda **store: TokenBucket(*numbers, wait, idle=IDLE, **store), options)


def limit_rate_either(
    total: str | float,
    each: str | float,
    *,
    total_capacity: int | None = None,
    each_capacity: int | None = None,
    **options: Unpack[Options],
) -> Decorator:
    """A token bucket for all requests and one for each `key`; a request takes from both, and is refused only where both
    are empty. So each is sure of its own rate, and may have more while there is some."""
    of_all, of_each = bucket_numbers(total, total_capacity), bucket_numbers(each, each_capacity)
    options = _checked(options)
    shared: Options = {**options, "key": "all"}

    def build(view: str) -> Guard:
        limits = [
            _limit("total", of_all, lambda **store: TokenBucket(*of_all, 0, idle=IDLE, **store), shared, view),
            _limit("each", of_each, lambda **store: TokenBucket(*of_each, 0, idle=IDLE, **store), options, view),
        ]
        return EitherGuard(limits)

    build("")
    return Decorator(build, options.get("max_delay"))


def limit(*limits: str | Limiter[Any], **options: Unpack[Options]) -> Decorator:
    """Policies by their names, and limiters: a request has to pass all of them, and none counts it otherwise.

    A policy brings its own key, methods, cost and status; the other options are for the limiters. A limiter keeps its
    state under its own prefix, whatever view it limits.
    """
    if not limits:
        raise ValueError("@limit() needs the name of a policy or a limiter.")
    options = _checked(options)
    made: list[str | Limit] = []
    for one in limits:
        if isinstance(one, Limiter):
            made.append(_applied(one.name or type(one).__name__, "", one, options))
        elif isinstance(one, str):
            made.append(one)
        else:
            raise TypeError(f"@limit() takes names of policies and limiters, not {one!r}.")

    if all(isinstance(one, Limit) for one in made):
        fixed = guard_of(one for one in made if isinstance(one, Limit))
        return Decorator(lambda view: fixed, options.get("max_delay"))

    def current() -> Guard:
        found: list[Policy | Limit] = []
        for one in made:
            source = known(one) if isinstance(one, str) else one
            if source is not None:
                found.append(source)
        return guard_of(found)

    return Decorator(lambda view: current, options.get("max_delay"))


def bucket_numbers(rate: str | float, capacity: int | None) -> tuple[int, int, int]:
    """Interval (milliseconds), capacity and quantum of a token bucket for a rate.

    The interval is whole, and the bucket never faster than its rate. One token at a time where that is not slower by
    more than a thousandth, else as many at a time as it takes, up to a second's worth.
    """
    count, seconds = split_rate(rate) if isinstance(rate, str) else (parse_rate(rate), 1.0)
    full = max(1, ceil(count)) if capacity is None else capacity
    each = Fraction(seconds).limit_denominator(10**6) * 1000 / Fraction(count).limit_denominator(10**6)
    best, loss = 1, Fraction(1)
    for quantum in range(1, max(1, min(full, int(1000 / each))) + 1):
        exact = each * quantum
        lost = (ceil(exact) - exact) / exact
        if lost < loss:
            best, loss = quantum, lost
        if loss <= FINE:
            break
    return ceil(each * best), full, best


def _one(
    kind: str, numbers: tuple[Any, ...], make: Callable[..., Limiter[Any]], options: Options, **delays: Any
) -> Decorator:
    """A decorator with one limit."""
    options = _checked(options)

    def build(view: str) -> Guard:
        return Guard([_limit(kind, numbers, make, options, view, **delays)])

    build("")  # what is wrong is to be told here and not with the first request
    return Decorator(build, options.get("max_delay"))


def _limit(
    kind: str,
    numbers: tuple[Any, ...],
    make: Callable[..., Limiter[Any]],
    options: Options,
    view: str,
    **delays: Any,
) -> Limit:
    """The limit of a view, or of all that name it."""
    key = keys.make(options["key"])
    shared = options.get("name", "")
    if shared:
        name, prefix = shared, f"named:{shared}:{kind}:"
    else:
        text = repr((kind, numbers, key.text, sorted(options["methods"])))
        digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
        name, prefix = f"{view}:{kind}", f"view:{view}:{kind}:{digest}:"
    limiter = make(prefix=prefix, name=name, store=options.get("store"), on_error=options.get("on_error"))
    return _applied(name, shared or f"{kind}-{key.label}", limiter, options, **delays)


def _applied(name: str, label: str, limiter: Limiter[Any], options: Options, **delays: Any) -> Limit:
    exemption = Exemption(
        options.get("exempt_networks", ()), options.get("exempt_permissions", ()), options.get("exempt")
    )
    return Limit(
        name,
        limiter,
        keys.make(options["key"]),
        label=label,
        cost=options.get("cost", 1),
        methods=options.get("methods", ()),
        when=options.get("when"),
        exemption=exemption,
        shadow=options.get("dry_run", False),
        status=options.get("status"),
        **delays,
    )


def _checked(options: Options) -> Options:
    """The options, in a form that may be read more than once. Raises `TypeError`, `ValueError`."""
    found: Options = {**options}
    for name in ("methods", "exempt_networks", "exempt_permissions"):
        if name in options:
            if isinstance(options[name], str):
                raise TypeError(f"{name} of a limit are a list of texts, not one text: [{options[name]!r}].")
            found[name] = tuple(options[name])
    found["methods"] = tuple(method.upper() for method in found.get("methods", ()))
    found["key"] = keys.make(options.get("key", "ip"))
    status = options.get("status", 429)
    if not 400 <= status <= 599:
        raise ValueError(f"status of a limit is that of an error, from 400 to 599, not {status!r}.")
    return found


__all__ = [
    "Options",
    "limit",
    "limit_conn",
    "limit_count",
    "limit_rate",
    "limit_rate_either",
    "limit_req",
    "limit_window",
]
