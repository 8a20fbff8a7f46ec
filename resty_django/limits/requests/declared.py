"""From the arguments of a decorator to the limits of each view that it decorates.

    declared = DeclaredLimit.of(limit_req, "req", {"key": "user"})
    declared.by_rate("10/s", leaky_bucket)  # the `ViewDecorator`

A decorator checks its arguments when the module of the view is imported. The limiters are created later, when the
decorator is applied: the name of the view is part of the name of their state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from resty_django.shdict import SharedDict

from ..callers import keys
from ..callers.exemptions import Exemption
from ..callers.keys import RequestFunction
from ..limiters.base import Limiter
from ..limiters.units import split_rates
from ..limiters.validation import unknown_option
from ..specs.ban import BanOptions, ban_rule
from ..statistics.catalog import LimitKind, limits_by_user
from ..stores import LocalStore
from .chosen_rates import ChosenRates, Rate, RateFunction, Tiers
from .enforcer import Enforcer
from .request_limit import LimitOptions, RequestLimit
from .wrapper import ViewDecorator


class RequestOptions(BanOptions, total=False):
    """Options of all decorators; `BanOptions` has more."""

    key: keys.KeySpec
    """How requests are grouped (default: "ip")."""
    cost: int | RequestFunction[int]
    """The number of requests that one request counts as, or a function of the request that returns it (default: 1). If
    it can never pass, the request is refused without `Retry-After`."""
    methods: Iterable[str]
    """The limited methods (default: all); "GET" includes HEAD."""
    when: RequestFunction[object]
    """Returns whether the limit applies to a request."""
    exempt: RequestFunction[object]
    """Returns whether a request is exempt."""
    exempt_networks: Iterable[str]
    """Networks of exempt clients, such as "10.0.0.0/8". The setting EXEMPT_NETWORKS holds for all limits."""
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
    """Views share a limit of the same kind and name (default: each view has a separate limit). Clients see the name in
    the headers."""
    store: str | SharedDict | LocalStore | None
    """The store of the state, as for limiters (default: the setting STORE)."""
    on_error: str | None
    """The decision while the store cannot be used, as for limiters (default: the setting ON_ERROR)."""


class RateOptions(DecoratorOptions, total=False):
    """Options of the decorators with a rate. It is their first argument, or one of these."""

    rate: Rate | RateFunction | None
    """The rate; or a function of the request that returns a rate, or None for no limit."""
    tiers: Mapping[str, Rate | None] | None
    """The rate of each tier of customers; None: no limit."""
    tier: RateFunction | str | None
    """With `tiers`: a function of the request that returns its tier, or its dotted path (default: the setting TIER)."""


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

    `kind`: the short name of the algorithm, in the names of limits and of their states. `name`, `store`, `on_error`,
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
        accepted: type[DecoratorOptions] = DecoratorOptions,
    ) -> DeclaredLimit:
        """Return the declaration with these options. `accepted`: the type of the options that the decorator has.

        Raise `TypeError` or `ValueError`, with a message about `decorator`.
        """
        return cls(
            kind=kind,
            options=options_of(decorator, options, accepted.__annotations__),
            name=options.get("name", ""),
            store=options.get("store"),
            on_error=options.get("on_error"),
            max_delay=options.get("max_delay"),
        )

    def by_rate(self, chosen: Rate | RateFunction | Tiers, spec_of: Callable[[Rate], LimiterSpec]) -> ViewDecorator:
        """Return the decorator for a rate, for several in one text, or for a rate that depends on the request.

        `spec_of`: returns the limiter for one rate. Raise `TypeError` or `ValueError`.
        """
        if not (callable(chosen) or isinstance(chosen, Tiers)):
            return self.by_limiters([spec_of(rate) for rate in split_rates(chosen)])

        def enforcer_of(view: str, rates: Rate) -> Enforcer:
            return Enforcer(
                self.for_view(view, spec_of(rate), position) for position, rate in enumerate(split_rates(rates), 1)
            )

        def build(view: str) -> Enforcer:
            self.for_view(view, spec_of("1/s"), counted=False)  # raises errors and lists bans before the first request
            return ChosenRates(chosen, partial(enforcer_of, view), self.options.apply_to)

        return self.decorator(build)

    def by_limiters(self, specs: Sequence[LimiterSpec]) -> ViewDecorator:
        """Return the decorator for these limiters, all of which a request must pass."""
        if len(specs) == 1:
            return self.decorator(lambda view: Enforcer([self.for_view(view, specs[0])]))
        return self.decorator(
            lambda view: Enforcer(self.for_view(view, spec, position) for position, spec in enumerate(specs, 1))
        )

    def decorator(self, build: Callable[[str], Enforcer]) -> ViewDecorator:
        """Return the decorator; `build` returns the enforcer of the view with a name."""
        build("")  # a trial: wrong arguments raise their errors now instead of with the first view
        return ViewDecorator(build, self.max_delay, advises=not self.options.block)

    def for_view(
        self, view: str, spec: LimiterSpec, position: int | None = None, *, counted: bool = True
    ) -> RequestLimit:
        """Return the limit for the view with that name, or for all views with the same option `name`.

        `position`: the position of the rate, from 1, if there may be several (None: there is only one). `counted`:
        whether to list the limit and to count its decisions; without a `view`, neither it nor its bans are listed.
        """
        key = self.options.key
        # `prefix` names the state, `name` the limit in logs, `label` in header fields, `series` in statistics.
        if self.name:
            name, label, series = self.name, self.name, f"{self.name}:{self.kind}"
            prefix = f"named:{self.name}:{self.kind}:"
            if position is not None:
                prefix += f"{keys.digest(spec.numbers)}:"
        else:
            name = series = f"{view}:{self.kind}"
            label = f"{self.kind}-{key.label}"
            state = keys.digest((self.kind, spec.numbers, key.text, sorted(self.options.methods)))
            prefix = f"view:{view}:{self.kind}:{state}:"
        if position is not None and position > 1:
            series = f"{series}:{position}"
        limiter = spec.limiter(
            *spec.numbers, **spec.arguments, prefix=prefix, name=name, store=self.store, on_error=self.on_error
        )
        if view:
            note_user(self.options, view)
        if not (view and counted):
            limit = RequestLimit(name, limiter, self.options, label=label)
            if view and limit.ban is not None:
                limit.ban.list_in_catalog(view)
            return limit
        return RequestLimit.counted(
            LimitKind.DECORATOR, name, limiter, self.options, label=label, series=series, location=view
        )


def note_user(options: LimitOptions, location: str) -> None:
    """Note the place of a limit that needs the user of a request, for the system check."""
    if options.needs_user:
        limits_by_user[location] = None


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
            if name in DecoratorOptions.__annotations__:  # of `@limit`
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


def rate_argument(
    decorator: Callable[..., ViewDecorator], limit: Rate | None, options: RateOptions, *, example: str
) -> Rate | RateFunction | Tiers:
    """Return the rate of a decorator: its first argument, `rate` or `tiers`.

    `example`: valid arguments. Raise `TypeError` unless exactly one of them is given.
    """
    need_brackets(decorator, limit, example)
    title = f"@{decorator.__name__}()"
    tiers, tier = options.get("tiers"), options.get("tier")
    rates = [value for value in (limit, options.get("rate"), tiers) if value is not None]
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


def need_brackets(decorator: Callable[..., ViewDecorator], argument: object, example: str) -> None:
    """Raise `TypeError` where the argument is the view: the decorator was written without brackets."""
    if callable(argument):
        name = decorator.__name__
        raise TypeError(
            f"@{name} was given the view {getattr(argument, '__name__', argument)!s} in place of its limit. Write the "
            f"limit in brackets: @{name}({example})."
        )
