"""Decorators that limit views: functions, methods and classes, sync and async, Django and Django REST framework.

    @limit_req("10/s", burst=20, key="user")
    def search(request): ...

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

A limit handles a request in three steps:

1. Its key is found (`callers/keys.py`): by default the client's address, so each address has a separate count. A limit
   whose `methods`, `when` or exemptions leave the request out, or whose key function returns None, is skipped.
2. The limiter reads and changes the key's state in its store, which all processes share, and so decides: the request
   passes, passes after a delay, or is refused, which does not count it (`requests/enforcer.py`).
3. A refused request gets a 429 with `Retry-After`, as a page or as JSON (`requests/response.py`), and the view does not
   run. A delayed request sleeps before the view, at most `max_delay` seconds (`requests/wrapper.py`). The response
   reports the limit in `RateLimit` header fields.

Decorators can be stacked in any order; each decides independently. For a class, use `method_decorator`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Literal, Unpack, cast

from resty_django.callables import caller
from resty_django.shdict import SharedDict
from resty_django.text.durations import Duration, parse_duration, whole_rate

from .callers import keys
from .callers.exemptions import Exemption
from .callers.keys import RequestFunction
from .limiters.base import Limiter
from .limiters.concurrency import Concurrency
from .limiters.rate import IDLE_SECONDS, FixedWindow, LeakyBucket, SlidingWindow, TokenBucket
from .limiters.units import parse_rate, refill_of, split_amount, split_rates
from .limiters.validation import unknown_option
from .policies.enforcers import NamedPolicies, enforcer_for
from .requests.chosen_rates import ChosenRates, Rate, RateFunction, Tiers
from .requests.enforcer import EitherEnforcer, Enforcer
from .requests.request_limit import LimitOptions, RequestLimit
from .requests.wrapper import ViewDecorator
from .specs.ban import BanOptions, ban_rule
from .statistics.catalog import LimitKind, limits_by_user
from .stores import LocalStore


class RequestOptions(BanOptions, total=False):
    """Options of all decorators; `BanOptions` has more."""

    key: keys.KeySpec
    """How requests are grouped, see `resty_django.limits.callers.keys` (default: "ip")."""
    cost: int | RequestFunction[int]
    """The number of requests that one request counts as, or a function of the request that returns it (default: 1)."""
    methods: Iterable[str]
    """The limited methods (default: all); "GET" includes HEAD."""
    when: RequestFunction[object]
    """Returns whether the limit applies to a request."""
    exempt: RequestFunction[object]
    """Returns whether a request is exempt."""
    exempt_networks: Iterable[str]
    """Networks of exempt clients, such as "10.0.0.0/8"."""
    exempt_permissions: Iterable[str]
    """Permissions of exempt users, such as "shop.add_order"."""
    status: int
    """The status of refusals (default: the setting STATUS, 429)."""
    dry_run: bool
    """Decide and log, but let all requests pass."""
    block: bool
    """With False, all requests pass, and the view decides with `request.limits`."""
    count_when: Callable[[Any], object]
    """Returns whether a request with this response counts. A request whose view raises does not."""
    max_delay: float
    """The maximum number of seconds that a view sleeps; longer delays are cut (default: the setting MAX_DELAY, which is
    0, in sync views; no limit in async views)."""


class DecoratorOptions(RequestOptions, total=False):
    """Options of the decorators that create a limiter."""

    name: str
    """Views share a limit of the same kind and name (default: each view has a separate limit)."""
    store: str | SharedDict | LocalStore | None
    """As in the limiters, like `on_error`."""
    on_error: str | None


# --- the decorators ---


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

    def bucket(text: Rate) -> LimiterSpec:
        number, own_burst = split_amount(text, "burst")
        return LimiterSpec(LeakyBucket, (parse_rate(number), burst if own_burst is None else own_burst))

    rate_argument = _rate_argument(limit_req, limit, rate, tiers, tier, example='"10/s"')
    declared = DeclaredLimit.of(limit_req, "req", options, nodelay=nodelay, undelayed=delay)
    return declared.by_rate(rate_argument, bucket)


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
    rate_argument = _rate_argument(limit_count, limit, rate, tiers, tier, example='5000, per="1h"')
    declared = DeclaredLimit.of(limit_count, "count", options)
    return declared.by_rate(rate_argument, lambda text: LimiterSpec(FixedWindow, _window(text, per)))


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
    rate_argument = _rate_argument(limit_window, limit, rate, tiers, tier, example='100, per="1m"')
    declared = DeclaredLimit.of(limit_window, "window", options)
    return declared.by_rate(rate_argument, lambda text: LimiterSpec(SlidingWindow, _window(text, per)))


def limit_conn(
    max: int,
    burst: int = 0,
    *,
    default_delay: Duration = 0.1,
    lease: Duration | None = 120.0,
    **options: Unpack[DecoratorOptions],
) -> ViewDecorator:
    """Limit to `max` concurrent requests, and `burst` more that are delayed, like nginx's `limit_conn`.

    `default_delay`: the assumed duration of a request until one was measured. `lease`: the time after which the slot of
    a killed process is released; must exceed the longest request (None: never). A streamed response holds its slot
    until it is closed.
    """
    need_brackets(limit_conn, max, "20")
    times = {
        "default_delay": parse_duration(default_delay),
        "lease": None if lease is None else parse_duration(lease),
    }
    declared = DeclaredLimit.of(limit_conn, "conn", options)
    return declared.decorator([LimiterSpec(Concurrency, (max, burst), times)])


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
    max_wait_ms: float | Literal["site"] = "site"
    if max_wait == "unlimited":
        max_wait_ms = inf
    elif max_wait is not None:
        max_wait_ms = parse_duration(max_wait) * 1000

    def bucket(text: Rate) -> LimiterSpec:
        number, own_capacity = split_amount(text, "capacity")
        refill = refill_of(number, capacity if own_capacity is None else own_capacity)
        return LimiterSpec(TokenBucket.from_interval, (*refill, max_wait_ms), {"idle": IDLE_SECONDS})

    rate_argument = _rate_argument(limit_rate, limit, rate, tiers, tier, example='"10/s"')
    return DeclaredLimit.of(limit_rate, "rate", options).by_rate(rate_argument, bucket)


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

    def bucket(rate: str | float, capacity: int | None) -> LimiterSpec:
        return LimiterSpec(
            TokenBucket.from_interval, refill_of(rate, capacity), {"max_wait_ms": 0, "idle": IDLE_SECONDS}
        )

    buckets = bucket(total, total_capacity), bucket(each, each_capacity)
    per_key = DeclaredLimit.of(limit_rate_either, "each", options)
    shared = replace(per_key, kind="total", options=replace(per_key.options, key=keys.make("all")))

    def build(view: str) -> Enforcer:
        return EitherEnforcer([shared.for_view(view, buckets[0]), per_key.for_view(view, buckets[1])])

    return _checked(build, per_key.max_delay)


def limit(*limits: str | Limiter, **options: Unpack[RequestOptions]) -> ViewDecorator:
    """Limit by policies, given by name, and limiters: a request must pass all, and is counted by all or by none.

    A policy defines its key, methods, cost and status. All options except `max_delay` are for the limiters, so they
    raise `TypeError` if there are only policies. A limiter stores its state under its prefix, whatever view it limits,
    and defines its name, store and `on_error`.
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
    sources: list[str | RequestLimit] = []
    for source in limits:
        if isinstance(source, Limiter):
            name = source.name or type(source).__name__
            series = name if source.name else source.prefix.rstrip(":") or name
            location = caller()
            note_user(limit_options, location)
            kind = LimitKind.DECORATOR
            sources.append(RequestLimit.counted(kind, name, source, limit_options, series=series, location=location))
        elif isinstance(source, str):
            sources.append(source)
        else:
            raise TypeError(f"@limit() accepts names of policies and limiters, not {source!r}.")

    fixed = [source for source in sources if isinstance(source, RequestLimit)]
    in_force = enforcer_for(tuple(fixed)) if len(fixed) == len(sources) else NamedPolicies(sources)
    return ViewDecorator(lambda view: in_force, options.get("max_delay"))


# --- from a decorator's arguments to the limits of a view ---


@dataclass(frozen=True)
class LimiterSpec:
    """How to create the limiter of a view: `limiter(*numbers, **arguments)`, with its prefix, name and store.

    The `numbers` are part of the name of the state, so a limit with new numbers starts unused.
    """

    limiter: Callable[..., Limiter]
    numbers: tuple[object, ...]
    arguments: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class DeclaredLimit:
    """The valid arguments of a decorator other than its rate. Each view that it decorates gets a separate limit.

    `kind`: the short name of the algorithm, in names of limits and their states. `name`, `store`, `on_error`,
    `max_delay`: as in `DecoratorOptions`.
    """

    kind: str
    options: LimitOptions
    name: str
    store: str | SharedDict | LocalStore | None
    on_error: str | None
    max_delay: float | None

    @classmethod
    def of(
        cls,
        decorator: Callable[..., ViewDecorator],
        kind: str,
        options: DecoratorOptions,
        *,
        nodelay: bool = False,
        undelayed: float = 0,
    ) -> DeclaredLimit:
        """Return the declaration with the options of a decorator. Raise `TypeError` or `ValueError`."""
        return cls(
            kind=kind,
            options=replace(
                options_of(decorator, options, DecoratorOptions.__annotations__), nodelay=nodelay, undelayed=undelayed
            ),
            name=options.get("name", ""),
            store=options.get("store"),
            on_error=options.get("on_error"),
            max_delay=options.get("max_delay"),
        )

    def by_rate(self, rate: Rate | RateFunction | Tiers, limiter: Callable[[Rate], LimiterSpec]) -> ViewDecorator:
        """Return the decorator for a rate, for several in one text, or for a rate that depends on the request.

        `limiter`: returns the limiter for one rate. Raise `TypeError` or `ValueError`.
        """
        if not (callable(rate) or isinstance(rate, Tiers)):
            return self.decorator([limiter(text) for text in split_rates(rate)])

        def build(view: str) -> Enforcer:
            def enforcer(chosen: Rate) -> Enforcer:
                texts = enumerate(split_rates(chosen), 1)
                return Enforcer(self.for_view(view, limiter(text), position) for position, text in texts)

            return ChosenRates(rate, enforcer, self.options.apply_to)

        self.for_view("", limiter("1/s"))  # raises errors of the options now instead of with the first request
        return _checked(build, self.max_delay)

    def decorator(self, limiters: Sequence[LimiterSpec]) -> ViewDecorator:
        """Return the decorator for these limiters, all of which a request must pass."""
        first = 0 if len(limiters) == 1 else 1

        def build(view: str) -> Enforcer:
            return Enforcer(self.for_view(view, spec, position) for position, spec in enumerate(limiters, first))

        return _checked(build, self.max_delay)

    def for_view(self, view: str, spec: LimiterSpec, position: int = 0) -> RequestLimit:
        """Return the limit for the view with that name, or for all views with the same option `name`.

        `position`: the position of the rate in a text with several, from 1; 0 for the only rate. Without a `view`, the
        limit is not listed and its decisions are not counted.
        """
        key = self.options.key
        if self.name:
            numbers = f"{keys.digest(spec.numbers)}:" if position else ""
            name, prefix = self.name, f"named:{self.name}:{self.kind}:{numbers}"
            label, series = self.name, f"{self.name}:{self.kind}"
        else:
            state = keys.digest((self.kind, spec.numbers, key.text, sorted(self.options.methods)))
            name, prefix = f"{view}:{self.kind}", f"view:{view}:{self.kind}:{state}:"
            label, series = f"{self.kind}-{key.label}", name
        common = {"prefix": prefix, "name": name, "store": self.store, "on_error": self.on_error}
        limiter = spec.limiter(*spec.numbers, **spec.arguments, **common)
        if not view:
            return RequestLimit(name, limiter, self.options, label=label)
        series = series if position <= 1 else f"{series}:{position}"
        note_user(self.options, view)
        return RequestLimit.counted(
            LimitKind.DECORATOR, name, limiter, self.options, label=label, series=series, location=view
        )


def note_user(options: LimitOptions, location: str) -> None:
    """Note the place of a limit that needs the user of a request, for the system check."""
    if options.needs_user:
        limits_by_user[location] = None


def _checked(build: Callable[[str], Enforcer], max_delay: float | None) -> ViewDecorator:
    """Return the decorator. Raise errors of its limits now instead of with the first view."""
    build("")
    return ViewDecorator(build, max_delay)


# --- validation of a decorator's arguments ---


def options_of(
    decorator: Callable[..., ViewDecorator],
    options: RequestOptions,
    names: Iterable[str] = RequestOptions.__annotations__,
) -> LimitOptions:
    """Return the options of a decorator. `names`: the options that it accepts. Raise `TypeError` or `ValueError`."""
    for name in options:
        if name not in names:
            title = f"@{decorator.__name__}()"
            if decorator is limit and name in DecoratorOptions.__annotations__:
                raise TypeError(f"{title} has no option {name!r}. Set it where you create the limiter.")
            raise TypeError(unknown_option(title, name, decorator, names))
    for name in ("methods", "exempt_networks", "exempt_permissions"):
        if isinstance(options.get(name), str):
            raise TypeError(f"{name} of a limit must be a list, not one string. Write [{options.get(name)!r}].")
    return LimitOptions(
        key=keys.make(options.get("key", "ip")),
        cost=options.get("cost", 1),
        methods=[method.upper() for method in options.get("methods", ())],
        when=options.get("when"),
        exemption=Exemption(
            options.get("exempt_networks", ()), options.get("exempt_permissions", ()), options.get("exempt")
        ),
        count_when=options.get("count_when"),
        shadow=options.get("dry_run", False),
        block=options.get("block", True),
        status=options.get("status"),
        ban=ban_rule(options, "A limit"),
    )


def _rate_argument(
    decorator: Callable[..., ViewDecorator],
    limit: Rate | None,
    rate: Rate | RateFunction | None,
    tiers: Mapping[str, Rate | None] | None,
    tier: RateFunction | str | None,
    *,
    example: str,
) -> Rate | RateFunction | Tiers:
    """Return the one argument that defines the rate. `example`: valid arguments. Raise `TypeError`."""
    need_brackets(decorator, limit, example)
    title = f"@{decorator.__name__}()"
    rates = [value for value in (limit, rate, tiers) if value is not None]
    if len(rates) != 1:
        count = "several rates" if rates else "no rate"
        raise TypeError(
            f"{title} has {count}. Pass one of: a rate, as in @{decorator.__name__}({example}), rate=, tiers=."
        )
    if tiers is not None:
        return Tiers(tiers, tier)
    if tier is not None:
        raise TypeError(f'{title}: tier= needs tiers=, such as tiers={{"free": "60/m", "pro": "600/m"}}.')
    return cast("Rate | RateFunction", rates[0])


def _window(text: Rate, per: Duration | None) -> tuple[object, float]:
    """Return the limit and the seconds of a window: of a rate such as "100/m", or with `per`, of a number."""
    return whole_rate(text) if per is None else (text, parse_duration(per))


def need_brackets(decorator: Callable[..., ViewDecorator], argument: object, example: str) -> None:
    """Raise `TypeError` where the argument is the view: the decorator was written without brackets."""
    if callable(argument):
        name = decorator.__name__
        raise TypeError(
            f"@{name} was given the view {getattr(argument, '__name__', argument)!s} in place of its limit. Write the "
            f"limit in brackets: @{name}({example})."
        )
