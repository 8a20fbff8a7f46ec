"""Limits of jobs: by a limiter or by a policy; their decisions are counted, and overrides apply."""

from __future__ import annotations

from typing import cast

from resty_django.sansio import Step, Steps, arun, run

from .callers.key_kinds import roles_of, stored_key
from .decision import Decision
from .errors import Limited
from .limiters.base import Limiter
from .limiters.combined import together
from .limiters.rate import LeakyBucket
from .limiters.slots import Slot
from .limiters.units import parse_rate
from .overrides.current import current, now
from .overrides.limits import overridden_limiter
from .overrides.override_set import Override
from .policies import registry
from .refusals import announcing
from .statistics.catalog import LimitKind, add_limit
from .statistics.reporter import stats


def job_limit(source: object, location: str, key_kind: str | None = None, name: str | None = None) -> JobLimit:
    """Return a limit of jobs, as `resty_django.job_limits` describes; by a rate, it spreads the jobs evenly."""
    if name is not None and not (isinstance(source, str) and "/" not in source and " per " not in source):
        rate = parse_rate(cast("str | float", source))
        source = LeakyBucket(rate, burst=rate, prefix="qless:", name=name)
    return JobLimit(source, location, key_kind)


class JobLimit:
    """A limit of jobs.

    `source`: a limiter, or the name of a policy. `location`: its place in the code. `key_kind`: what the keys are, see
    `resty_django.limits.callers.key_kinds`.
    """

    def __init__(self, source: object, location: str = "", key_kind: str | None = None) -> None:
        self._source = cast("str | Limiter", source)
        self._key_kind = key_kind
        self._roles = roles_of(key_kind, "a limit of jobs")
        self._series = ""
        if isinstance(source, str):
            self._series = source
        elif isinstance(source, Limiter):
            name = source.name or source.prefix.rstrip(":") or location
            self._series = add_limit(LimitKind.JOB, name, source, location, self._roles)

    def slot(self, key: object, wait: float | None) -> JobSlot:
        """Return a slot. Entering it raises `LookupError` for a wrong name."""
        return JobSlot(self, key if self._key_kind is None else stored_key(key, self._key_kind), wait)

    def entering(self, key: object, wait: float | None) -> Steps[Slot | None]:
        """Enter a slot and return it; None: there is no limit for this key."""
        limiters = self._limiters()
        steps = self._entering(limiters, key, wait)
        return announcing(steps, LimitKind.JOB, self._series, type(limiters[0]), key) if self._series else steps

    def _entering(self, limiters: tuple[Limiter, ...], key: object, wait: float | None) -> Steps[Slot | None]:
        if current.active is not None and self._series:
            yield Step(current.get, current.aget, ())
            override = current.find(self._series, str(key), self._roles)
            if override is not None and override.lifts:
                return None
            if override is not None:
                limiters = self._overridden(limiters, override, str(key))
        slot = together(limiters).slot(key, wait)
        try:
            decision = yield Step(slot.__enter__, slot.__aenter__, ())
        except Limited as error:
            self._record(key, error.decision)
            raise
        self._record(key, decision)
        return slot

    def _limiters(self) -> tuple[Limiter, ...]:
        if not isinstance(self._source, str):
            return (self._source,)
        policy = registry.get_policy(self._source)
        if policy is None:
            raise LookupError(f"Unknown limit policy {self._source!r}. Create it, or fix the name in the middleware.")
        return policy.rates

    def _overridden(self, limiters: tuple[Limiter, ...], override: Override, key: str) -> tuple[Limiter, ...]:
        """Return the limiters with the rate of an override. Raise `Limited` for a blocked key."""
        if override.blocks:
            decision = override.refusal(limiters[0].shown_limit, now())
            # A blocked job is tried again after a minute: somebody may have lifted the block.
            decision = decision.replace(retry_after=min(decision.retry_after, 60.0))
            self._record(key, decision)
            raise Limited(decision)
        return tuple(overridden_limiter(limiter, override.rate) for limiter in limiters)

    def _record(self, key: object, decision: Decision) -> None:
        if not self._series:
            return
        stats.record(self._series, str(key), decision)


class JobSlot:
    """A slot for one job."""

    __slots__ = ("_key", "_limit", "_slot", "_wait")

    def __init__(self, limit: JobLimit, key: object, wait: float | None) -> None:
        self._limit = limit
        self._key = key
        self._wait = wait
        self._slot: Slot | None = None

    def enter(self) -> float | None:
        """Enter the slot; return None, or if the limit refuses it, the seconds until the next attempt."""
        return run(self._entering())

    async def aenter(self) -> float | None:
        """Do the same for asyncio."""
        return await arun(self._entering())

    def _entering(self) -> Steps[float | None]:
        try:
            self._slot = yield from self._limit.entering(self._key, self._wait)
        except Limited as refusal:
            return max(refusal.decision.retry_after, refusal.decision.delay)
        return None

    def leave(self) -> None:
        """Free the slot."""
        if self._slot is not None:
            self._slot.__exit__(None, None, None)

    async def aleave(self) -> None:
        """Do the same for asyncio."""
        if self._slot is not None:
            await self._slot.__aexit__(None, None, None)
