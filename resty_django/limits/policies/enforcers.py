"""Enforcers for policies."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from resty_django.suggestions import did_you_mean
from resty_django.text import logger

from ..enforcement.enforcer import Enforcer
from ..enforcement.request_limits import RequestLimit
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
        return enforcer_for(limit for limit in limits if limit is not None)

    async def aget(self) -> Enforcer:
        """Run `get` without blocking on the first read of the policies."""
        await registry.aload_policies()
        return self.get()


def enforcer_for(sources: Iterable[Policy | RequestLimit]) -> Enforcer:
    """Return the enforcer of policies and limits; for the same objects, return the same enforcer."""
    return _enforcer(tuple(sources))


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


@functools.lru_cache(256)
def _enforcer(sources: tuple[Policy | RequestLimit, ...]) -> Enforcer:
    return Enforcer(source if isinstance(source, RequestLimit) else _limit(source) for source in sources)


@functools.lru_cache(256)
def _limit(policy: Policy) -> RequestLimit:
    return RequestLimit(
        policy.name,
        policy.limiter,
        policy.key,
        cost=policy.cost,
        methods=policy.methods,
        shadow=policy.mode == "shadow",
        status=policy.status,
        record=policy.record,
        series=policy.name,
    )
