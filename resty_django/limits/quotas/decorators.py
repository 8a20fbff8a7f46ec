"""The decorator that limits views by a quota: functions and methods, sync and async, Django and Django REST framework.

@quota("exports", 1000, per="month", timezone="Europe/Berlin")
@quota("exports", tiers={"free": 100, "pro": 10_000}, tier=plan_of, per="month")
@quota(exports)                                                       a `Quota` that other code uses, too
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import tzinfo
from functools import partial
from typing import Any, Unpack, cast

from ..decorators import RequestOptions, _need_brackets, _request_limit, _validated
from ..requests.chosen_rates import ChosenRates, RateFunction
from ..requests.enforcer import Enforcer
from ..requests.wrapper import ViewDecorator
from .calendar import Anchor
from .quota import MAX_BLOCK, Quota


def quota(
    source: str | Quota,
    limit: int | RateFunction | None = None,
    /,
    *,
    per: str = "",
    timezone: str | tzinfo | None = None,
    anchor: Anchor | None = None,
    tiers: Mapping[str, int | None] | None = None,
    tier: RateFunction | str | None = None,
    max_block: int = MAX_BLOCK,
    store: Any = None,
    on_error: str | None = None,
    clock: Callable[[], float] | None = None,
    **options: Unpack[RequestOptions],
) -> ViewDecorator:
    """Limit a view to the units of a quota per calendar period; a refused request gets a 429 until the period's end.

    Pass a `Quota`, or its name with the arguments of `Quota`: views with the same name are counted together. `limit`
    may be a function of the request that returns the units, or None for no limit. It has the options of the other
    decorators; `key` is "user" by default, and belongs to the quota.
    """
    _need_brackets(quota, source, '"exports", 1000, per="month"')
    if isinstance(source, Quota):
        settings = (limit, per or None, timezone, anchor, tiers, tier, store, on_error, clock, options.get("key"))
        if any(setting is not None for setting in settings) or max_block != MAX_BLOCK:
            raise TypeError("@quota() was given a Quota, which defines limit, period and key. Set them there.")
        counted = source
    else:
        counted = Quota(
            source,
            limit,
            per=per,
            timezone=timezone,
            anchor=anchor,
            key=options.get("key", "user"),
            tiers=tiers,
            tier=tier,
            max_block=max_block,
            store=store,
            on_error=on_error,
            clock=clock,
        )
    valid = cast("RequestOptions", _validated({**options, "key": counted.key}, quota, RequestOptions.__annotations__))
    enforcer_of(counted, valid)  # raises errors of the options now instead of with the first view
    return ViewDecorator(lambda view: enforcer_of(counted, valid, view), valid.get("max_delay"))


def enforcer_of(counted: Quota, options: RequestOptions, location: str = "") -> Enforcer:
    """Return the enforcer of a quota, with valid options of a decorator. `location`: its dotted name in the code."""
    if location:
        counted.list_in_catalog(location)
    shadow = options.get("dry_run", False) or not options.get("block", True)

    def limited(limit: int) -> Enforcer:
        chosen: Any = counted if limit == counted.limit else counted.with_limit(limit)
        request_limit = _request_limit(counted.name, counted.name, chosen, options, location=location)
        request_limit.record = partial(counted.record, shadow=shadow)
        request_limit.series = counted.series
        return Enforcer([request_limit])

    if counted.choice is None:
        return limited(counted._limit(None))
    model: Any = counted.with_limit(0)
    return ChosenRates(counted.choice, limited, _request_limit(counted.name, counted.name, model, options))
