"""The sums of the IDs that were given out, over processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from resty_django.ids import next_id, next_ids, service
from resty_django.ids.models import IdRule
from resty_django.ids.overview import facts
from resty_django.ids.service.stats import IssuedIdsReporter, issued, series
from resty_django.shdict import SharedDictError, shdicts
from tests.integration.ids.admin_tools import add_issued, make_counter
from tests.threads import together

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _empty_sums() -> None:
    for name in ("order", "invoice"):
        shdicts["default"].delete(series().key(name))


def test_ids_of_all_kinds_are_counted(order: IdRule, make_rule: Callable[..., IdRule]) -> None:
    make_rule("invoice", "R{counter:06d}", max_counter=999_999, gapless=True)
    for _ in range(5):
        next_id("order", app="shop")
    next_ids("order", 20, app="other")
    with transaction.atomic():
        next_id("invoice")
    with transaction.atomic():
        next_id("invoice")
        transaction.set_rollback(True)
    service.stop()  # hands in what is left
    counts = issued(["order", "invoice"])
    assert (counts["order"].total, counts["invoice"].total) == (25, 1)
    assert sum(counts["order"].minutes) == 25


def test_a_running_service_reports_automatically(order: IdRule) -> None:
    next_id("order")
    deadline = time.monotonic() + 60
    while issued(["order"])["order"].total < 1:
        assert time.monotonic() < deadline, "nothing was handed in"
        time.sleep(0.02)


def test_ended_minutes_are_dropped_and_the_total_stays() -> None:
    now = 1_800_000_000.0
    add_issued("order", 3, now - 7200)
    add_issued("order", 4, now - 300)
    add_issued("order", 5, now)
    counts = issued(["order"], lambda: now)["order"]
    assert counts.total == 12
    assert counts.minutes[-6] == 4
    assert counts.minutes[-1] == 5
    assert sum(counts.minutes) == 9
    assert counts.per_minute == 4 / 5


def test_concurrent_reports_lose_nothing() -> None:
    reporters = [IssuedIdsReporter(lambda n=n: {"order": n}) for n in range(1, 9)]  # type: ignore[misc]
    together(*[reporter.flush for reporter in reporters for _ in range(3)])
    assert issued(["order"])["order"].total == sum(range(1, 9))


def test_foreign_entries_count_as_nothing() -> None:
    shdicts["default"].set(series().key("order"), "something else")
    assert issued(["order"])["order"].total == 0
    add_issued("order", 2, time.time())
    assert issued(["order"])["order"].total == 2


def test_a_failing_dictionary_does_not_affect_ids(order: IdRule, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> None:
        raise SharedDictError("down")

    monkeypatch.setattr(type(shdicts["default"]), "update", fails)
    assert next_id("order")
    assert not service.service().stats_reporter.flush()
    monkeypatch.undo()
    service.stop()
    assert issued(["order"])["order"].total == 1


def test_head_room_belongs_to_the_counter_nearest_to_its_end(
    make_rule: Callable[..., IdRule], django_assert_num_queries: Any
) -> None:
    rule = make_rule(source="{counter:03d}", max_counter=99, segment_size=10)
    make_rule("invoice", "{counter}", max_counter=9)
    for app, bound in (("a", 10), ("b", 60), ("c", 30)):
        make_counter(rule, app, bound=bound)
    make_counter(rule, "over", bound=100, cycle_start=0, cycle_end=1000)
    with django_assert_num_queries(4):
        invoice, order = facts()
    assert (invoice.left, invoice.room) == (None, None)
    assert (order.left, order.capacity, order.counters) == (40, 100, 3)
    assert order.room == 0.4
