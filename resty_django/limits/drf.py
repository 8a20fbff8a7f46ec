"""Throttles of Django REST framework, on the limiters and keys of this app.

    REST_FRAMEWORK = {
        "DEFAULT_THROTTLE_CLASSES": ["resty_django.limits.drf.LeakyBucketThrottle"],
        "DEFAULT_THROTTLE_RATES": {"search": "200/s burst=100", "upload": "20/h"},
    }
    class SearchView(APIView):
        throttle_scope = "search"

The rate is the `rate` of the throttle's class, else that of its `scope`, else that of the view's `throttle_scope`;
without any the throttle lets pass, and so it does where the rate is None. A class of a site's own:

    class Uploads(SlidingWindowThrottle):
        rate, key = "20/h", "user"

Views with one scope, or one class with a rate, are counted together. The response tells of its limits as those of
decorated views do, and `wait()` is when the next request would pass. No throttle sleeps.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar, Final

from django.core.exceptions import ImproperlyConfigured
from rest_framework.request import Request
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from . import keys
from .decorators import bucket_numbers
from .guard import Guard
from .limiters import IDLE, Concurrency, FixedWindow, LeakyBucket, Limiter, SlidingWindow, TokenBucket
from .passage import Limit, Passage
from .rates import parse_rate, split_rate

_WITH_BURST: Final = re.compile(r"(.*?)\s+(?:burst|capacity)=([0-9]+)\s*")


class LimitThrottle(BaseThrottle):
    """The base of the throttles.

    `key`: whom it counts together. `cost`: for how many requests one counts, or a function of the request.
    """

    kind: ClassVar[str]
    scope: str | None = None
    rate: str | None = None
    key: keys.KeySpec = "user_or_ip"
    cost: int | Callable[[Any], int] = 1

    _guards: ClassVar[dict[tuple[Any, ...], Guard]] = {}

    def __init__(self) -> None:
        self._passage: Passage | None = None

    @classmethod
    def limiter(cls, rate: str, burst: int | None, **options: Any) -> Limiter[Any]:
        """The limiter of a rate; `burst` is what stood behind it. Raises `ValueError`."""
        raise NotImplementedError

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Decide. Raises `ImproperlyConfigured` where the rate cannot be read."""
        guard = self._guard(view)
        passage = self._passage = guard.ask(request, getattr(view, "kwargs", {})) if guard is not None else None
        if passage is None:
            return True
        if passage.holding:
            _leave_with(view, passage)
        if hasattr(view, "headers"):
            passage.tell(view.headers)
        if passage.refused is not None:
            passage.announce()
            return False
        return True

    def wait(self) -> float | None:
        """Seconds until a request would pass, after one that was refused."""
        refused = self._passage.refused if self._passage is not None else None
        return None if refused is None else max(refused.decision.retry_after, 1.0)

    def _guard(self, view: APIView) -> Guard | None:
        scope, rate = self.scope, self.rate
        if rate is None:
            scope = scope or getattr(view, "throttle_scope", None)
            rates: Any = api_settings.DEFAULT_THROTTLE_RATES
            if scope is None or (scope in rates and rates[scope] is None):
                return None
            if scope not in rates:
                raise ImproperlyConfigured(f"DEFAULT_THROTTLE_RATES has no rate for the scope {scope!r}.")
            rate = rates[scope]
        found = self._guards.get((type(self), scope, rate))
        if found is None:
            found = self._guards[type(self), scope, rate] = self._made(scope, str(rate))
        return found

    def _made(self, scope: str | None, rate: str) -> Guard:
        cls = type(self)
        name = scope or f"{cls.__module__}.{cls.__qualname__}"
        text, burst = rate, None
        with_burst = _WITH_BURST.fullmatch(rate)
        if with_burst is not None:
            text, burst = with_burst[1], int(with_burst[2])
        try:
            limiter = self.limiter(text, burst, prefix=f"throttle:{name}:{self.kind}:", name=name)
            key = keys.make(cls.__dict__.get("key", self.key))
        except (ValueError, TypeError) as error:
            raise ImproperlyConfigured(f"The rate of the throttle {name!r}: {error}") from error
        return Guard([Limit(name, limiter, key, label=scope or cls.__name__, cost=self.cost, nodelay=True)])


class LeakyBucketThrottle(LimitThrottle):
    """Rates such as "200/s" and "200/s burst=100"."""

    kind = "req"

    @classmethod
    def limiter(cls, rate: str, burst: int | None, **options: Any) -> LeakyBucket:
        return LeakyBucket(parse_rate(rate), burst or 0, **options)


class FixedWindowThrottle(LimitThrottle):
    """Rates such as "5000/h": so many in each hour, which begins with the first request."""

    kind = "count"

    @classmethod
    def limiter(cls, rate: str, burst: int | None, **options: Any) -> FixedWindow:
        return FixedWindow(*_quota(rate, burst), **options)


class SlidingWindowThrottle(LimitThrottle):
    """Rates such as "100/m": so many in any minute."""

    kind = "window"

    @classmethod
    def limiter(cls, rate: str, burst: int | None, **options: Any) -> SlidingWindow:
        return SlidingWindow(*_quota(rate, burst), **options)


class TokenBucketThrottle(LimitThrottle):
    """Rates such as "10/s" and "10/s capacity=50"."""

    kind = "rate"

    @classmethod
    def limiter(cls, rate: str, burst: int | None, **options: Any) -> TokenBucket:
        return TokenBucket(*bucket_numbers(rate, burst), max_wait=0, idle=IDLE, **options)


class ConcurrencyThrottle(LimitThrottle):
    """So many requests at a time, for example "20"."""

    kind = "conn"

    @classmethod
    def limiter(cls, rate: str, burst: int | None, **options: Any) -> Concurrency:
        if burst is not None or not rate.strip().isdecimal():
            raise ValueError(f'{rate!r} is not a number of requests at a time, such as "20".')
        return Concurrency(int(rate), **options)


def _quota(rate: str, burst: int | None) -> tuple[int, float]:
    count, seconds = split_rate(rate)
    if burst is not None or not count.is_integer():
        raise ValueError(f'{rate!r} is not a whole number of requests in a time, such as "5000/h".')
    return int(count), seconds


def _leave_with(view: Any, passage: Passage) -> None:
    """Give back the slot when the view has its response, or has none: every view of DRF comes by one of two places."""
    finalize, fail = view.finalize_response, view.raise_uncaught_exception

    def finalize_response(*args: Any, **kwargs: Any) -> Any:
        response = finalize(*args, **kwargs)
        passage.settle(response)
        return response

    def raise_uncaught_exception(error: Exception) -> None:
        passage.leave()
        fail(error)

    view.finalize_response = finalize_response
    view.raise_uncaught_exception = raise_uncaught_exception


__all__ = [
    "ConcurrencyThrottle",
    "FixedWindowThrottle",
    "LeakyBucketThrottle",
    "LimitThrottle",
    "SlidingWindowThrottle",
    "TokenBucketThrottle",
]
