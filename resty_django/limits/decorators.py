"""Decorators that limit views: functions, methods and classes, sync and async, Django and Django REST framework.

    @limit_req("200/s", burst=100)              leaky bucket, nginx's limit_req
    @limit_count(5000, per="1h", key="user")    fixed window
    @limit_window(100, per="1m")                sliding window
    @limit_conn(100, burst=20)                  concurrency, nginx's limit_conn
    @limit_rate("10/s", capacity=50)            token bucket
    @limit_rate_either("1000/s", "10/s")        a shared bucket and one per key: refused if both are empty
    @limit("checkout", other_limiter)           policies by name, and limiters, decided together
    @limit_req("10/s;1000/h")                   several rates, decided together
    @limit_req(rate=rate_of)                    a function of the request returns the rate
    @limit_req(tiers={"free": "60/m", "pro": "600/m"}, tier=plan_of)

Decorators can be stacked in any order; each decides independently. For a class, use `method_decorator`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, Final, Literal, Self, Unpack, cast

from resty_django.callables import caller
from resty_django.text.durations import Duration, parse_duration, whole_rate

from .callers import keys
from .callers.exemptions import Exemption
from .limiters.base import Limiter
from .limiters.concurrency import Concurrency
from .limiters.rate import IDLE, SITE, FixedWindow, LeakyBucket, SlidingWindow, TokenBucket
from .limiters.units import parse_rate, refill_of, split_amount, split_rates
from .limiters.validation import unknown_option
from .policies.enforcers import NamedPolicies, enforcer_for
from .requests.chosen_rates import ChosenRates, Rate, RateFunction, Tiers
from .requests.enforcer import EitherEnforcer, Enforcer
from .requests.request_limit import RequestLimit
from .requests.wrapper import ViewDecorator
from .specs.ban import BanOptions, ban_rule
from .statistics.catalog import DECORATOR, limits_by_user
from .statistics.counting import DecisionCounter

DELAY: Final = 0.1
"""The assumed duration of a request in `limit_conn`, in seconds, until a latency was measured."""
UNLIMITED: Final = "unlimited"
"""The `max_wait` of `limit_rate` with which no request is refused."""


class RequestOptions(BanOptions, total=False):
    """Options of all decorators; `BanOptions` has more.

    `key`: how requests are grouped (see `resty_django.limits.callers.keys`; default "ip"). `cost`: the number of
    requests that one request counts as, or a function of the request that returns it. `methods`: limited methods
    (default: all; "GET" includes HEAD). `when`: a function of the request that returns whether the limit applies.
    `exempt`: a function of the request that returns whether the request is exempt. `exempt_networks`,
    `exempt_permissions`: networks and user permissions that are exempt. `status`: the status of refusals (default: the
    setting STATUS). `dry_run`: decide and log, but let all requests pass. `block`: with False, all requests pass, and
    the view decides with `request.limits`. `count_when`: a function of the response that returns whether the request
    counts; a request whose view raises does not. `max_delay`: the maximum number of seconds that a view sleeps; longer
    delays are cut (default: the setting MAX_DELAY, which is 0, in sync views; no limit in async views).
    """

    key: keys.KeySpec
    cost: int | Callable[[Any], int]
    methods: Iterable[str]
    when: Callable[[Any], object]
    exempt: Callable[[Any], object]
    exempt_networks: Iterable[str]
    exempt_permissions: Iterable[str]
    status: int
    dry_run: bool
    block: bool
    count_when: Callable[[Any], object]
    max_delay: float


class DecoratorOptions(RequestOptions, total=False):
    """Options of the decorators that create a limiter.

    `name`: views share a limit of the same kind and name (default: each view has a separate limit). `store`,
    `on_error`: as in the limiters.
    """

    name: str
    store: Any
    on_error: str


@dataclass(frozen=True, kw_only=True)
class LimitSpec:
    """A limit declared by a decorator: `validate` it once, then `build` it for each view.

    `kind` and `numbers` are part of the name of the state. `make`: creates the limiter from its options. `nodelay`,
    `undelayed`: as in `RequestLimit`. `alone`: False if the decorator has several rates, so that views with the same
    option `name` count each of them. `position`: the position of the rate in a text with several, from 1.
    """

    decorator: Callable[..., ViewDecorator]
    kind: str
    numbers: tuple[Any, ...]
    make: Callable[..., Limiter[Any]]
    options: DecoratorOptions
    nodelay: bool = False
    undelayed: float = 0
    alone: bool = True
    position: int = 1

    def validate(self) -> Self:
        """Return the spec with options that can be read repeatedly. Raise `TypeError` or `ValueError`."""
        options = _validated(self.options, self.decorator, DecoratorOptions.__annotations__)
        return replace(self, options=cast("DecoratorOptions", options))

    def build(self, view: str, counted: bool = True) -> RequestLimit:
        """Return the limit for the view with that name, or for all views with the same option `name`.

        `counted`: whether its decisions appear in the statistics (never without a view).
        """
        options = self.options
        key = keys.make(options["key"])
        shared = options.get("name", "")
        if shared:
            digest = "" if self.alone else f"{keys.digest(self.numbers)}:"
            name, prefix = shared, f"named:{shared}:{self.kind}:{digest}"
        else:
            digest = keys.digest((self.kind, self.numbers, key.text, sorted(options["methods"])))
            name, prefix = f"{view}:{self.kind}", f"view:{view}:{self.kind}:{digest}:"
        limiter = self.make(prefix=prefix, name=name, store=options.get("store"), on_error=options.get("on_error"))
        label = shared or f"{self.kind}-{key.label}"
        series = f"{shared}:{self.kind}" if shared else name
        series = series if self.position == 1 else f"{series}:{self.position}"
        return _request_limit(
            name,
            label,
            limiter,
            options,
            nodelay=self.nodelay,
            undelayed=self.undelayed,
            series=series if view and counted else "",
            location=view,
        )


def limit_req(
    limit: Rate | None = None,
    /,
    burst: float = 0,
    *,
    rate: Rate | RateFunction | None = None,
    tiers: Mapping[str, Rate | None] | None = None,
    tier: RateFunction | str | None = None,
    nodelay: bool = False,
    delay: float = 0,
    **options: Unpack[DecoratorOptions],
) -> ViewDecorator:
    """Limit to `rate` requests per second, with `burst` more in a queue, like nginx's `limit_req`.

    A queued request sleeps until its turn, if the view may sleep: see `max_delay`. `nodelay`: no request sleeps.
    `delay`: the number of requests of the burst that do not sleep.

    The rate is the first argument or `rate`: a rate such as "10/s"; several, as in "10/s;1000/h", all of which a
    request must pass; or, only as `rate`, a function of the request that returns a rate, or None for no limit. `tiers`:
    instead, the rate of each tier. `tier`: a function of the request that returns its tier (default: the setting TIER).
    A rate may contain its burst: "60/m burst=20".
    """

    def spec(text: Rate) -> LimitSpec:
        piece, own = split_amount(text, "burst")
        number, queued = parse_rate(piece), burst if own is None else own
        return LimitSpec(
            decorator=limit_req,
            kind="req",
            numbers=(number, queued),
            make=partial(LeakyBucket, number, queued),
            options=options,
            nodelay=nodelay,
            undelayed=delay,
        )

    return _rated(limit_req, spec, limit, rate, tiers, tier, '"10/s"')


def limit_count(
    limit: int | Rate | None = None,
    /,
    per: Duration | None = None,
    *,
    rate: Rate | RateFunction | None = None,
    tiers: Mapping[str, Rate | None] | None = None,
    tier: RateFunction | str | None = None,
    **options: Unpack[DecoratorOptions],
) -> ViewDecorator:
    """Limit to `limit` requests in each window of length `per`, which begins with the first request.

    Instead of both, pass a rate such as "5000/h" as the first argument, or `rate`, `tiers` and `tier` as in
    `limit_req`.
    """

    spec = partial(_window_spec, limit_count, "count", FixedWindow, per, options)
    return _rated(limit_count, spec, limit, rate, tiers, tier, '5000, per="1h"')


def limit_window(
    limit: int | Rate | None = None,
    /,
    per: Duration | None = None,
    *,
    rate: Rate | RateFunction | None = None,
    tiers: Mapping[str, Rate | None] | None = None,
    tier: RateFunction | str | None = None,
    **options: Unpack[DecoratorOptions],
) -> ViewDecorator:
    """Limit to approximately `limit` requests in any period of length `per`.

    Instead of both, pass a rate such as "100/m" as the first argument, or `rate`, `tiers` and `tier` as in
    `limit_req`.
    """

    spec = partial(_window_spec, limit_window, "window", SlidingWindow, per, options)
    return _rated(limit_window, spec, limit, rate, tiers, tier, '100, per="1m"')


def _window_spec(
    decorator: Callable[..., ViewDecorator],
    kind: str,
    limiter: Callable[..., Limiter[Any]],
    per: Duration | None,
    options: DecoratorOptions,
    text: Rate,
) -> LimitSpec:
    """Return the limit for one rate such as "100/m", or with `per`, for a number of requests."""
    most, window = whole_rate(text) if per is None else (text, parse_duration(per))
    make = partial(limiter, most, window)
    return LimitSpec(decorator=decorator, kind=kind, numbers=(most, window), make=make, options=options)


def limit_conn(
    max: int,
    burst: int = 0,
    *,
    default_delay: Duration = DELAY,
    lease: Duration | None = 120.0,
    **options: Unpack[DecoratorOptions],
) -> ViewDecorator:
    """Limit to `max` concurrent requests, and `burst` more that are delayed, like nginx's `limit_conn`.

    `default_delay`: the assumed duration of a request until one was measured. `lease`: the time after which the slot of
    a killed process is released; must exceed the longest request (None: never). A streamed response holds its slot
    until it is closed.
    """
    _need_brackets(limit_conn, max, "20")
    make = partial(
        Concurrency,
        max,
        burst,
        parse_duration(default_delay),
        lease=None if lease is None else parse_duration(lease),
    )
    return _decorator(LimitSpec(decorator=limit_conn, kind="conn", numbers=(max, burst), make=make, options=options))


def limit_rate(
    limit: Rate | None = None,
    /,
    capacity: int | None = None,
    *,
    rate: Rate | RateFunction | None = None,
    tiers: Mapping[str, Rate | None] | None = None,
    tier: RateFunction | str | None = None,
    max_wait: Duration | None = None,
    **options: Unpack[DecoratorOptions],
) -> ViewDecorator:
    """Limit by a token bucket: `capacity` requests at once (default: the number in the rate), then the rate.

    `max_wait`: a request that would have to wait longer for its token is refused (None: the setting MAX_WAIT, which is
    1 second; "unlimited": no request is refused). A waiting request sleeps, if the view may sleep: see `max_delay`. At
    most MAX_WAITING requests of a process wait at the same time, except with "unlimited". `rate`, `tiers`,
    `tier`: as in `limit_req`. A rate may contain its capacity: "10/s capacity=50".
    """
    wait_ms: float | Literal["site"] = SITE
    if max_wait == UNLIMITED:
        wait_ms = inf
    elif max_wait is not None:
        wait_ms = parse_duration(max_wait) * 1000

    def spec(text: Rate) -> LimitSpec:
        piece, own = split_amount(text, "capacity")
        numbers = (*refill_of(piece, capacity if own is None else own), wait_ms)
        make = partial(TokenBucket.from_interval, *numbers, idle=IDLE)
        return LimitSpec(decorator=limit_rate, kind="rate", numbers=numbers, make=make, options=options)

    return _rated(limit_rate, spec, limit, rate, tiers, tier, '"10/s"')


def limit_rate_either(
    total: str | float,
    each: str | float,
    *,
    total_capacity: int | None = None,
    each_capacity: int | None = None,
    **options: Unpack[DecoratorOptions],
) -> ViewDecorator:
    """Limit by a token bucket for all requests and one for each `key`; a request takes from both.

    The request is refused only if both are empty: each key has a guaranteed rate and can use what others leave.
    """
    numbers = refill_of(each, each_capacity)
    per_key = LimitSpec(
        decorator=limit_rate_either, kind="each", numbers=numbers, make=_bucket(numbers), options=options
    ).validate()
    numbers = refill_of(total, total_capacity)
    shared: DecoratorOptions = {**per_key.options, "key": "all"}
    overall = replace(per_key, kind="total", numbers=numbers, make=_bucket(numbers), options=shared)
    return _decorator(overall, per_key, enforcer=EitherEnforcer)


def _bucket(numbers: tuple[float, int, int]) -> Callable[..., TokenBucket]:
    return partial(TokenBucket.from_interval, *numbers, 0, idle=IDLE)


def limit(*limits: str | Limiter[Any], **options: Unpack[RequestOptions]) -> ViewDecorator:
    """Limit by policies, given by name, and limiters: a request must pass all, and is counted by all or by none.

    A policy defines its key, methods, cost and status. All options except `max_delay` are for the limiters, so they
    raise `TypeError` if there are only policies. A limiter stores its state under its prefix, whatever view it limits,
    and defines its name, store and `on_error`.
    """
    if not limits:
        raise ValueError("@limit() has no limits. Pass the name of a policy, or a limiter.")
    ignored = [name for name in options if name != "max_delay"]
    valid = cast("RequestOptions", _validated(options, limit, RequestOptions.__annotations__))
    if ignored and all(isinstance(source, str) for source in limits):
        raise TypeError(
            f"{ignored[0]} has no effect on the policies of @limit(), which define it. Set it in the policy, or add a "
            "limiter."
        )
    sources: list[str | RequestLimit] = []
    for source in limits:
        if isinstance(source, Limiter):
            name = source.name or type(source).__name__
            series = name if source.name else source.prefix.rstrip(":") or name
            sources.append(_request_limit(name, "", source, valid, series=series, location=caller()))
        elif isinstance(source, str):
            sources.append(source)
        else:
            raise TypeError(f"@limit() accepts names of policies and limiters, not {source!r}.")

    fixed = [source for source in sources if isinstance(source, RequestLimit)]
    in_force = enforcer_for(tuple(fixed)) if len(fixed) == len(sources) else NamedPolicies(sources)
    return ViewDecorator(lambda view: in_force, valid.get("max_delay"))


def _rated(
    decorator: Callable[..., ViewDecorator],
    spec: Callable[[Any], LimitSpec],
    limit: Any,
    rate: Any,
    tiers: Mapping[str, Any] | None,
    tier: Any,
    example: str,
) -> ViewDecorator:
    """Return a decorator with one rate, several, or one for each request. Raise `TypeError` or `ValueError`."""
    _need_brackets(decorator, limit, example)
    title = f"@{decorator.__name__}()"
    given = [value for value in (limit, rate, tiers) if value is not None]
    if len(given) != 1:
        found = "no rate" if not given else "several rates"
        raise TypeError(
            f"{title} has {found}. Pass one of: a rate, as in @{decorator.__name__}({example}), rate=, tiers=."
        )
    if tier is not None and tiers is None:
        raise TypeError(f'{title}: tier= needs tiers=, such as tiers={{"free": "60/m", "pro": "600/m"}}.')
    if tiers is None and not callable(rate):
        return _decorator(*_specs(spec, given[0]))
    choice = rate if tiers is None else Tiers(tiers, tier)

    valid = spec("1/s").validate()  # raises errors of the options now instead of with the first request

    def build(view: str) -> Enforcer:
        def enforcer(chosen: Any) -> Enforcer:
            return Enforcer(replace(one.validate(), alone=False).build(view) for one in _specs(spec, chosen))

        return ChosenRates(choice, enforcer, valid.build(view, counted=False))

    build("")
    return ViewDecorator(build, valid.options.get("max_delay"))


def _specs(spec: Callable[[Any], LimitSpec], rate: Any) -> list[LimitSpec]:
    """Return the specs of a rate, or of several in one text."""
    rates = split_rates(rate)
    if len(rates) == 1:
        return [spec(rates[0])]
    return [replace(spec(one), alone=False, position=position) for position, one in enumerate(rates, 1)]


def _decorator(*specs: LimitSpec, enforcer: type[Enforcer] = Enforcer) -> ViewDecorator:
    """Return a decorator with these limits. Raise `TypeError` or `ValueError` if one is not valid."""
    first = specs[0].validate()
    others = [
        replace(spec, options=first.options) if spec.options is specs[0].options else spec.validate()
        for spec in specs[1:]
    ]
    valid = [first, *others]

    def build(view: str) -> Enforcer:
        return enforcer([spec.build(view) for spec in valid])

    build("")  # raise errors now instead of with the first request
    return ViewDecorator(build, valid[0].options.get("max_delay"))


def _request_limit(
    name: str,
    label: str,
    limiter: Limiter[Any],
    options: RequestOptions,
    *,
    nodelay: bool = False,
    undelayed: float = 0,
    series: str = "",
    location: str = "",
) -> RequestLimit:
    """Return the limit of a decorator. It is counted under `series`, with its `location` in the code, unless empty."""
    block = options.get("block", True)
    shadow = options.get("dry_run", False)
    key, counter = keys.make(options["key"]), None
    if series:
        advises = shadow or not block
        counter = DecisionCounter(
            DECORATOR, series, limiter, location, shadow=advises, nodelay=nodelay, roles=key.roles
        )
    exemption = Exemption(
        options.get("exempt_networks", ()), options.get("exempt_permissions", ()), options.get("exempt")
    )
    if location and (key.needs_user or exemption.needs_user):
        limits_by_user[location] = None
    limit = RequestLimit(
        name,
        limiter,
        key,
        label=label,
        cost=options.get("cost", 1),
        methods=options.get("methods", ()),
        when=options.get("when"),
        exemption=exemption,
        shadow=shadow,
        block=block,
        count_when=options.get("count_when"),
        ban=ban_rule(cast("BanOptions", options), "A limit"),
        status=options.get("status"),
        nodelay=nodelay,
        undelayed=undelayed,
        record=None if counter is None else counter.record,
        series="" if counter is None else counter.series,
    )
    if limit.ban is not None and location:
        limit.ban.list_in_catalog(location)
    return limit


def _validated(
    options: Mapping[str, Any], decorator: Callable[..., ViewDecorator], names: Iterable[str]
) -> dict[str, Any]:
    """Return the options of a decorator, ready for repeated reading. Raise `TypeError` or `ValueError`."""
    for name in options:
        if name not in names:
            raise TypeError(_unknown_option(name, names, decorator))
    valid: dict[str, Any] = {**options}
    for name in ("methods", "exempt_networks", "exempt_permissions"):
        if name in valid:
            if isinstance(valid[name], str):
                raise TypeError(f"{name} of a limit must be a list, not one string. Write [{valid[name]!r}].")
            valid[name] = tuple(valid[name])
    valid["methods"] = tuple(method.upper() for method in valid.get("methods", ()))
    valid["key"] = keys.make(valid.get("key", "ip"))
    count_when = valid.get("count_when")
    if count_when is not None and not callable(count_when):
        raise TypeError(f"count_when of a limit must be a function of the response, not {count_when!r}.")
    status = valid.get("status", 429)
    if not 400 <= status <= 599:
        raise ValueError(f"status of a limit must be an error status from 400 to 599, not {status!r}.")
    return valid


def _need_brackets(decorator: Callable[..., ViewDecorator], argument: object, example: str) -> None:
    """Raise `TypeError` where the argument is the view: the decorator was written without brackets."""
    if callable(argument):
        name = decorator.__name__
        raise TypeError(
            f"@{name} was given the view {getattr(argument, '__name__', argument)!s} in place of its limit. Write the "
            f"limit in brackets: @{name}({example})."
        )


def _unknown_option(name: str, names: Iterable[str], decorator: Callable[..., ViewDecorator]) -> str:
    title = f"@{decorator.__name__}()"
    if decorator is limit and name in DecoratorOptions.__annotations__:
        return f"{title} has no option {name!r}. Set it where you create the limiter."
    return unknown_option(title, name, decorator, names)
