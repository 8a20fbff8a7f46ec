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

from ..models import QuotaUsage
from .blocks import block_size
from .periods import Period

PRUNED: Final = 2
"""The maximum number of old rows that are deleted for each new row, so that their number does not grow."""
T = TypeVar("T")

TRIES: Final = 3
"""Attempts of a statement that failed because of another one, for example in a deadlock, outside of transactions."""


class Counted(NamedTuple):
    """The numbers of a row. `reserved`: units that this call has reserved; None: the limit does not allow them."""

    reserved: int | None
    used: int
    granted: int


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


def read(quota: str, key: str, period: Period) -> Counted:
    """Return the numbers of the row; 0 if there is none."""
    numbers = rows_of(quota, key, period).values_list("used", "granted").first() or (0, 0)
    return Counted(None, *numbers)


def reserve(quota: str, key: str, period: Period, limit: int, need: int, most: int, keep: float) -> Counted:
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


def _reserve(quota: str, key: str, period: Period, limit: int, need: int, most: int, keep: float) -> Counted:
    rows = rows_of(quota, key, period)
    numbers = rows.values_list("used", "granted").first()
    if numbers is None:
        _insert(quota, key, period, limit, keep)
        numbers = 0, 0
    used, granted = numbers
    left = limit + granted - used
    sizes = [need]
    if most and left > need:
        sizes.insert(0, min(left, max(need, block_size(limit, left, most))))
    for units in dict.fromkeys(size for size in sizes if size):
        room = rows.filter(used__lte=F("granted") + (limit - units))
        if room.update(used=F("used") + units, limit=limit, updated_at=timezone.now()):
            used, granted = rows.values_list("used", "granted").get()
            return Counted(units, used, granted)
    used, granted = rows.values_list("used", "granted").first() or (0, 0)
    return Counted(None if need else 0, used, granted)


def give_back(quota: str, key: str, period: Period, units: int) -> bool:
    """Subtract units from the row. Return False if it has fewer."""
    rows = rows_of(quota, key, period).filter(used__gte=units)
    change: Callable[[], int] = lambda: rows.update(used=F("used") - units)  # noqa: E731 - passed to `_again`
    return bool(change() if in_transaction() else _again(change))


def prune(before: int, most: int) -> int:
    """Delete at most `most` rows whose period ended before `before`, in epoch seconds. Return their number."""
    rows = QuotaUsage.objects.using(database())
    old = list(rows.filter(ends_at__lt=before).order_by("ends_at").values_list("pk", flat=True)[:most])
    return rows.filter(pk__in=old).delete()[0] if old else 0


def _insert(quota: str, key: str, period: Period, limit: int, keep: float) -> None:
    row = QuotaUsage(quota=quota, key=key, starts_at=period.start, ends_at=period.end, limit=limit)
    QuotaUsage.objects.using(database()).bulk_create([row], ignore_conflicts=True)
    if not in_transaction():
        prune(int(time.time() - keep), PRUNED)


def _again(change: Callable[[], T]) -> T:
    """Repeat a change that failed because of another transaction."""
    for attempt in range(TRIES):
        try:
            return change()
        except OperationalError:
            if attempt == TRIES - 1 or not connections[database()].is_usable():
                raise
            time.sleep(0.01 * (attempt + 1))
    raise AssertionError
