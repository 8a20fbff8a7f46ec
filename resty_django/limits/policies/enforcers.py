"""Enforcers for policies."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from django.http import HttpRequest

from resty_django.sansio import Steps
from resty_django.text import logger
from resty_django.text.suggestions import did_you_mean

from ..limiters.base import Limiter
from ..requests.chosen_rates import MISSING_FUNCTION, RequestEnforcer, asking, tier_function
from ..requests.enforcer import Enforcer
from ..requests.request_limit import LimitOptions, RequestLimit
from . import registry
from .policy_set import Policy

log = logger("resty_django.limits")

_unknown: set[str] = set()


class NamedPolicies:
    """The enforcer of named policies and other limits; it follows changes of the policies."""

    def __init__(self, sources: Sequence[str | RequestLimit]) -> None:
        self._sources = sources

    def get(self) -> Enforcer:
        """Return the current enforcer."""
        limits = [active_policy(source) if isinstance(source, str) else source for source in self._sources]
        return enforcer_for(tuple(limit for limit in limits if limit is not None))

    async def aget(self) -> Enforcer:
        """Run `get` without blocking on the first read of the policies."""
        await registry.aload_policies()
        return self.get()


def active_policy(name: str) -> Policy | None:
    """Return the policy with that name, or None if it is off or does not exist; log the latter once per process."""
    policy = registry.get_policy(name)
    if policy is not None:
        _unknown.discard(name)
        return None if policy.mode == "off" else policy
    if name not in _unknown:
        _unknown.add(name)
        hint = did_you_mean(
            name,
            registry.all_policies(),
            'Add it in the admin, or to RESTY_DJANGO["LIMITS"]["RULES"].',
        )
        log.error("Unknown limit policy %r: requests that use it are not limited. %s", name, hint)
    return None


class TieredEnforcer(RequestEnforcer):
    """Enforces the limits of the tier of each request, which the setting TIER names.

    A policy without a rate for the tier limits the request by its own rates.
    """

    def __init__(self, sources: tuple[Policy | RequestLimit, ...]) -> None:
        super().__init__()
        self._sources = sources
        self._tiers = frozenset(tier for source in sources if isinstance(source, Policy) for tier in source.tiers)
        self._without_tier = Enforcer(_limits(sources, ""))
        self._of_tier: dict[str, Enforcer] = {}

    def choosing(self, request: HttpRequest) -> Steps[Enforcer | None]:
        if not self._without_tier.applicable(request):
            return None
        function = tier_function()
        if function is None:
            _log_missing_function()
            return self._without_tier
        answer = yield asking(function, request)
        tier = answer if isinstance(answer, str) else str(answer)
        if tier not in self._tiers:
            return self._without_tier
        if tier not in self._of_tier:
            self._of_tier[tier] = Enforcer(_limits(self._sources, tier))
        return self._of_tier[tier]


@functools.cache
def _log_missing_function() -> None:
    """Log once per process that nothing names the tiers of requests."""
    log.error("The rates of the tiers of limit policies do not apply. %s", MISSING_FUNCTION)


@functools.lru_cache(256)
def enforcer_for(sources: tuple[Policy | RequestLimit, ...]) -> Enforcer:
    """Return the enforcer of policies and limits; for the same objects, return the same enforcer."""
    if any(isinstance(source, Policy) and source.tiers for source in sources):
        return TieredEnforcer(sources)
    return Enforcer(_limits(sources, ""))


def _limits(sources: Iterable[Policy | RequestLimit], tier: str) -> list[RequestLimit]:
    """Return the limits for requests of a tier ("": of a tier without rates)."""
    limits: list[RequestLimit] = []
    for source in sources:
        if isinstance(source, RequestLimit):
            limits.append(source)
        else:
            limiters = source.tiers.get(tier, source.rates)
            limits += [_limit(source, limiter, limiter is limiters[0]) for limiter in limiters]
    return limits


@functools.lru_cache(256)
def _limit(policy: Policy, limiter: Limiter, first: bool) -> RequestLimit:
    """Return the limit of one rate of a policy; a request that passes is counted by the `first` one."""
    options = LimitOptions(
        key=policy.key,
        cost=policy.cost,
        methods=policy.methods,
        exemption=policy.exemption,
        shadow=policy.mode == "shadow",
        ban=policy.ban,
        status=policy.status,
    )
    record = policy.record if first else policy.record_refusal
    return RequestLimit(policy.name, limiter, options, record=record, series=policy.name)
