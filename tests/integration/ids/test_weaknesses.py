"""Flaws of id_server that need a separate test; docs/explanation/ids-guarantees.md lists all, with their tests."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.test.utils import override_settings

from resty_django.ids import next_id
from resty_django.ids.engine.cycle import DAY_SECONDS
from resty_django.ids.models import IdCounter, IdRule
from resty_django.ids.service import service
from resty_django.ids.service.id_service import IdService
from resty_django.ids.store import CounterStore
from tests.dictionaries import Clock
from tests.integration.ids.conftest import away

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]

MakeRule = Callable[..., IdRule]
DAILY = {"source": "O{now:%y%m%d}{counter:06d}", "max_counter": 999_999, "reset_seconds": DAY_SECONDS}


@pytest.fixture
def start() -> Iterator[Callable[..., IdService]]:
    """A service with its own clock; all are stopped after the test."""
    services: list[IdService] = []

    def new(clock: Callable[[], float] = time.time) -> IdService:
        services.append(IdService(clock))
        return services[-1]

    yield new
    for ids in services:
        ids.stop()


def row() -> IdCounter:
    return IdCounter.objects.get()


@pytest.mark.parametrize("seconds", [2, pytest.param(90, marks=[pytest.mark.soak, pytest.mark.timeout(300)])])
def test_kills_at_random_moments_with_a_failing_database(
    order: IdRule, worker: Callable[..., Any], locked: Callable[[], Any], seconds: int
) -> None:
    """Processes are killed and started while the counters' table is locked now and then: no ID comes twice."""
    every: list[str] = []
    workers = [worker("flood", "order", app, "600", "1") for app in ("a", "a", "b")]
    for process in workers:
        process.wait_for(1)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if random.random() < 0.3:
            with locked():
                time.sleep(random.random() * 0.2)
        time.sleep(random.random() * 0.2)
        at = random.randrange(len(workers))
        if random.random() < 0.4:
            app = workers[at].process.args[4]
            workers[at].end(signal.SIGKILL)
            every += [f"{app}:{issued_id}" for issued_id in workers[at].lines]
            workers[at] = worker("flood", "order", app, "600", "1")
    for process in workers:
        process.wait_for(1)
        process.end(signal.SIGKILL)
        every += [f"{process.process.args[4]}:{issued_id}" for issued_id in process.lines]
    assert len(set(every)) == len(every) > 500


def test_date_and_cycle_are_read_from_one_clock(make_rule: MakeRule, start: Callable[..., IdService]) -> None:
    """A clock stepped over midnight between any two of its readings: the date and the number are of one day."""
    make_rule(**DAILY, timezone="Europe/Berlin", segment_size=10)
    before = datetime(2026, 11, 21, 23, 59, 59, 999_000, tzinfo=ZoneInfo("Europe/Berlin"))
    for reads in range(12):
        IdCounter.objects.all().delete()
        clock = Clock(before.timestamp())
        remaining = reads

        def stepping(clock: Clock = clock) -> float:
            nonlocal remaining
            remaining -= 1
            return clock.now if remaining >= 0 else clock.now + 0.002

        stepped = start(stepping)
        ids = [stepped.next("order") for _ in range(25)]
        stepped.stop()
        assert len(set(ids)) == 25
        for day in ("O261121", "O261122"):
            of_day = [int(issued_id[7:]) for issued_id in ids if issued_id.startswith(day)]
            assert of_day == list(range(len(of_day)))


def test_a_counter_is_known_by_rule_and_name_apart(make_rule: MakeRule) -> None:
    make_rule("a", "1{counter:06d}", max_counter=999_999)
    make_rule("a_b", "2{counter:06d}", max_counter=999_999)
    pairs = [("a", "b_c"), ("a_b", "c"), ("a", ""), ("a_b", ""), ("a", "b")]
    assert [next_id(*pair) for pair in pairs] == ["1000000", "2000000", "1000000", "2000000", "1000000"]
    assert IdCounter.objects.count() == len(pairs)


def test_a_late_writer_does_not_move_a_row_back(order: IdRule, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read, then another reserves, then write: the write is refused and done again upon what is there now."""
    from resty_django.ids import store as store_module

    original = store_module.find_counter
    store, spec = CounterStore(time.time), order.spec()
    store.reserve(order.pk, spec, "", shown=None, want=10)
    rivals = iter(range(3))

    def find(*args: Any) -> Any:
        stored = original(*args)
        if next(rivals, None) is not None:
            monkeypatch.setattr(store_module, "find_counter", original)
            CounterStore(time.time).reserve(order.pk, spec, "", shown=None, want=100)
            monkeypatch.setattr(store_module, "find_counter", find)
        return stored

    monkeypatch.setattr(store_module, "find_counter", find)
    grant = store.reserve(order.pk, spec, "", shown=None, want=5)
    assert grant.numbers == range(310, 315)
    assert row().bound == 315


def test_rules_are_read_all_or_none(make_rule: MakeRule, eventually: Callable[..., bool]) -> None:
    """While the database fails in the middle of a look, the old table stands; deleted rules do not live on."""
    with override_settings(RESTY_DJANGO={"IDS": {"REFRESH": 0.05}}):
        rules = {name: make_rule(name, name + "{counter:09d}") for name in "abc"}
        for name in "abc":
            next_id(name)
        table = service().rule_set
        with away("resty_ids_idrule", "source"):
            IdRule.objects.update(version=99)
            time.sleep(0.3)
            assert service().rule_set is table
            assert [next_id(name) for name in "abc"] == [f"{name}000000001" for name in "abc"]
        rules["b"].delete()
        assert eventually(lambda: set(service().rule_set.rules) == {"a", "c"})  # type: ignore[union-attr]
