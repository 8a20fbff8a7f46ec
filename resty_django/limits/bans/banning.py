"""Bans by one limit: look for the ban of a key, and count refusals until a key is banned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from django.http import HttpRequest
from django.utils.translation import gettext as _

from resty_django.conf import conf
from resty_django.sansio import Step, Steps
from resty_django.shdict import SharedDict, SharedDictError
from resty_django.text.localized import grouped

from ..decision import Decision
from ..errors import StoreFailed
from ..limiters.descriptions import duration
from ..limiters.rate import FixedWindow
from ..specs.ban import BanRule
from ..statistics.catalog import LimitKind, add_limit, series_name
from ..statistics.reporter import stats
from ..stores import LocalStore
from ..stores.circuit_breaker import BYPASS_SECONDS
from . import registry
from .registry import Ban


class Banning:
    """The bans by the limit with this `name`, according to a rule.

    `prefix`, `store`, `on_error`, `clock`: as in limiters, for the count of refusals.
    """

    __slots__ = ("_clock", "_counter", "_on_error", "_series", "name", "prefix", "rule")
    _NOT_BANNED: ClassVar = Decision.passed(limit=0, remaining=0)

    def __init__(
        self,
        rule: BanRule,
        name: str,
        *,
        prefix: str,
        store: str | SharedDict | LocalStore | None = None,
        on_error: str | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.rule = rule
        self.name = name
        self.prefix = prefix
        self._series = series_name(LimitKind.BAN, name)
        self._on_error = on_error
        self._clock = clock
        self._counter = FixedWindow(
            rule.after, rule.within, prefix=f"bans:{prefix}", name=name, store=store, on_error=on_error, clock=clock
        )

    @classmethod
    def of_limiter(cls, rule: BanRule, name: str, limiter: Any) -> Banning:
        """Return the bans by a limiter: its refusals are counted in its store."""
        return cls(
            rule,
            name,
            prefix=limiter.prefix,
            store=limiter._store,
            on_error=limiter._on_error,
            clock=limiter.clock,
        )

    def describe(self) -> str:
        """Return the rule in words."""
        rule = self.rule
        values = {"time": duration(rule.ban), "refusals": grouped(rule.after), "within": duration(rule.within)}
        text = (
            _("banned for %(time)s after each refusal")
            if rule.after == 1
            else _("banned for %(time)s after %(refusals)s refusals in %(within)s")
        ) % values
        if rule.longest <= rule.ban:
            return text
        return _("%(ban)s, repeated bans up to %(longest)s") % {"ban": text, "longest": duration(rule.longest)}

    def list_in_catalog(self, location: str) -> None:
        """List the bans in the catalog. `location`: a dotted name in the code."""
        add_limit(LimitKind.BAN, self.name, self, location)

    def record(self, key: str, refusal: Decision | None, request: HttpRequest | None = None) -> None:
        """Count a request of a key. `refusal`: the decision if the key is banned."""
        stats.record(self._series, key, self._NOT_BANNED if refusal is None else refusal, request=request)

    @property
    def on_error(self) -> str:
        """The behaviour while the dictionary cannot be used, as for limits; with "local", keys are not banned."""
        return self._on_error or conf.limits.on_error

    def refusing(self, key: str, limit: int = 0) -> Steps[Decision | None]:
        """Return the refusal of a banned key, or None. `limit`: the limit that the decision reports.

        Raise `StoreFailed` if the dictionary cannot be used and `on_error` is "raise".
        """
        breaker = registry.breaker()
        if breaker.down and self.on_error != "raise" and breaker.is_open(reading=True):
            return self._without_store(limit)
        at = self._now()
        try:
            ban = yield from registry.finding(self.name, key, at)
        except SharedDictError as error:
            breaker.record_failure(error, reading=True)
            if self.on_error == "raise":
                raise StoreFailed(str(error)) from error
            return self._without_store(limit)
        if breaker.down:
            breaker.reset(reading=True)
        return None if ban is None else Decision.refused(limit=limit, retry_after=ban.until - at)

    def counting(self, key: str, reason: str, *spellings: str) -> Steps[Ban | None]:
        """Count a refusal of a key. Return the ban if this one caused it.

        A count reaches its maximum in exactly one process, which stores the ban before it resets the count.
        `spellings`: further keys whose counts cause a ban of this key; see `resetting`.
        """
        counter = self._counter
        keys = dict.fromkeys((key, *spellings))
        full = False
        for counted in keys:
            decision: Decision = yield Step(counter.hit, counter.ahit, (counted,))
            full |= decision.allowed and not decision.failed and not decision.remaining
        if not full:
            return None
        try:
            ban = yield from registry.banning(self.name, key, self.rule, self._now(), reason)
            for counted in keys:
                yield Step(counter.reset, counter.areset, (counted,))
        except SharedDictError as error:
            registry.breaker().record_failure(error)
            return None
        return ban

    def resetting(self, key: str, spelling: str) -> Steps[None]:
        """Forget the refusals counted for a spelling, and the count of the key if all of it has this spelling."""
        counter = self._counter
        try:
            if key != spelling:
                every: Decision = yield Step(counter.peek, counter.apeek, (key,))
                same: Decision = yield Step(counter.peek, counter.apeek, (spelling,))
                if every.remaining == same.remaining:
                    yield Step(counter.reset, counter.areset, (key,))
            yield Step(counter.reset, counter.areset, (spelling,))
        except SharedDictError as error:
            self._counter.store.breaker.record_failure(error)

    def _now(self) -> float:
        return registry.now() if self._clock is None else self._clock()

    def _without_store(self, limit: int) -> Decision | None:
        """Return the decision while the dictionary cannot be used."""
        if self.on_error == "closed":
            return Decision.refused(limit=limit, retry_after=BYPASS_SECONDS, failed=True)
        return None
