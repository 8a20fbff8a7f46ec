"""Throttles for Django REST framework, based on the limiters and keys of this app.

    REST_FRAMEWORK = {
        "DEFAULT_THROTTLE_CLASSES": ["resty_django.limits.throttling.LeakyBucketThrottle"],
        "DEFAULT_THROTTLE_RATES": {"search": "200/s burst=100", "upload": "20/h"},
    }
    class SearchView(APIView):
        throttle_scope = "search"

The rate is the `rate` of the throttle's class, else the rate of its `scope`, else the rate of the view's
`throttle_scope`. If no rate is found or it is None, the throttle lets all requests pass. It may consist of several
rates, as in "10/s;1000/h", be a dict with the rate of each tier, or a function of the request that returns the rate, or
None for no limit. A custom class:

    class Uploads(SlidingWindowThrottle):
        rate, key = "20/h", "user"

    class Searches(LeakyBucketThrottle):
        rate, tier = {"free": "60/m", "pro": "600/m"}, "shop.plans.tier_of"

    class Exports(TokenBucketThrottle):
        rate, key = staticmethod(rate_of), "user"

Views with the same scope, or the same class with a rate, are counted together. The response has the same header fields
as in decorated views, and `wait()` returns when the next request would pass. Throttles never sleep.

`exception_handler` answers refusals as problems in JSON (RFC 9457). With the setting PROBLEM_JSON, throttles use it in
place of DRF's own handler; a site's handler calls it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Final, Unpack

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse

from resty_django import extras
from resty_django.text.durations import Duration, whole_rate

with extras.needed("Throttles for Django REST framework need"):
    from rest_framework.settings import api_settings
    from rest_framework.throttling import BaseThrottle

from .callers import keys, request_settings
from .limiters.base import Limiter, LimiterOptions
from .limiters.concurrency import Concurrency
from .limiters.rate import IDLE_SECONDS, FixedWindow, LeakyBucket, SlidingWindow, TokenBucket
from .limiters.units import parse_rate, split_amount, split_rates
from .refusals import Refusal
from .requests.check import LimitCheck
from .requests.chosen_rates import ChosenRates, RateFunction, Tiers
from .requests.enforcer import Enforcer
from .requests.headers import add_headers
from .requests.request_limit import LimitOptions, RequestLimit
from .requests.response import problem_response
from .requests.results import LimitResult
from .specs.ban import BanOptions, ban_rule
from .statistics.catalog import LimitKind

if TYPE_CHECKING:  # `rest_framework.views` imports the throttles of DEFAULT_THROTTLE_CLASSES
    from rest_framework.request import Request
    from rest_framework.response import Response
    from rest_framework.views import APIView

REPORTED_ATTRIBUTE: Final = "_resty_reported"
"""The attribute of a view with the decisions of throttles that its response reports."""
REFUSALS_ATTRIBUTE: Final = "_resty_refusals"
"""The attribute of a view with the refusals of its request by throttles."""


class LimitThrottle(BaseThrottle):
    """The base class of the throttles. `ban`, `ban_after`, `ban_within`, `max_ban`, `ban_memory`: see `BanOptions`."""

    kind: ClassVar[str]
    """The short name of the algorithm, in names of limits and their states."""
    amount: ClassVar[str] = "burst"
    """The word for the second number of a rate; "" if a rate has none."""
    scope: str | None = None
    rate: str | Mapping[str, str | None] | RateFunction | None = None
    """A rate, several in one text, a dict with the rate of each tier, or a function of the request that returns the
    rate or None; None for the rate of the scope, which may be any of these."""
    tier: RateFunction | str | None = None
    """A function of the request, or its dotted path, that returns its tier; None: the setting TIER."""
    key: keys.KeySpec = "user_or_ip"
    """How requests are grouped."""
    cost: int | keys.RequestFunction[int] = 1
    """The number of requests that one request counts as, or a function of the request that returns it."""
    ban: Duration | None = None
    ban_after: int | None = None
    ban_within: Duration | None = None
    max_ban: Duration | None = None
    ban_memory: Duration | None = None

    _enforcers: ClassVar[dict[tuple[Any, ...], Enforcer]] = {}

    def __init__(self) -> None:
        self._check: LimitCheck | None = None

    @classmethod
    def limiter(cls, rate: str, burst: int | None, **options: Unpack[LimiterOptions]) -> Limiter:
        """Return the limiter for a rate; `burst`: the number after `burst=` or `capacity=`. Raise `ValueError`."""
        raise NotImplementedError

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Return whether the request may pass. Raise `ImproperlyConfigured` if the rate is not valid."""
        self._check = None
        enforcer = self._enforcer_for(view)
        if enforcer is None:
            return True
        check = enforcer.check(request, getattr(view, "kwargs", {}))
        if check is None:
            return True
        self._check = check
        if check.holds_slots:
            _release_with(view, check)
        check.admit()
        if request_settings.current().headers:
            _report_with(view, [result for result in check.results if not result.decision.failed])
        if check.refused is not None:
            _refuse(view, check.announce())
            return False
        return True

    def wait(self) -> float | None:
        """Return the seconds until a request would pass after a refusal, or None if it never will."""
        refused = self._check.refused if self._check is not None else None
        if refused is None or refused.decision.retry_after == inf:
            return None
        return max(refused.decision.retry_after, 1.0)

    def _enforcer_for(self, view: APIView) -> Enforcer | None:
        scope, rate = self.scope, self.rate
        if callable(rate):
            rate = _declared(type(self), "rate")  # not a bound method, which would differ for each request
        if rate is None:
            scope = scope or getattr(view, "throttle_scope", None)
            rates: Any = api_settings.DEFAULT_THROTTLE_RATES
            if scope is None or (scope in rates and rates[scope] is None):
                return None
            if scope not in rates:
                raise ImproperlyConfigured(
                    f"DEFAULT_THROTTLE_RATES has no rate for the scope {scope!r}. Add one, or None for no limit."
                )
            rate = rates[scope]
        cls = type(self)
        known = cls, scope, tuple(rate.items()) if type(rate) is not str and isinstance(rate, Mapping) else rate
        enforcer = self._enforcers.get(known)
        if enforcer is None:
            enforcer = self._enforcers[known] = self._build(scope, rate)
        return enforcer

    def _build(self, scope: str | None, rate: Any) -> Enforcer:
        cls = type(self)
        name = scope or f"{cls.__module__}.{cls.__qualname__}"
        try:
            if isinstance(rate, Mapping) or callable(rate):
                choice = Tiers(rate, _declared(cls, "tier")) if isinstance(rate, Mapping) else rate
                return ChosenRates(choice, lambda chosen: Enforcer(self._limits(name, scope, chosen, alone=False)))
            return Enforcer(self._limits(name, scope, rate))
        except (ValueError, TypeError) as error:
            raise ImproperlyConfigured(f"The rate of the throttle {name!r} is not valid. {error}") from error

    def _limits(self, name: str, scope: str | None, rate: Any, alone: bool = True) -> Iterator[RequestLimit]:
        """Return the limits of a rate. Several rates of a throttle have separate states."""
        cls = type(self)
        key = keys.make(cls.__dict__.get("key", self.key))
        rates = split_rates(str(rate))
        options = {option: getattr(cls, option) for option in BanOptions.__annotations__}
        ban = ban_rule({option: value for option, value in options.items() if value is not None}, "A throttle")
        for position, text in enumerate(rates, 1):
            number, amount = split_amount(str(text), self.amount)
            state = "" if alone and len(rates) == 1 else f"{text}:"
            limiter = self.limiter(str(number), amount, prefix=f"throttle:{name}:{self.kind}:{state}", name=name)
            series = f"{name}:{self.kind}" if position == 1 else f"{name}:{self.kind}:{position}"
            yield RequestLimit.counted(
                LimitKind.THROTTLE,
                name,
                limiter,
                LimitOptions(key=key, cost=self.cost, nodelay=True, ban=ban),
                label=scope or cls.__name__,
                series=series,
                location=f"{cls.__module__}.{cls.__qualname__}",
            )


class LeakyBucketThrottle(LimitThrottle):
    """A leaky bucket; rates such as "200/s" and "200/s burst=100"."""

    kind = "req"

    @classmethod
    def limiter(cls, rate: str, burst: int | None, **options: Unpack[LimiterOptions]) -> LeakyBucket:
        return LeakyBucket(parse_rate(rate), burst or 0, **options)


class FixedWindowThrottle(LimitThrottle):
    """A fixed window; rates such as "5000/h": 5000 in each hour, which begins with the first request."""

    kind = "count"
    amount = ""

    @classmethod
    def limiter(cls, rate: str, burst: int | None, **options: Unpack[LimiterOptions]) -> FixedWindow:
        return FixedWindow(*whole_rate(rate), **options)


class SlidingWindowThrottle(LimitThrottle):
    """A sliding window; rates such as "100/m": about 100 in any minute."""

    kind = "window"
    amount = ""

    @classmethod
    def limiter(cls, rate: str, burst: int | None, **options: Unpack[LimiterOptions]) -> SlidingWindow:
        return SlidingWindow(*whole_rate(rate), **options)


class TokenBucketThrottle(LimitThrottle):
    """A token bucket; rates such as "10/s" and "10/s capacity=50"."""

    kind = "rate"
    amount = "capacity"

    @classmethod
    def limiter(cls, rate: str, burst: int | None, **options: Unpack[LimiterOptions]) -> TokenBucket:
        return TokenBucket(rate, burst, max_wait=0, idle=IDLE_SECONDS, **options)


class ConcurrencyThrottle(LimitThrottle):
    """A concurrency limit; the maximum number of concurrent requests, for example "20"."""

    kind = "conn"
    amount = ""

    @classmethod
    def limiter(cls, rate: str, burst: int | None, **options: Unpack[LimiterOptions]) -> Concurrency:
        if burst is not None or not rate.strip().isdecimal():
            raise ValueError(f'{rate!r} is not a number of concurrent requests, such as "20".')
        return Concurrency(int(rate), **options)


def _declared(cls: type, name: str) -> Any:
    """Return an attribute of a class, which may be a function, without binding it."""
    value = inspect.getattr_static(cls, name)
    return value.__func__ if isinstance(value, staticmethod) else value


def exception_handler(exc: Exception, context: dict[str, Any]) -> Response | HttpResponse | None:
    """Answer a refusal by throttles of this package as a problem in JSON, and anything else as DRF does.

    Clients that negotiated a renderer other than JSON, such as the browsable API, get DRF's response.
    """
    from rest_framework import exceptions, views

    response = views.exception_handler(exc, context)
    refusals: tuple[Refusal, ...] = getattr(context.get("view"), REFUSALS_ATTRIBUTE, ())
    renderer = getattr(context.get("request"), "accepted_renderer", None)
    if not (refusals and isinstance(exc, exceptions.Throttled) and "json" in getattr(renderer, "media_type", "json")):
        return response
    longest = max(refusals, key=lambda refusal: refusal.decision.retry_after)
    others = getattr(exc, "wait", None) or 0  # of throttles of other packages
    wait = max(longest.decision.retry_after, others)
    violated = dict.fromkeys(label for refusal in refusals for label in refusal.violated)
    decision = longest.decision.replace(retry_after=wait)
    return problem_response(longest._replace(decision=decision, status=exc.status_code, violated=tuple(violated)))


def _refuse(view: Any, refusal: Refusal) -> None:
    """Remember a refusal for `exception_handler`. With PROBLEM_JSON, use it, unless the site has its own handler."""
    from rest_framework import views

    if isinstance(view, views.APIView):
        setattr(view, REFUSALS_ATTRIBUTE, (*getattr(view, REFUSALS_ATTRIBUTE, ()), refusal))
        if request_settings.current().section.problem_json and view.get_exception_handler() is views.exception_handler:
            view.get_exception_handler = lambda: exception_handler  # type: ignore[method-assign]


def _report_with(view: Any, decisions: Iterable[LimitResult]) -> None:
    """Set the header fields of decisions when the view finishes its response.

    DRF would copy them from `view.headers` with methods that check each value, which takes longer than the decision.
    """
    reported: list[LimitResult] | None = getattr(view, REPORTED_ATTRIBUTE, None)
    if reported is not None:
        reported.extend(decisions)
    elif hasattr(view, "finalize_response"):
        reported = [*decisions]
        setattr(view, REPORTED_ATTRIBUTE, reported)
        view.finalize_response = partial(_finalize, view.finalize_response, reported)


def _finalize(finalize: Callable[..., Any], reported: Iterable[LimitResult], *args: Any, **kwargs: Any) -> Any:
    response = finalize(*args, **kwargs)
    fields = request_settings.current().headers
    for result in reported:
        add_headers(response.headers, result.limit.advertised, result.decision, fields)
    return response


def _release_with(view: Any, check: LimitCheck) -> None:
    """Release the slot when the view returns or raises: every DRF view calls one of these two methods."""
    finalize, fail = view.finalize_response, view.raise_uncaught_exception

    def finalize_response(*args: Any, **kwargs: Any) -> Any:
        response = finalize(*args, **kwargs)
        check.release_after(response)
        return response

    def raise_uncaught_exception(error: Exception) -> None:
        check.release()
        fail(error)

    view.finalize_response = finalize_response
    view.raise_uncaught_exception = raise_uncaught_exception
