"""The quotas of the current customer, for code and as a page.

from resty_django import limits

for usage in limits.usage(request):
    print(usage.quota, usage.used, usage.limit, usage.resets_at)
"""

from __future__ import annotations

from functools import partial

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from resty_django.sansio import Step, Steps, arun, run

from ..callers import keys
from ..requests.chosen_rates import Tiers, asking
from . import registry
from .quota import Quota, Usage


def usage(request: HttpRequest) -> list[Usage]:
    """Return the usage of the request's customer in all quotas that limit the customer, by name.

    The list excludes quotas of modules that were not imported yet, and quotas whose key does not identify the customer:
    "user" without a logged-in user, "all", "path" and "view". Raise `django.db.Error`.
    """
    return run(_usage(request))


async def ausage(request: HttpRequest) -> list[Usage]:
    """Run `usage` without blocking the event loop."""
    for quota in registry.all_quotas():
        await keys.load(request, quota.key.needs_user, quota.key.needs_session)
    return await arun(_usage(request))


def _usage(request: HttpRequest) -> Steps[list[Usage]]:
    usages = []
    for quota in registry.all_quotas():
        key = own_key(quota, request)
        if key is None:
            continue
        limit = yield from _limit(quota, request)
        override = yield from quota.overriding(key)
        if limit is not None and not (override is not None and override.lifts):
            usages.append((yield Step(partial(quota.usage, key, limit=limit), partial(quota.ausage, key, limit=limit))))
    return usages


def own_key(quota: Quota, request: HttpRequest) -> str | None:
    """Return the key of the request's customer, or None if the quota's key does not identify one."""
    parts = quota.key.text.replace("|", "+").split("+")
    if not {"all", "path", "view"}.isdisjoint(parts):
        return None
    key = quota.key.of(request, {})
    return None if key is None or keys.MISSING in key.split("|") else key


def _limit(quota: Quota, request: HttpRequest) -> Steps[int | None]:
    choice = quota.choice
    if choice is None:
        return quota.limit
    if isinstance(choice, Tiers):
        limit: int | None = yield from choice.choosing(request)
    else:
        limit = yield asking(choice, request)
    return limit


@never_cache
@require_safe
def usage_page(request: HttpRequest) -> HttpResponse:
    """Show the usage of the request's customer, with the template `resty_limits/usage.html`."""
    return render(request, "resty_limits/usage.html", {"usages": usage(request)})
