"""Flaws of id_server that this service must not have; docs/ids/guarantees.md lists them.

Those of the UDP server and its client are tested in test_udp*.py and in the tests of the client.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.core.exceptions import ValidationError
from django.db import connection
from django.test.utils import override_settings

from resty_django.ids import next_id, stop
from resty_django.ids.engine.cycle import DAY
from resty_django.ids.errors import (
    BadName,
    BadRule,
    BadSalt,
    Exhausted,
    RuleFailed,
    StepChanged,
    TooFast,
    TooManyNames,
    Unavailable,
)
from resty_django.ids.models import IdCounter, IdRule
from resty_django.ids.service import IdService
from resty_django.ids.store import Store
from tests.dictionaries import Clock

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]

MakeRule = Callable[..., IdRule]
DAILY = {"source": "O{now:%y%m%d}{counter:06d}", "max_counter": 999_999, "reset_seconds": DAY}
LUA = """
function min_counter() return 0 end
function max_counter() return 999999 end
function reset_seconds() return 0 end
function create_id(counter, now, salt) %s end
"""


@pytest.fixture
def start() -> Iterator[Callable[..., IdService]]:
    """A service with a clock of its own; all are stopped after the test."""
    services: list[IdService] = []

    def new(clock: Callable[[], float] = time.time) -> IdService:
        services.append(IdService(clock))
        return services[-1]

    yield new
    for ids in services:
        ids.stop()


def row() -> IdCounter:
    return IdCounter.objects.get()


def test_no_id_before_its_reservation_is_committed(order: IdRule, worker: Callable[..., Any]) -> None:
    """Each number, at the moment it is given out, lies below what another connection reads; one kill after one ID."""
    for _ in range(500):
        number = int(next_id("order"))
        if number % 20 == 0:
            assert number < row().bound
    stop()
    ids = []
    for _ in range(3):
        process = worker("talk")
        process.say('["order", "", "", 1]')
        ids += process.wait_for(1)
        process.end(signal.SIGKILL)
    assert len(set(ids)) == 3


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


@pytest.mark.usefixtures("impatient")
def test_a_failed_reservation_is_tried_again_and_told(
    order: IdRule, broken: Callable[[], Any], eventually: Callable[..., bool]
) -> None:
    next_id("order")
    with broken():
        ids = [next_id("order") for _ in range(99)]
        with pytest.raises(Unavailable):
            next_id("order")
    assert eventually(lambda: _served(ids))
    assert ids == [f"{number:09d}" for number in range(1, 101)]


def _served(ids: list[str]) -> bool:
    try:
        ids.append(next_id("order"))
    except Unavailable:
        return False
    return True


@pytest.mark.parametrize("clean", [True, False])
def test_an_exhausted_counter_never_wraps(make_rule: MakeRule, start: Callable[..., IdService], clean: bool) -> None:
    """35 of 50 numbers used and segments of 30: also a restart, clean or not, does not give any of them again."""
    make_rule(max_counter=49, segment_size=30)
    clock = Clock(datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp())
    first = start(clock)
    ids = [first.next("order") for _ in range(35)]
    if clean:
        first.stop()
    second = start(clock)
    for _ in range(63):
        try:
            ids.append(second.next("order"))
        except Exhausted:
            continue
    assert len(set(ids)) == len(ids)
    assert max(ids) == "000000049" or not clean
    assert len(ids) == 50 or not clean


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

        service = start(stepping)
        ids = [service.next("order") for _ in range(25)]
        service.stop()
        assert len(set(ids)) == 25
        for day in ("O261121", "O261122"):
            of_day = [int(issued_id[7:]) for issued_id in ids if issued_id.startswith(day)]
            assert of_day == list(range(len(of_day)))


def test_a_cycle_of_a_second_under_load(make_rule: MakeRule) -> None:
    make_rule(source="{now:%Y%m%d%H%M%S}{counter:09d}", reset_seconds=1, segment_size=100)

    def run() -> list[str]:
        mine = []
        until = time.monotonic() + 1.2
        while time.monotonic() < until:
            mine.append(next_id("order"))
        return mine

    with ThreadPoolExecutor(3) as pool:
        ids = [text for asking in [pool.submit(run) for _ in range(3)] for text in asking.result()]
    assert len(set(ids)) == len(ids) > 1000


@pytest.mark.parametrize("day", [datetime(2026, 3, 29), datetime(2026, 10, 25)])
def test_a_change_of_daylight_saving_brings_nothing_again(
    make_rule: MakeRule, start: Callable[..., IdService], day: datetime
) -> None:
    """Every ten minutes from the day before to the day after: the date of the text is the cycle of the number."""
    make_rule(**DAILY, timezone="Europe/Berlin", segment_size=5)
    berlin = ZoneInfo("Europe/Berlin")
    clock = Clock(day.replace(tzinfo=UTC).timestamp())
    clock.now -= DAY
    service = start(clock)
    ids_by_day: dict[str, list[int]] = {}
    for _ in range(3 * 144):
        issued_id = service.next("order")
        assert issued_id[1:7] == datetime.fromtimestamp(clock.now, berlin).strftime("%y%m%d")
        ids_by_day.setdefault(issued_id[1:7], []).append(int(issued_id[7:]))
        clock.now += 600
    assert len(ids_by_day) == 4
    for numbers in ids_by_day.values():
        assert numbers == list(range(len(numbers)))


def test_a_clock_set_back_over_a_restart_enters_no_old_cycle(
    make_rule: MakeRule, start: Callable[..., IdService]
) -> None:
    make_rule(**DAILY, timezone="UTC", segment_size=10)
    clock = Clock(datetime(2026, 11, 21, 23, tzinfo=UTC).timestamp())
    first = start(clock)
    ids = [first.next("order") for _ in range(5)]
    clock.now += 2 * 3600
    ids += [first.next("order") for _ in range(5)]
    first.stop()
    clock.now -= 2 * 3600
    second = start(clock)
    ids += [second.next("order") for _ in range(15)]
    assert ids == [f"O261121{n:06d}" for n in range(5)] + [f"O261122{n:06d}" for n in range(20)]


def test_no_name_breaks_a_statement(order: IdRule) -> None:
    for name in ("\\", "a\\", "x);--", "`", "$$", "\\0"):
        assert next_id("order", name) == "000000000"
        stop()
        assert next_id("order", name) == "000000001"
        assert IdCounter.objects.filter(app_name=name).count() == 1
    for name in ("'", '"', "a\0", "a" * 65, "a b"):
        with pytest.raises(BadName):
            next_id("order", name)
    assert IdCounter.objects.exclude(bound__gt=0).count() == 0


def test_new_names_are_bounded_in_number_and_rate(make_rule: MakeRule) -> None:
    make_rule(max_names=20)
    with override_settings(RESTY_DJANGO={"IDS": {"NEW_NAMES_PER_SECOND": 10}}):
        stop()
        causes = {TooFast: 0, TooManyNames: 0}
        until = time.monotonic() + 2.5
        n = 0
        while time.monotonic() < until:
            n += 1
            try:
                next_id("order", f"n{n}")
            except (TooFast, TooManyNames) as error:
                causes[type(error)] += 1
                time.sleep(0.001)
        assert IdCounter.objects.count() == 20
        assert all(causes.values())


def test_a_counter_is_known_by_rule_and_name_apart(make_rule: MakeRule) -> None:
    make_rule("a", "1{counter:06d}", max_counter=999_999)
    make_rule("a_b", "2{counter:06d}", max_counter=999_999)
    pairs = [("a", "b_c"), ("a_b", "c"), ("a", ""), ("a_b", ""), ("a", "b")]
    assert [next_id(*pair) for pair in pairs] == ["1000000", "2000000", "1000000", "2000000", "1000000"]
    assert IdCounter.objects.count() == len(pairs)


def test_two_instances_of_one_node_are_disjoint(order: IdRule, worker: Callable[..., Any]) -> None:
    """On one database, with one offset: their reservations come from one row."""
    workers = [worker("talk") for _ in range(2)]
    for _ in range(20):
        for process in workers:
            process.say('["order", "", "", 10]')
    answers = [answer for process in workers for answer in process.wait_for(20)]
    ids = [text for answer in answers for text in answer.strip("[]").split(", ")]
    assert len(ids) == 400
    assert len(set(ids)) == 400


def test_the_step_is_stored_and_a_change_refused(order: IdRule) -> None:
    with override_settings(RESTY_DJANGO={"IDS": {"STEP": 200, "OFFSET": 199}}):
        stop()
        assert [next_id("order") for _ in range(2)] == ["000000199", "000000399"]
        stop()
    for step, offset in ((3, 0), (201, 199), (1, 0)):
        with override_settings(RESTY_DJANGO={"IDS": {"STEP": step, "OFFSET": offset}}):
            stop()
            with pytest.raises(StepChanged):
                next_id("order")
            stop()
    assert row().step == 200


def test_a_late_writer_does_not_move_a_row_back(order: IdRule, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read, then another reserves, then write: the write is refused and done again upon what is there now."""
    from resty_django.ids import store as store_module

    original = store_module.find_counter
    store, spec = Store(time.time), order.spec()
    store.reserve(order.pk, spec, "", shown=None, want=10)
    rivals = iter(range(3))

    def find(*args: Any) -> Any:
        stored = original(*args)
        if next(rivals, None) is not None:
            monkeypatch.setattr(store_module, "find_counter", original)
            Store(time.time).reserve(order.pk, spec, "", shown=None, want=100)
            monkeypatch.setattr(store_module, "find_counter", find)
        return stored

    monkeypatch.setattr(store_module, "find_counter", find)
    grant = store.reserve(order.pk, spec, "", shown=None, want=5)
    assert grant.numbers == range(310, 315)
    assert row().bound == 315


def test_a_lua_rule_can_neither_run_away_nor_reach_the_host(make_rule: MakeRule) -> None:
    pytest.importorskip("lupa")
    make_rule()
    for name, body in (("endless", "while true do end"), ("host", "return os.execute('true')")):
        with pytest.raises(ValidationError):
            make_rule(name, LUA % body, kind="lua", max_counter=999_999)
        make_rule(name, LUA % body, kind="lua", max_counter=999_999, fixed_length=False)
        next_id("order")
        began = time.monotonic()
        with pytest.raises(RuleFailed):
            next_id(name)
        assert time.monotonic() - began < 10
        assert int(next_id("order")) == int(next_id("order")) - 1


def test_a_salt_cannot_make_two_ids_equal(make_rule: MakeRule) -> None:
    with pytest.raises(ValidationError, match="can make equal IDs from different pairs"):
        make_rule("free", "{salt}{counter}")
    make_rule("fixed", "{salt:3}{counter}")
    make_rule("wide", "{salt}{counter:06d}", max_counter=999_999)
    with pytest.raises(BadSalt):
        next_id("fixed", salt="12")
    for salt in ("1-2", "<b>", " ", "é", "\0"):
        with pytest.raises(BadSalt):
            next_id("wide", salt=salt)
    ids = [next_id("wide", salt=salt) for salt in ("", "0", "00", "1", "10") for _ in range(12)]
    assert len(set(ids)) == 60


def test_a_maximum_wider_than_its_field_is_refused(make_rule: MakeRule) -> None:
    with pytest.raises(ValidationError, match="max_counter 1000000 needs 7 characters"):
        make_rule(source="{counter:06d}", max_counter=1_000_000)
    rule = make_rule(source="{counter:06d}", max_counter=999_999)
    IdRule.objects.filter(pk=rule.pk).update(max_counter=1_000_000)
    with pytest.raises(BadRule):
        next_id("order")


def test_times_and_numbers_have_64_bits(make_rule: MakeRule, start: Callable[..., IdService]) -> None:
    make_rule(source="{now:%Y%m%d}{counter:019d}", min_counter=2**61, max_counter=2**62, reset_seconds=DAY)
    clock = Clock(datetime(2106, 2, 8, 12, tzinfo=UTC).timestamp())
    assert start(clock).next("order") == f"21060208{2**61:019d}"
    assert row().bound > 2**61
    assert row().shown > 2**32


def test_there_is_something_to_watch(order: IdRule, broken: Callable[[], Any]) -> None:
    from resty_django.ids.service import service

    for _ in range(30):
        next_id("order", "shop")
    figures = service().stats()
    assert figures["rules"] == {"order": {"issued": 30, "remaining": 70, "names": 1}}
    assert figures["reservations"] == 1
    assert figures["reserve_ms"] > 0
    assert figures["rules_age"] < 5
    with broken(), pytest.raises(Unavailable):
        next_id("order", "other")
    figures = service().stats()
    assert figures["reservation_failures"] >= 1
    assert figures["last_error"]


def test_rules_are_read_all_or_none(
    make_rule: MakeRule, eventually: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the database fails in the middle of a look, the old table stands; deleted rules do not live on."""
    from resty_django.ids.service import service

    with override_settings(RESTY_DJANGO={"IDS": {"REFRESH": 0.05}}):
        rules = {name: make_rule(name, name + "{counter:09d}") for name in "abc"}
        for name in "abc":
            next_id(name)
        table = service().rule_set
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE resty_ids_idrule RENAME COLUMN source TO source_away")
        try:
            IdRule.objects.update(version=99)
            time.sleep(0.3)
            assert service().rule_set is table
            assert [next_id(name) for name in "abc"] == [f"{name}000000001" for name in "abc"]
        finally:
            with connection.cursor() as cursor:
                cursor.execute("ALTER TABLE resty_ids_idrule RENAME COLUMN source_away TO source")
        rules["b"].delete()
        assert eventually(lambda: set(service().rule_set.rules) == {"a", "c"})  # type: ignore[union-attr]
