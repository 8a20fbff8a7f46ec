"""The middleware that enforces the rules in the setting RULES and the policies in the database that match a request.

MIDDLEWARE = [..., "resty_django.limits.middleware.LimitMiddleware"]

Place it after the middleware that its keys need: AuthenticationMiddleware for "user", SessionMiddleware for "session".
It only limits requests that have a view, not requests that match no URL pattern.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponseBase

from .callers import request_settings
from .policies import registry
from .policies.enforcers import enforcer_for
from .requests.check import LimitCheck
from .specs.policy_validation import BadPolicy

_CHECK = "_resty_limits"


class LimitMiddleware:
    """Enforces policies in sync and async handlers. Raises `ImproperlyConfigured` if a rule is not valid."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        try:
            registry.declared_policies()
        except BadPolicy as error:
            raise ImproperlyConfigured(f'RESTY_DJANGO["LIMITS"]["RULES"]: {error}') from error
        self.get_response = get_response
        self._async = iscoroutinefunction(get_response)
        self.process_view: Callable[..., Any] = self._process_view
        if self._async:
            markcoroutinefunction(self)
            self.process_view = self._aprocess_view

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self._async:
            return self._acall(request)
        try:
            response: HttpResponseBase = self.get_response(request)
        except BaseException:
            check = _pop_check(request)
            if check is not None:
                check.abandon()
            raise
        check = _pop_check(request)
        return response if check is None else check.finish(response)

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        try:
            response: HttpResponseBase = await self.get_response(request)
        except BaseException:
            check = _pop_check(request)
            if check is not None:
                await check.aabandon()
            raise
        check = _pop_check(request)
        return response if check is None else await check.afinish(response)

    def _process_view(
        self, request: HttpRequest, view: object, args: object, kwargs: dict[str, object]
    ) -> HttpResponseBase | None:
        policies = registry.policies_for(request, request.resolver_match)
        check = enforcer_for(policies).check(request, kwargs) if policies else None
        if check is None:
            return None
        if check.refused is not None:
            return check.refuse()
        setattr(request, _CHECK, check)
        if check.delay and not check.wait_turn(request_settings.current().max_delay):
            _pop_check(request)
            return check.refuse()
        return None

    async def _aprocess_view(
        self, request: HttpRequest, view: object, args: object, kwargs: dict[str, object]
    ) -> HttpResponseBase | None:
        if not registry.is_loaded():
            await registry.aload_policies()
        policies = registry.policies_for(request, request.resolver_match)
        check = await enforcer_for(policies).acheck(request, kwargs) if policies else None
        if check is None:
            return None
        if check.refused is not None:
            return await check.arefuse()
        setattr(request, _CHECK, check)
        if check.delay and not await check.await_turn(inf):
            _pop_check(request)
            return await check.arefuse()
        return None


def _pop_check(request: HttpRequest) -> LimitCheck | None:
    check: LimitCheck | None = request.__dict__.pop(_CHECK, None)
    return check
