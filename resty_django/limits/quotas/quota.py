"""Quotas: a number of units per calendar period, counted in the database.

exports = Quota("exports", 1000, per="month", timezone="Europe/Berlin")
decision = exports.use(user.pk)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from datetime import datetime, tzinfo
from functools import partial
from time import time_ns
from typing import Any, Final, NamedTuple, TypedDict, Unpack, cast

from asgiref.sync import sync_to_async
from django.db import Error as DatabaseError
from django.db import transaction
from django.http import HttpRequest
from django.utils.translation import gettext as _

from resty_django.callables import caller
from resty_django.conf import conf
from resty_django.sansio import Step, Steps, arun, run
from resty_django.shdict import SharedDict
from resty_django.text import logger
from resty_django.text.localized import grouped

from ..callers import keys
from ..decision import Decision
from ..errors import StoreFailed
from ..limiters.validation import check_cost, check_on_error, positive, unknown_option, whole
from ..overrides.current import current, now
from ..overrides.limits import overridden_limiter
from ..overrides.override_set import Override
from ..requests.chosen_rates import RateFunction, Tiers
from ..requests.headers import MAX_FIELD_INTEGER
from ..statistics.catalog import LimitKind, add_limit, series_name
from ..statistics.reporter import stats
from ..stores import LocalStore
from ..stores.circuit_breaker import BYPASS_SECONDS, CircuitBreaker
from . import blocks, registry
from .blocks import Block, Reservation, RowCounts, Taken, decision_of
from .calendar import Anchor, Calendar
from .periods import Period
from .store import (
    BlockStore,
    depositing,
    looking,
    refunded,
    refunding,
    refusing,
    returning,
    row_key,
    syncing,
    taking,
    taking_locally,
)
from .validation import checked_limit, checked_name, checked_units, choice_of

log = logger("resty_django.limits")

DATABASE: Final = CircuitBreaker("database of quotas")
"""Whether the database with the rows answers."""


class Usage(NamedTuple):
    """The usage of a key in the current period.

    `quota`: the name. `limit`: the units of the period, with extra units. `used`, `remaining`: units. `starts_at`,
    `resets_at`: the period, as aware datetimes in the time zone of the quota.
    """

    quota: str
    key: str
    limit: int
    used: int
    remaining: int
    starts_at: datetime
    resets_at: datetime


class QuotaSettings(TypedDict, total=False):
    """Options of a quota; `QuotaOptions` has one more."""

    timezone: str | tzinfo | None
    """The time zone of the periods, or its name (default: the setting TIME_ZONE)."""
    anchor: Anchor | None
    """Returns the date on which the weeks or months of a key start, such as the sign-up date; a process keeps it."""
    tiers: Mapping[str, int | None] | None
    """In place of a limit, the units of each tier (None: unlimited)."""
    tier: RateFunction | str | None
    """A function of the request, or its dotted path, that returns its tier (default: the setting TIER)."""
    max_block: int | None
    """The maximum number of units that are reserved together (default: 100)."""
    store: str | SharedDict | LocalStore | None
    """As for limiters. Without the store, each use writes its row."""
    on_error: str | None
    """As for limiters, while the database does not answer."""
    clock: Callable[[], float] | None
    """As for limiters, for tests."""


class QuotaOptions(QuotaSettings, total=False):
    """Options of a quota."""

    key: keys.KeySpec
    """How requests are grouped (default: "user")."""


class Quota:
    """A number of units per calendar period for each key. Safe in threads, tasks and processes.

    `name`: 1 to 64 characters; rows of the same name are counted together. `limit`: the units per period, or a function
    of the request that returns them (None: unlimited). `per`: the period: "hour", "day", "week" or "month". `options`:
    see `QuotaOptions`.

    Raise `TypeError` or `ValueError` for wrong arguments, also if another quota with this name exists.
    """

    def __init__(
        self, name: str, limit: int | RateFunction | None = None, *, per: str, **options: Unpack[QuotaOptions]
    ) -> None:
        for option in options:
            if option not in QuotaOptions.__annotations__:
                raise TypeError(unknown_option("Quota()", option, Quota, QuotaOptions.__annotations__))
        self.name = checked_name(name)
        self.choice = choice_of(limit, options.get("tiers"), options.get("tier"))
        self.limit: int | None = None if self.choice else checked_limit(cast("int", limit))
        self.per = per
        self._calendar = Calendar(name, per, options.get("timezone"), options.get("anchor"))
        on_error = options.get("on_error")
        check_on_error(on_error)
        max_block = options.get("max_block")
        self.max_block = 100 if max_block is None else max_block
        whole("max_block", self.max_block)
        positive("max_block", self.max_block)
        self.key = keys.make(options.get("key", "user"))
        self.clock = options.get("clock")
        self._on_error = on_error
        self._store = options.get("store")
        self.blocks = BlockStore(name, self._store, self._now, owner=self)
        self.series = series_name(LimitKind.QUOTA, name)
        """The name in the statistics, which overrides use."""
        registry.register(self)
        self.list_in_catalog(caller())

    def __repr__(self) -> str:
        return f"<Quota {self.name!r}: {self.describe()}>"

    def describe(self) -> str:
        """Return the quota in words."""
        period = {"hour": _("hour"), "day": _("day"), "week": _("week"), "month": _("month")}[self.per]
        if self.limit is not None:
            return _("%(units)s per %(period)s") % {"units": grouped(self.limit), "period": period}
        if isinstance(self.choice, Tiers):
            tiers = (
                f"{tier} {_('unlimited') if limit is None else grouped(limit)}" for tier, limit in self.tiers.items()
            )
            return _("%(units)s per %(period)s") % {"units": ", ".join(tiers), "period": period}
        return _("a limit per request, per %(period)s") % {"period": period}

    # --- use ---

    def use(self, key: object, cost: int = 1, *, limit: int | None = None) -> Decision:
        """Use `cost` units if they are left. Return a decision, which is true if they were.

        `limit`: the units of this key per period; needed if the quota has tiers or a function. Raise `ValueError` for
        a `cost` below 1, and `StoreFailed` if the database does not answer and `on_error` is "raise".
        """
        return run(self._using(key, check_cost(cost), self._limit(limit)))

    async def ause(self, key: object, cost: int = 1, *, limit: int | None = None) -> Decision:
        """Run `use` without blocking the event loop."""
        return await arun(self._using(key, check_cost(cost), self._limit(limit)))

    def refund(self, key: object, cost: int = 1) -> bool:
        """Restore units that were used in the current period. Return False if there are none.

        Units that were not used are not restored, because that would raise the limit.
        """
        return run(self._refund(key, check_cost(cost)))

    async def arefund(self, key: object, cost: int = 1) -> bool:
        """Run `refund` without blocking the event loop."""
        return await arun(self._refund(key, check_cost(cost)))

    def grant(self, key: object, units: int) -> int:
        """Add units to the limit of a key until its current period ends; a negative number subtracts them.

        Return the number of units that are granted now. Raise `ValueError` for 0 or too many units, and
        `django.db.Error`.
        """
        return run(self._grant(key, checked_units(units)))

    async def agrant(self, key: object, units: int) -> int:
        """Run `grant` without blocking the event loop."""
        return await arun(self._grant(key, checked_units(units)))

    def reset(self, key: object) -> int:
        """Set the used units of a key in the current period to 0. Granted units remain.

        Return the number of used units, including a reserved block. Raise `django.db.Error`.
        """
        return run(self._reset(key))

    async def areset(self, key: object) -> int:
        """Run `reset` without blocking the event loop."""
        return await arun(self._reset(key))

    def usage(self, key: object, *, limit: int | None = None) -> Usage:
        """Return the usage in the current period, with the limit of an override. Raise `django.db.Error`.

        For a key without a limit because of an override, return the limit that would apply without it.
        """
        return run(self._usage(key, self._limit(limit)))

    async def ausage(self, key: object, *, limit: int | None = None) -> Usage:
        """Run `usage` without blocking the event loop."""
        return await arun(self._usage(key, self._limit(limit)))

    def period(self, key: object) -> Period:
        """Return the current period of a key, in epoch seconds."""
        return run(self._calendar.period(row_key(key), self._now()))

    # --- statistics ---

    def record(self, key: object, decision: Decision, shadow: bool = False, request: HttpRequest | None = None) -> None:
        """Count a decision in the statistics; `shadow`: it was not enforced."""
        stats.record(self.series, row_key(key), decision, shadow, request)

    def list_in_catalog(self, location: str) -> None:
        """List the quota in the catalog. `location`: a dotted name in the code."""
        add_limit(LimitKind.QUOTA, self.name, self, location)

    # --- the interface of limiters, for decorators and throttles, which count the decisions ---

    @property
    def prefix(self) -> str:
        """The beginning of the names of its blocks in the store."""
        return f"quota:{self.name}:"

    def hit(self, key: object, cost: int = 1) -> Decision:
        return run(self._use(key, check_cost(cost), self._limit(None)))

    async def ahit(self, key: object, cost: int = 1) -> Decision:
        return await arun(self._use(key, check_cost(cost), self._limit(None)))

    def uncommit(self, key: object, cost: int = 1) -> bool:
        return self.refund(key, cost)

    async def auncommit(self, key: object, cost: int = 1) -> bool:
        return await self.arefund(key, cost)

    def check(self, cost: int) -> None:
        """Raise `ValueError` if it is not a cost. A cost above the limit may pass with extra units."""
        check_cost(cost)

    @property
    def shown_limit(self) -> int:
        """The limit as decisions report it."""
        return self._limit(None)

    @property
    def config(self) -> tuple[int | None]:
        """The numbers that header fields depend on."""
        return (self.limit,)

    def policy_parameters(self) -> str:
        """Return `q` for the field `RateLimit-Policy`, and `w` for periods that usually have the same length."""
        seconds = {"hour": 3600, "day": 86_400, "week": 604_800}.get(self.per)
        return f";q={min(self._limit(None), MAX_FIELD_INTEGER)}" + (f";w={seconds}" if seconds else "")

    def with_limit(self, limit: int) -> Quota:
        """Return this quota with another limit: the same rows and blocks. Raise `TypeError` or `ValueError`."""
        other = copy.copy(self)
        other.limit, other.choice = checked_limit(limit), None
        return other

    # --- limits, zones and stores ---

    @property
    def tiers(self) -> dict[str, int | None]:
        """The units of each tier."""
        return self.choice.rates if isinstance(self.choice, Tiers) else {}

    @property
    def on_error(self) -> str:
        """The behaviour while the database does not answer."""
        return self._on_error or conf.limits.on_error

    def same_as(self, other: Quota) -> bool:
        """Return whether both quotas count alike."""
        return self.key.text == other.key.text and self._calendar.same_as(other._calendar)

    def _limit(self, limit: int | None) -> int:
        if limit is not None:
            return checked_limit(limit)
        if self.limit is None:
            raise TypeError(
                f"The limit of the quota {self.name!r} depends on the request. Pass limit= to this call, or use the "
                "quota as a decorator or throttle."
            )
        return self.limit

    def _now(self) -> float:
        return time_ns() / 1e9 if self.clock is None else self.clock()

    # --- overrides ---

    def overriding(self, key: object) -> Steps[Override | None]:
        """Return the override in force for a key, or None."""
        yield Step(current.get, current.aget, ())
        return current.find(self.series, row_key(key), self.key.roles)

    def _overridden(self, key: object, limit: int) -> Steps[tuple[Override | None, int]]:
        """Return the override of a key, and the units that apply to it."""
        override = yield from self.overriding(key)
        if override is not None and not (override.lifts or override.blocks):
            other: Any = overridden_limiter(self, override.rate)
            limit = limit if other is self else other.limit
        return override, limit

    # --- steps ---

    def _using(self, key: object, cost: int, limit: int) -> Steps[Decision]:
        """Use units as overrides say, and count the decision. A key without a limit uses and counts nothing."""
        override = None
        if current.active is not None:
            override, limit = yield from self._overridden(key, limit)
        if override is not None and override.lifts:
            return Decision.passed(limit=limit, remaining=limit)
        if override is not None and override.blocks:
            decision = override.refusal(limit, now())
        else:
            decision = yield from self._use(key, cost, limit)
        self.record(key, decision)
        return decision

    def _use(self, key: object, cost: int, limit: int) -> Steps[Decision]:
        """Use units of the key's block in the shared store. If it has too few, reserve units in the database."""
        text = row_key(key)
        period = yield from self._calendar.period(text, self._now())
        now_ms = int(self._now() * 1000)
        taken: Taken | None = yield from self.blocks.changing(text, period, taking(now_ms, cost, limit))
        if taken is not None and taken.allowed is not None:
            if taken.check:
                yield from self._check(text, period)
            return decision_of(taken.allowed, taken.block, cost, limit, period, now_ms)
        if taken is None:  # the store cannot be used
            taken = Taken(Block(), None)
        if DATABASE.down and self.on_error != "raise" and DATABASE.is_open():
            reservation = None
        else:
            reservation = yield from self._reserving(text, period, cost - taken.held, limit, taken.refill)
        if reservation is None:
            if taken.held or taken.refill:
                yield from self.blocks.changing(text, period, returning(taken))
            return self._decide_without_database(text, period, cost, limit, now_ms)
        if reservation.units is None:
            change = refusing(now_ms, cost, limit, taken, reservation.row)
        else:
            units = reservation.units + taken.held - cost
            change = depositing(units, reservation.row, taken.refill)
        block = yield from self.blocks.changing(text, period, change)
        if block is None:  # the store cannot be used
            block = Block(0, reservation.row.used, reservation.row.granted)
        return decision_of(reservation.units is not None, block, cost, limit, period, now_ms)

    def _reserving(self, key: str, period: Period, need: int, limit: int, refill: bool) -> Steps[Reservation | None]:
        """Reserve units in the row. Return None if the database does not answer."""
        args = (key, period, need, limit, self.max_block if refill else 0)
        try:
            reservation: Reservation = yield Step(self._reserve, sync_to_async(self._reserve), args)
        except DatabaseError as error:
            DATABASE.record_failure(error)
            if self.on_error == "raise":
                raise StoreFailed(f"The quota {self.name!r} cannot be counted: {error}") from error
            return None
        DATABASE.reset()
        return reservation

    def _reserve(self, key: str, period: Period, need: int, limit: int, most: int) -> Reservation:
        from . import rows  # imports the models, which are not ready when views are imported

        reservation = rows.reserve(self.name, key, period, limit, need, most, conf.limits.quota_keep)
        if most and rows.in_transaction():
            alias = rows.database()
            if transaction.get_connection(alias).in_atomic_block:  # else the caller manages transactions itself
                transaction.on_commit(lambda: self._refill(key, period, limit, most), using=alias)
        return reservation

    def _refill(self, key: str, period: Period, limit: int, most: int) -> None:
        """Reserve the next block, after the transaction in which its first unit was used."""
        from . import rows

        try:
            reservation = rows.reserve(self.name, key, period, limit, 0, most, conf.limits.quota_keep)
        except DatabaseError as error:
            log.warning("The next block of the quota %r was not reserved: %s", self.name, error)
            return
        units = reservation.units or 0
        run(self.blocks.changing(key, period, depositing(units, reservation.row, True)))

    def _check(self, key: str, period: Period) -> Steps[None]:
        """Compare a block in use with its row, which may have been changed where this store cannot be reached."""
        if DATABASE.down and DATABASE.is_open(reading=True):
            return
        try:
            row: RowCounts = yield Step(self._read, sync_to_async(self._read), (key, period))
        except DatabaseError as error:
            DATABASE.record_failure(error, reading=True)
            return
        if DATABASE.down:
            DATABASE.reset(reading=True)
        yield from self.blocks.changing(key, period, syncing(row))

    def _grant(self, key: object, units: int) -> Steps[int]:
        from . import changes

        text = row_key(key)
        period = yield from self._calendar.period(text, self._now())
        grant = partial(changes.grant, self, text, period, units, self.limit or 0)
        granted = yield Step(grant, sync_to_async(grant), ())
        return int(granted.after)

    def _reset(self, key: object) -> Steps[int]:
        from . import changes

        text = row_key(key)
        period = yield from self._calendar.period(text, self._now())
        reset = partial(changes.reset, self, text, period)
        used = yield Step(reset, sync_to_async(reset), ())
        return used or 0

    def _refund(self, key: object, cost: int) -> Steps[bool]:
        text = row_key(key)
        if current.active is not None:
            override: Override | None = yield from self.overriding(text)
            if override is not None and override.lifts:  # the use was not counted
                return False
        period = yield from self._calendar.period(text, self._now())
        deposited = yield from self.blocks.changing(text, period, refunding(cost, self.max_block))
        if deposited:
            return True
        returned = yield Step(self._give_back, sync_to_async(self._give_back), (text, period, cost))
        if returned:
            yield from self.blocks.changing(text, period, refunded(cost))
        return bool(returned)

    def _give_back(self, key: str, period: Period, units: int) -> bool:
        from . import rows

        try:
            return rows.give_back(self.name, key, period, units)
        except DatabaseError as error:
            DATABASE.record_failure(error)
            if self.on_error == "raise":
                raise StoreFailed(f"The quota {self.name!r} cannot be refunded: {error}") from error
            return False

    def _usage(self, key: object, limit: int) -> Steps[Usage]:
        text = row_key(key)
        override, limit = yield from self._overridden(text, limit)
        period = yield from self._calendar.period(text, self._now())
        row: RowCounts = yield Step(self._read, sync_to_async(self._read), (text, period))
        block = (yield from self.blocks.changing(text, period, looking)) or Block()
        used = max(row.used - blocks.reserved(block, row.resets), 0)
        total = limit + row.granted
        starts_at, resets_at = (datetime.fromtimestamp(second, self._calendar.zone) for second in period)
        remaining = 0 if override is not None and override.blocks else max(total - used, 0)
        return Usage(self.name, text, total, used, remaining, starts_at, resets_at)

    def _read(self, key: str, period: Period) -> RowCounts:
        from . import rows

        return rows.read(self.name, key, period)

    # --- the database does not answer ---

    def _decide_without_database(self, key: str, period: Period, cost: int, limit: int, now_ms: int) -> Decision:
        DATABASE.calls += 1
        if self.on_error == "closed":
            return Decision.refused(limit=limit, retry_after=BYPASS_SECONDS, failed=True)
        if self.on_error == "local":
            taken = self.blocks.change_locally(key, period, taking_locally(now_ms, cost, limit), now_ms)
            return decision_of(bool(taken.allowed), taken.block, cost, limit, period, now_ms).replace(failed=True)
        return Decision.passed(limit=limit, remaining=limit, failed=True)
