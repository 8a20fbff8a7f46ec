"""Grants and resets of quotas: the rows, the blocks in this store and in others, transactions.

Private names: `Quota._reserve`, behind which a reset comes between the reservation and its use.
"""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from resty_django.limits import LocalStore, Quota, forget_quotas
from resty_django.limits.models import QuotaUsage
from resty_django.limits.quotas import changes, rows
from resty_django.limits.quotas.blocks import CHECK_MS, REFUSAL_MS
from resty_django.limits.quotas.quota import DATABASE
from tests.dictionaries import Clock

from .quota_tools import monthly

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.db,
    pytest.mark.usefixtures("database_up"),
]


def passing(counted: Quota, most: int = 10_000) -> int:
    """Use units until one is refused, and return how many passed."""
    count = 0
    while count < most and counted.use("k"):
        count += 1
    return count


async def test_granted_units_pass_immediately_after_a_refusal(july: Clock, call: Any) -> None:
    counted = monthly(2, clock=july)
    assert [bool(await call(counted.use, "k")) for _ in range(3)] == [True, True, False]
    assert await call(counted.grant, "k", 3) == 3
    assert [bool(await call(counted.use, "k")) for _ in range(4)] == [True, True, True, False]
    usage = await call(counted.usage, "k")
    assert (usage.limit, usage.used, usage.remaining) == (5, 5, 0)
    assert await call(counted.grant, "k", 1) == 4
    assert await call(counted.use, "k")


@pytest.mark.usefixtures("limits_store")
async def test_subtracted_units_no_longer_pass_even_if_they_are_reserved(july: Clock, call: Any) -> None:
    counted = monthly(1000, clock=july)
    assert (await call(counted.use, "k")).remaining == 999
    assert (await QuotaUsage.objects.aget()).used == 10
    assert await call(counted.grant, "k", -995) == -995
    assert await sync_to_async(passing)(counted) == 4
    assert (await call(counted.usage, "k")).limit == 5
    assert await call(counted.grant, "k", -10) == -1005
    assert (await call(counted.usage, "k")).remaining == 0
    assert await call(counted.grant, "k", 1005) == 0
    assert await sync_to_async(passing)(counted) == 995


async def test_units_are_granted_before_the_first_use(july: Clock, call: Any) -> None:
    counted = monthly(2, clock=july)
    assert await call(counted.grant, "k", 1) == 1
    assert await sync_to_async(passing)(counted) == 3
    row = await QuotaUsage.objects.aget()
    assert (row.used, row.granted, row.limit) == (3, 1, 2)


@pytest.mark.usefixtures("limits_store")
async def test_after_a_reset_exactly_the_limit_passes(july: Clock, call: Any) -> None:
    counted = monthly(1000, clock=july)
    await call(counted.grant, "k", 5)
    for _ in range(7):
        await call(counted.use, "k")
    assert await call(counted.reset, "k") == 10
    assert (await call(counted.usage, "k")).used == 0
    assert await sync_to_async(passing)(counted) == 1005
    assert not await call(counted.use, "k")
    assert await call(counted.reset, "k") == 1005
    assert await sync_to_async(passing)(counted) == 1005
    assert await call(counted.reset, "other") == 0
    assert (await QuotaUsage.objects.aget()).resets == 2


def test_other_keys_and_periods_are_unchanged(july: Clock) -> None:
    counted = monthly(3, clock=july)
    assert [bool(counted.use(key)) for key in ("k", "other")] == [True, True]
    july.now += 31 * 86_400
    counted.use("k")
    counted.reset("k")
    counted.grant("k", 9)
    july.now -= 31 * 86_400
    assert (counted.usage("k").used, counted.usage("other").used) == (1, 1)
    assert (counted.usage("k").limit, counted.usage("other").limit) == (3, 3)


@pytest.mark.parametrize(
    ("units", "error"), [(0, ValueError), (1.5, TypeError), (True, TypeError), (10**15 + 1, ValueError)]
)
def test_wrong_units(july: Clock, units: Any, error: type[Exception]) -> None:
    counted = monthly(3, clock=july)
    counted.use("k")
    with pytest.raises(error, match="units"):
        counted.grant("k", units)
    assert counted.usage("k").limit == 3


def test_granted_units_add_up_to_a_maximum(july: Clock) -> None:
    counted = monthly(3, clock=july)
    assert counted.grant("k", 10**15) == 10**15
    with pytest.raises(ValueError, match="At most 1,000,000,000,000,000"):
        counted.grant("k", 1)
    assert counted.use("k")
    assert counted.grant("k", -(10**15)) == 0


# --- stores that the change does not reach -------------------------------------------------------------------------


def test_another_store_follows_a_reset_when_it_reserves_the_next_block(july: Clock) -> None:
    here, there = monthly(1000, clock=july, store=LocalStore()), monthly(1000, clock=july, store=LocalStore())
    assert there.use("k")
    here.reset("k")
    assert passing(there) == 9 + 1000
    assert QuotaUsage.objects.get().used == 1000


def test_another_store_follows_a_reset_within_a_minute(july: Clock) -> None:
    here, there = monthly(1000, clock=july, store=LocalStore()), monthly(1000, clock=july, store=LocalStore())
    assert there.use("k")
    here.reset("k")
    july.now += CHECK_MS / 1000
    assert there.use("k")
    assert there.usage("k").used == 0
    assert passing(there) == 1000


def test_another_store_follows_subtracted_units_within_a_minute(july: Clock) -> None:
    here, there = monthly(1000, clock=july, store=LocalStore()), monthly(1000, clock=july, store=LocalStore())
    assert there.use("k")
    here.grant("k", -1000)
    assert there.use("k")
    july.now += CHECK_MS / 1000
    assert there.use("k")
    assert not there.use("k")
    assert QuotaUsage.objects.get().used == 10


def test_another_store_follows_a_grant_after_a_refusal_within_ten_seconds(july: Clock) -> None:
    here, there = monthly(1, clock=july, store=LocalStore()), monthly(1, clock=july, store=LocalStore())
    assert passing(there) == 1
    here.grant("k", 1)
    assert not there.use("k")
    july.now += REFUSAL_MS / 1000
    assert passing(there) == 1


def test_a_block_in_use_reads_its_row_once_a_minute(july: Clock) -> None:
    counted = monthly(10_000, clock=july, store=LocalStore())
    counted.use("k")
    with CaptureQueriesContext(connection) as queries:
        assert all(counted.use("k") for _ in range(20))
        july.now += CHECK_MS / 1000
        assert all(counted.use("k") for _ in range(20))
    assert [query["sql"].split()[0] for query in queries] == ["SELECT"]


def test_a_block_in_use_passes_if_its_row_cannot_be_read(july: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> Any:
        raise OperationalError("the database is away")

    counted = monthly(10_000, clock=july, store=LocalStore())
    counted.use("k")
    july.now += CHECK_MS / 1000
    with monkeypatch.context() as patch:
        patch.setattr(rows, "read", broken)
        assert all(counted.use("k") for _ in range(5))
    assert DATABASE.down
    DATABASE.retry_at = 0.0
    july.now += CHECK_MS / 1000
    assert counted.use("k")
    assert not DATABASE.down


@pytest.mark.usefixtures("limits_store")
def test_a_process_without_the_quota_changes_the_default_store(july: Clock) -> None:
    counted = monthly(1000, clock=july)
    period = counted.period("k")
    assert counted.use("k")
    forget_quotas()
    assert changes.reserved("exports", "k", period, 0) == 9
    assert changes.reset("exports", "k", period) == 10
    assert changes.reserved("exports", "k", period, 1) == 0
    assert changes.grant("exports", "k", period, 7, 0) == (0, 7)
    assert passing(counted) == 1007


# --- transactions --------------------------------------------------------------------------------------------------


def test_a_rolled_back_change_has_no_effect(july: Clock) -> None:
    counted = monthly(1000, clock=july)
    assert counted.use("k")
    with transaction.atomic():
        counted.reset("k")
        counted.grant("k", 7)
        transaction.set_rollback(True)
    assert (counted.usage("k").used, counted.usage("k").limit) == (1, 1000)
    assert passing(counted) == 999


def test_a_change_in_a_transaction_applies_within_it_and_after_the_commit(july: Clock) -> None:
    counted = monthly(2, clock=july)
    assert passing(counted) == 2
    with transaction.atomic():
        assert counted.grant("k", 1) == 1
        assert counted.use("k")
        assert not counted.use("k")
        assert counted.reset("k") == 3
        assert counted.use("k")
    assert counted.usage("k").used == 1
    assert passing(counted) == 2


@pytest.mark.usefixtures("limits_store")
def test_a_reservation_that_overlaps_a_reset_is_not_used_without_being_counted(
    july: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, reserve = monthly(1000, clock=july), Quota._reserve

    def reset_after(self: Quota, *args: Any) -> Any:
        reserved = reserve(self, *args)
        monkeypatch.undo()
        changes.reset("exports", "k", counted.period("k"))
        return reserved

    monkeypatch.setattr(Quota, "_reserve", reset_after)
    assert counted.use("k")
    assert QuotaUsage.objects.get().used == 0
    assert passing(counted) == 1000
