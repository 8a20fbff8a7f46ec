"""Throttles for Django REST framework, based on the limiters and keys of this app.

    REST_FRAMEWORK = {
        "DEFAULT_THROTTLE_CLASSES": ["resty_django.limits.throttling.LeakyBucketThrottle"],
        "DEFAULT_THROTTLE_RATES": {"search": "200/s burst=100", "upload": "20/h"},
    }
    class SearchView(APIView):
        throttle_scope = "search"

The rate is the `rate` of the throttle's class, else the rate of its `scope`, else the rate of the view's
`throttle_scope`. If no rate is found or it is None, the throttle lets all requests pass. A custom class:

    class Uploads(SlidingWindowThrottle):
        rate, key = "20/h", "user"

Views with the same scope, or the same class with a rate, are counted together. The response has the same header fields
as in decorated views, and `wait()` returns when the next request would pass. Throttles never sleep.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Final, Unpack

from django.core.exceptions import ImproperlyConfigured

from resty_django import extras

with extras.needed("Throttles for Django REST framework need"):
    from rest_framework.settings import api_settings
    from rest_framework.throttling import BaseThrottle

from .enforcement import keys
from .enforcement.enforcer import Enforcer
from .enforcement.request_limits import LimitCheck, RequestLimit
from .limiters.base import Limiter, LimiterOptions
from .limiters.concurrency import Concurrency
from .limiters.rate import IDLE, FixedWindow, LeakyBucket, SlidingWindow, TokenBucket
from .limiters.units import parse_rate, split_rate

if TYPE_CHECKING:  # `rest_framework.views` imports the throttles of DEFAULT_THROTTLE_CLASSES
    from rest_framework.request import Request
    from rest_framework.views import APIView

_WITH_BURST: Final = re.compile(r"(.*?)\s+(?:burst|capacity)=([0-9]+)\s*")


class LimitThrottle(BaseThrottle):
    """The base class of the throttles.

    `key`: how requests are grouped. `cost`: the number of requests that a request counts as, or a function of it.
    """

    kind: ClassVar[str]
    scope: str | None = None
    rate: str | None = None
    key: keys.KeySpec = "user_or_ip"
    cost: int | Callable[[Any], int] = 1

    _enforcers: ClassVar[dict[tuple[Any, ...], Enforcer]] = {}

    def __init__(self) -> None:
        self._check: LimitCheck | None = None

    @classmethod
    def limiter(cls, rate: str, burst: int | None, **options: Unpack[LimiterOptions]) -> Limiter[Any]:
        """Return the limiter for a rate; `burst`: the number after `burst=` or `capacity=`. Raise `ValueError`."""
        raise NotImplementedError

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Return whether the request may pass. Raise `ImproperlyConfigured` if the rate is not valid."""
        enforcer = self._enforcer_for(view)
        check = self._check = enforcer.check(request, getattr(view, "kwargs", {})) if enforcer is not None else None
        if check is None:
            return True
        if check.holds_slots:
            _release_with(view, check)
        check.admit()
        if hasattr(view, "headers"):
            check.set_headers(view.headers)
        if check.refused is not None:
            check.announce()
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
        enforcer = self._enforcers.get((type(self), scope, rate))
        if enforcer is None:
            enforcer = self._enforcers[type(self), scope, rate] = self._build(scope, str(rate))
        return enforcer

    def _build(self, scope: str | None, rate: str) -> Enforcer:
        cls = type(self)
        name = scope or f"{cls.__module__}.{cls.__qualname__}"
        text, burst = rate, None
        with_burst = _WITH_BURST.fullmatch(rate)
        if with_burst is not None:
            text, burst = with_burst[1], int(with_burst[2])
        try:
            limiter = self.limiter(text, burst, prefix=f"throttle:{name}:{self.kind}:", name=name)
            key = keys.make(cls.__dict__.get("key", self.key))
            return Enforcer(
                [RequestLimit(name, limiter, key, label=scope or cls.__name__, cost=self.cost, nodelay=True)]
            )
        except (ValueError, TypeError) as error:
            raise ImproperlyConfigured(f"The rate of the throttle {name!r} is not valid. {error}") from error


class LeakyBucketThrottle(LimitThrottle):
    """A leaky bucket; rates such as "200/s" and "200/s burst=100"."""

    kind = "req"

    @classmethod
    def limiter(cls, rate: str, burst: int | None, **options: Unpack[LimiterOptions]) -> LeakyBucket:
        return LeakyBucket(parse_rate(rate), burst or 0, **options)


class FixedWindowThrottle(LimitThrottle):
    """A fixed window; rates such as "5000/h": 5000 in each hour, which begins with the first request."""

    kind = "count"

    @classmethod
    def limiter(cls, rate: str, burst: int | None, **options: Unpack[LimiterOptions]) -> FixedWindow:
        return FixedWindow(*_quota(rate, burst), **options)


class SlidingWindowThrottle(LimitThrottle):
    """A sliding window; rates such as "100/m": 100 in any minute."""

    kind = "window"

    @classmethod
    def limiter(cls, rate: str, burst: int | None, **options: Unpack[LimiterOptions]) -> SlidingWindow:
        return SlidingWindow(*_quota(rate, burst), **options)


class TokenBucketThrottle(LimitThrottle):
    """A token bucket; rates such as "10/s" and "10/s capacity=50"."""

    kind = "rate"

    @classmethod
    def limiter(cls, rate: str, burst: int | None, **options: Unpack[LimiterOptions]) -> TokenBucket:
        return TokenBucket(rate, burst, max_wait=0, idle=IDLE, **options)


class ConcurrencyThrottle(LimitThrottle):
    """A concurrency limit; the maximum number of concurrent requests, for example "20"."""

    kind = "conn"

    @classmethod
    def limiter(cls, rate: str, burst: int | None, **options: Unpack[LimiterOptions]) -> Concurrency:
        if burst is not None or not rate.strip().isdecimal():
            raise ValueError(f'{rate!r} is not a number of concurrent requests, such as "20".')
        return Concurrency(int(rate), **options)


def _quota(rate: str, burst: int | None) -> tuple[int, float]:
    count, seconds = split_rate(rate)
    if burst is not None or not count.is_integer():
        raise ValueError(f'{rate!r} is not a whole number of requests in a time, such as "5000/h".')
    return int(count), seconds


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
