"""Policies as limits of requests."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable

from . import policy
from .guard import Guard
from .passage import Limit
from .policy import Policy

log = logging.getLogger("resty_django.limits")

_unknown: set[str] = set()


def guard_of(sources: Iterable[Policy | Limit]) -> Guard:
    """The guard of some policies and limits; the same objects get the same guard."""
    return _guard(tuple(sources))


def known(name: str) -> Policy | None:
    """The policy of that name; None for one that is off, or that there is not, which is logged once in a process."""
    found = policy.named(name)
    if found is not None:
        _unknown.discard(name)
        return None if found.mode == "off" else found
    if name not in _unknown:
        _unknown.add(name)
        log.error("there is no limit policy %r: what names it is not limited", name)
    return None


@functools.lru_cache(256)
def _guard(sources: tuple[Policy | Limit, ...]) -> Guard:
    return Guard(one if isinstance(one, Limit) else _limit(one) for one in sources)


@functools.lru_cache(256)
def _limit(found: Policy) -> Limit:
    return Limit(
        found.name,
        found.limiter,
        found.key,
        cost=found.cost,
        methods=found.methods,
        shadow=found.mode == "shadow",
        status=found.status,
        record=found.record,
    )


__all__ = ["guard_of", "known"]
