"""The rows of quotas: each reservation is one conditional UPDATE, so any number of processes can reserve at once.

A row is written before its units are used, so a crash never lets more pass. Outside of a transaction the UPDATE is
committed at once, and may reserve a block. Inside a transaction of the caller, only the units that are used now are
reserved: a rollback returns them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, NamedTuple, TypeVar

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connections, router, transaction
from django.db.models import F, QuerySet
from django.utils import timezone
from django.utils.translation import gettext

from resty_django.text.localized import grouped

from ..models import QuotaUsage
from .blocks import Reservation, RowCounts, block_size
from .periods import Period

T = TypeVar("T")

MAX_GRANTED_UNITS: Final = 10**15
"""The maximum number of units that can be granted in addition to the limit, and subtracted from it."""


class Granted(NamedTuple):
    """The additional units of a row before and after a grant."""

    before: int
    after: int


def database() -> str:
    """Return the alias of the database with the rows. Raise `ImproperlyConfigured` if the app is not installed."""
    if not apps.is_installed("resty_django.limits"):
        raise ImproperlyConfigured(
            'Quotas are stored in the database. Add "resty_django.limits" to INSTALLED_APPS and run migrate.'
        )
    return router.db_for_write(QuotaUsage)


def in_transaction() -> bool:
    """Return whether the caller has an open transaction in the database with the rows."""
    connection = connections[database()]
    return connection.in_atomic_block or not connection.get_autocommit()


def rows_of(quota: str, key: str, period: Period) -> QuerySet[QuotaUsage]:
    """Return the row of a key in a period, as a query set."""
    return QuotaUsage.objects.using(database()).filter(quota=quota, key=key, starts_at=period.start)


def read(quota: str, key: str, period: Period) -> RowCounts:
    """Return the counts of the row; 0 if there is none."""
    return _counts(rows_of(quota, key, period)) or RowCounts()


def _counts(rows: QuerySet[QuotaUsage]) -> RowCounts | None:
    counts = rows.values_list(*RowCounts._fields).first()
    return None if counts is None else RowCounts(*counts)


def reserve(quota: str, key: str, period: Period, limit: int, need: int, most: int, keep: float) -> Reservation:
    """Reserve at least `need` units, and a block outside of a transaction if `most`, its maximum size, is not 0.

    With `need=0`, only a block. `keep`: seconds for which rows are kept after their period. Raise `django.db.Error`.
    """
    if in_transaction():
        connection = connections[database()]
        savepoint: AbstractContextManager[Any] = (
            transaction.atomic(using=database()) if connection.in_atomic_block else nullcontext()
        )
        with savepoint:
            return _reserve(quota, key, period, limit, need, 0, keep)
    return _again(lambda: _reserve(quota, key, period, limit, need, most, keep))


def _reserve(quota: str, key: str, period: Period, limit: int, need: int, most: int, keep: float) -> Reservation:
    rows = rows_of(quota, key, period)
    row = _counts(rows)
    if row is None:
        insert(quota, key, period, limit, keep)
        row = RowCounts()
    left = limit + row.granted - row.used
    sizes = [need]
    if most and left > need:
        sizes.insert(0, min(left, max(need, block_size(limit, left, most))))
    for units in dict.fromkeys(size for size in sizes if size):
        room = rows.filter(used__lte=F("granted") + (limit - units))
        if units > need:  # the rest goes to a block, which is marked with the number of resets
            room = room.filter(resets=row.resets)
        if room.update(used=F("used") + units, limit=limit, updated_at=timezone.now()):
            now = RowCounts(*rows.values_list(*RowCounts._fields).get())
            return Reservation(units, now._replace(resets=row.resets) if units > need else now)
    return Reservation(None if need else 0, _counts(rows) or RowCounts())


def give_back(quota: str, key: str, period: Period, units: int) -> bool:
    """Subtract units from the row. Return False if it has fewer."""
    rows = rows_of(quota, key, period).filter(used__gte=units)
    change: Callable[[], int] = lambda: rows.update(used=F("used") - units)  # noqa: E731 - passed to `_again`
    return bool(change() if in_transaction() else _again(change))


def grant(quota: str, key: str, period: Period, units: int) -> Granted | None:
    """Add `units`, which may be negative, to the limit of a row. Return None if there is no such row.

    Raise `ValueError` if more than `MAX_GRANTED_UNITS` units would be granted, and `django.db.Error`.
    """

    def added(before: int) -> dict[str, Any]:
        if abs(before + units) > MAX_GRANTED_UNITS:
            text = gettext("At most %(max)s units can be granted; %(granted)s are granted already.")
            raise ValueError(text % {"max": grouped(MAX_GRANTED_UNITS), "granted": grouped(before)})
        return {"granted": before + units}

    before = _change(rows_of(quota, key, period), "granted", added)
    return None if before is None else Granted(before, before + units)


def reset(quota: str, key: str, period: Period) -> int | None:
    """Set the used units of a row to 0. Return the number that it counted, or None if there is no such row.

    Raise `django.db.Error`.
    """
    return _change(rows_of(quota, key, period), "used", lambda used: {"used": 0, "resets": F("resets") + 1})


def _change(rows: QuerySet[QuotaUsage], field: str, values_of: Callable[[int], dict[str, Any]]) -> int | None:
    """Set the values that a function returns for the number in a field. Return that number, or None if there is no row.

    Raise `django.db.Error`.
    """

    def change() -> int | None:
        for _ in range(100):
            before: int | None = rows.values_list(field, flat=True).first()
            if before is None:
                return None
            if rows.filter(**{field: before}).update(**values_of(before), updated_at=timezone.now()):
                return before
        raise OperationalError("The row of the quota changes too often. Try again.")

    return change() if in_transaction() else _again(change)


def prune(before: int, most: int) -> int:
    """Delete at most `most` rows whose period ended before `before`, in epoch seconds. Return their number."""
    rows = QuotaUsage.objects.using(database())
    old = list(rows.filter(ends_at__lt=before).order_by("ends_at").values_list("pk", flat=True)[:most])
    return rows.filter(pk__in=old).delete()[0] if old else 0


def insert(quota: str, key: str, period: Period, limit: int, keep: float) -> None:
    """Insert a row if there is none, and delete a few old ones."""
    row = QuotaUsage(quota=quota, key=key, starts_at=period.start, ends_at=period.end, limit=limit)
    QuotaUsage.objects.using(database()).bulk_create([row], ignore_conflicts=True)
    if not in_transaction():
        prune(int(time.time() - keep), most=2)  # for each new one, so that their number does not grow


def _again(change: Callable[[], T]) -> T:
    """Make up to three attempts at a change that fails because of another transaction, for example in a deadlock."""
    for attempt in range(3):
        try:
            return change()
        except OperationalError:
            if attempt == 2 or not connections[database()].is_usable():
                raise
            time.sleep(0.01 * (attempt + 1))
    raise AssertionError
