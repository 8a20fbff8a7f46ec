"""Limits before the view runs: those of the setting RULES, and the policies of the database that match requests.

MIDDLEWARE = [..., "resty_django.limits.middleware.LimitMiddleware"]

It stands behind the middleware that its keys need: AuthenticationMiddleware for "user", SessionMiddleware for
"session". It sees requests that have a view: what no URL pattern matches is not limited.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponseBase

from . import policy
from .applied import guard_of
from .guard import SHORTEST_SLEEP
from .passage import Passage
from .site import site

_PASSAGE = "_resty_limits"


class LimitMiddleware:
    """See the module. Works in sync and in async handlers. A rule that cannot be used raises `ImproperlyConfigured`."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        try:
            policy.declared()
        except policy.BadPolicy as error:
            raise ImproperlyConfigured(f'RESTY_DJANGO["LIMITS"]["RULES"]: {error}') from error
        self.get_response = get_response
        self._async = iscoroutinefunction(get_response)
        self.process_view: Callable[..., Any] = self._before
        if self._async:
            markcoroutinefunction(self)
            self.process_view = self._abefore

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self._async:
            return self._acall(request)
        try:
            response: HttpResponseBase = self.get_response(request)
        except BaseException:
            passage = _taken(request)
            if passage is not None:
                passage.leave()
            raise
        passage = _taken(request)
        return response if passage is None else passage.finish(response)

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        try:
            response: HttpResponseBase = await self.get_response(request)
        except BaseException:
            passage = _taken(request)
            if passage is not None:
                await passage.aleave()
            raise
        passage = _taken(request)
        return response if passage is None else await passage.afinish(response)

    def _before(self, request: HttpRequest, view: Any, args: Any, kwargs: dict[str, Any]) -> HttpResponseBase | None:
        policies = policy.matching(request, request.resolver_match)
        passage = guard_of(policies).ask(request, kwargs) if policies else None
        if passage is None:
            return None
        if passage.refused is not None:
            return passage.refuse()
        setattr(request, _PASSAGE, passage)
        if passage.delay >= SHORTEST_SLEEP:
            time.sleep(min(passage.delay, site().max_delay))
            passage.begin()
        return None

    async def _abefore(
        self, request: HttpRequest, view: Any, args: Any, kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        if not policy.ready():
            await policy.aready()
        policies = policy.matching(request, request.resolver_match)
        passage = await guard_of(policies).aask(request, kwargs) if policies else None
        if passage is None:
            return None
        if passage.refused is not None:
            return await passage.arefuse()
        setattr(request, _PASSAGE, passage)
        if passage.delay >= SHORTEST_SLEEP:
            await asyncio.sleep(passage.delay)
            passage.begin()
        return None


def _taken(request: HttpRequest) -> Passage | None:
    found: Passage | None = request.__dict__.pop(_PASSAGE, None)
    return found


__all__ = ["LimitMiddleware"]
