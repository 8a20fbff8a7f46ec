"""The pace of counters: from the IDs that processes have issued, not from the segments that they reserved."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import transaction
from django.db.models import F
from django.test import Client
from django.test.utils import override_settings
from django.utils import timezone

from resty_django.ids import next_id
from resty_django.ids.engine.cycle import DAY_SECONDS
from resty_django.ids.health import probe
from resty_django.ids.models import IdCounter, IdRule
from resty_django.ids.overview import runs_out
from resty_django.ids.service.id_service import IdService
from resty_django.ids.store import CounterStore
from tests.integration.ids.admin_tools import COUNTERS
from tests.servers import eventually

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]

MakeRule = Callable[..., IdRule]
NOW = 1_800_000_000


@pytest.fixture
def services() -> Iterator[list[IdService]]:
    """Four services, as of four processes."""
    started = [IdService() for _ in range(4)]
    yield started
    for service in started:
        service.stop()


def hours_pass(hours: float) -> None:
    IdCounter.objects.update(window_began=F("window_began") - timedelta(hours=hours, seconds=1))


def issued() -> int:
    return IdCounter.objects.get().window_issued


def test_reserved_numbers_are_not_issued(make_rule: MakeRule, services: list[IdService]) -> None:
    make_rule(max_counter=9_999)
    for service in services:
        service.next_many("order", 5)
    assert (IdCounter.objects.get().bound, issued()) == (4000, 0)
    hours_pass(3)
    assert runs_out() == []
    services[0].next_many("order", 995)  # a segment is used up, and the next one ordered
    services[0].next_many("order", 1)
    services.pop(0).stop()
    assert issued() == 1001
    for service in services:  # they return their numbers, or cannot, since others are reserved after them
        service.stop()
    assert issued() == 1016
    ((name, seconds),) = runs_out()
    left = 10_000 - IdCounter.objects.get().bound
    assert (name, seconds) == ("order", pytest.approx(left / 1016 * 3 * 3600, rel=0.01))


def test_numbers_in_a_transaction_are_issued_at_once(make_rule: MakeRule) -> None:
    make_rule(gapless=True)
    for _ in range(3):
        with transaction.atomic():
            next_id("order")
    assert issued() == 3


@override_settings(RESTY_DJANGO={"IDS": {"MAX_SEGMENT": 100}})
def test_a_fast_counter_of_several_processes_is_forecast(make_rule: MakeRule, services: list[IdService]) -> None:
    make_rule(max_counter=99_999, segment_size=100)
    for _ in range(20):
        for service in services:
            service.next_many("order", 250)
    for service in services:  # a reservation in progress would write the window that it has read
        assert eventually(lambda: len(service.reservations.requests) == 0)  # noqa: B023
        service.reservations.submit(lambda: None).result(10)
    hours_pass(1)
    ((_, seconds),) = runs_out()
    assert seconds == pytest.approx(4 * 3600, rel=0.05)  # 20 000 of 100 000 in an hour
    assert any("run out in" in finding.message for finding in probe())


def test_a_batch_at_the_begin_of_each_cycle_is_not_its_pace(make_rule: MakeRule) -> None:
    """The window goes on in the next cycle; its age is bounded, so that it follows changes."""
    rule = make_rule(source="{now:%y%m%d}{counter:06d}", max_counter=9_999, reset_seconds=DAY_SECONDS, timezone="UTC")
    midnight = NOW // DAY_SECONDS * DAY_SECONDS
    for day in range(6):
        store = CounterStore(lambda: midnight + day * DAY_SECONDS)  # noqa: B023
        store.reserve(rule.pk, rule.spec(), "", shown=None, want=3000)
        hours_pass(1)
        store.reserve(rule.pk, rule.spec(), "", shown=None, want=10, issued=3000)
        row = IdCounter.objects.get()
        assert row.window_began is not None
        now, since = timezone.now().timestamp(), row.window_began.timestamp()
        if day:  # on the first day, a batch is all that is known
            assert (10_000 - row.bound) / row.window_issued * (now - since) > 23 * 3600, day
        hours_pass(23)
    assert DAY_SECONDS <= now - since <= 3 * DAY_SECONDS
    assert row.window_issued <= 3 * 3000


def test_nothing_is_red_in_a_healthy_demo(admin_client: Client, services: list[IdService]) -> None:
    call_command("demo_data", verbosity=0)
    for service in services:
        for rule in IdRule.objects.filter(gapless=False):
            service.next_many(rule.name, 12, "demo")
    hours_pass(1)
    assert runs_out() == []
    assert {finding.level for finding in probe()} == {"ok"}
    text = admin_client.get(COUNTERS).content.decode()
    assert text.count("<time") == text.count("<time datetime")
    assert "resty-alarm" not in text
    overview = admin_client.get("/admin/resty_django/overview/").content.decode()
    (tile,) = re.findall(r'(?s)aria-labelledby="resty-tile-ids">(.*?)</section>', overview)
    assert "Needs attention" not in tile
    metrics = admin_client.get("/metrics").content.decode()
    assert 'resty_ids_left{rule="o2o"}' in metrics
    assert "resty_ids_runs_out_seconds{" not in metrics
