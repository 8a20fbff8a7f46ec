"""The decorator that limits views by a quota: functions and methods, sync and async, Django and Django REST framework.

@quota("exports", 1000, per="month", timezone="Europe/Berlin")
@quota("exports", tiers={"free": 100, "pro": 10_000}, tier=plan_of, per="month")
@quota(exports)                                                       a `Quota` that other code uses, too
"""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack, cast

from ..limiters.validation import unknown_option
from ..requests.chosen_rates import ChosenRates, RateFunction
from ..requests.declared import RequestOptions, need_brackets, note_user, options_of
from ..requests.enforcer import Enforcer
from ..requests.request_limit import LimitOptions, RequestLimit
from ..requests.wrapper import ViewDecorator
from .quota import Quota, QuotaSettings


class QuotaDecoratorOptions(RequestOptions, QuotaSettings, total=False):
    """Options of `quota`: the options of a `Quota` and of the other decorators."""

    per: str
    """The period of the quota, as in `Quota`."""


def quota(
    source: str | Quota,
    limit: int | RateFunction | None = None,
    /,
    **options: Unpack[QuotaDecoratorOptions],
) -> ViewDecorator:
    """Limit a view to the units of a quota per calendar period; a refused request gets a 429 until the period's end.

    Pass a `Quota`, or its name with the arguments of `Quota`: views with the same name are counted together. `limit`
    may be a function of the request that returns the units, or None for no limit. `options`: `QuotaOptions`, and the
    `RequestOptions` of the other decorators; `key` is "user" by default, and belongs to the quota.

    Raise `TypeError` or `ValueError` for wrong arguments.
    """
    need_brackets(quota, source, '"exports", 1000, per="month"')
    for name in options:
        if name not in QuotaDecoratorOptions.__annotations__:
            raise TypeError(unknown_option("@quota()", name, quota, QuotaDecoratorOptions.__annotations__))
    of_quota = {
        name: value for name, value in options.items() if name == "key" or name not in RequestOptions.__annotations__
    }
    if not isinstance(source, Quota):
        counted = Quota(source, limit, **cast("Any", {"per": "", **of_quota}))
    elif limit is None and all(value is None for value in of_quota.values()):
        counted = source
    else:
        raise TypeError("@quota() was given a Quota, which defines limit, period and key. Set them there.")
    of_requests = {name: value for name, value in options.items() if name in RequestOptions.__annotations__}
    limit_options = options_of(quota, cast("RequestOptions", {**of_requests, "key": counted.key}))
    enforcer_of(counted, limit_options)  # raises errors of the options now instead of with the first view
    return ViewDecorator(
        lambda view: enforcer_of(counted, limit_options, view),
        options.get("max_delay"),
        advises=not limit_options.block,
    )


def enforcer_of(counted: Quota, options: LimitOptions, location: str = "") -> Enforcer:
    """Return the enforcer of a quota. `location`: the dotted name of the view or throttle (empty: do not list it)."""
    if location:
        counted.list_in_catalog(location)
        note_user(options, location)
    record = partial(counted.record, shadow=options.shadow or not options.block)

    def limited(limit: int) -> Enforcer:
        chosen: Any = counted if limit == counted.limit else counted.with_limit(limit)
        request_limit = RequestLimit(counted.name, chosen, options, record=record, series=counted.series)
        if location and request_limit.ban is not None:
            request_limit.ban.list_in_catalog(location)
        return Enforcer([request_limit])

    if counted.choice is None:
        return limited(counted.shown_limit)
    return ChosenRates(counted.choice, limited, options.apply_to)
