"""The service of a process over a real database: what callers get, and that none gets what another has."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext, override_settings

from resty_django.ids import amonitor, anext_id, anext_ids, monitor, next_id, next_ids, stop
from resty_django.ids.errors import (
    BadCount,
    BadName,
    Exhausted,
    NotExist,
    TooFast,
    TooManyNames,
    Unavailable,
    UnknownRule,
)
from resty_django.ids.models import IdCounter, IdRule
from resty_django.ids.service import service
from tests.threads import together

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]

MakeRule = Callable[..., IdRule]


def numbers(ids: list[str]) -> list[int]:
    return [int(issued_id) for issued_id in ids]


def many(count: int, rule: str = "order", app: str = "") -> list[str]:
    return next_ids(rule, count, app)


def bound(rule: str = "order", app: str = "") -> int:
    return IdCounter.objects.get(rule__name=rule, app_name=app).bound


def test_ids_come_one_after_the_other(order: IdRule) -> None:
    assert [next_id("order") for _ in range(250)] == [f"{number:09d}" for number in range(250)]
    assert many(3) == ["000000250", "000000251", "000000252"]


def test_each_name_has_its_own_numbers(order: IdRule) -> None:
    assert [next_id("order", app) for app in ("", "a", "b", "a")] == ["000000000"] * 3 + ["000000001"]


@pytest.mark.parametrize("count", [0, -1, 1001, True, 1.0, "1", None])
def test_a_count_out_of_bounds_is_refused(order: IdRule, count: Any) -> None:
    with pytest.raises(BadCount, match="from 1 to 1000"):
        next_ids("order", count)


def test_an_unknown_rule_is_an_error_and_costs_no_query_of_each_caller(order: IdRule) -> None:
    next_id("order")
    began = time.monotonic()
    for _ in range(200):
        with pytest.raises(UnknownRule, match="'nothing'"):
            next_id("nothing")
    assert time.monotonic() - began < 2


def test_a_name_is_checked_before_anything_is_reserved(order: IdRule) -> None:
    for name in ("a b", "a'b", "a" * 65, "a\0", "<x>", "a%"):
        with pytest.raises(BadName):
            next_id("order", name)
    assert not IdCounter.objects.exists()


@pytest.mark.parametrize(
    "name", ["back\\slash", "\\0", "ünï", "日本", "a" * 64, "A", "á", "x);--", "`$$", "[]{}", "😀"]
)
def test_any_other_name_makes_a_counter(order: IdRule, name: str) -> None:
    assert next_id("order", name) == "000000000"
    stop()
    assert next_id("order", name) == "000000001"
    assert IdCounter.objects.get().app_name == name


# Threads and clean stops


def test_eight_threads_get_all_numbers_once(order: IdRule) -> None:
    results: list[list[str]] = []

    def run(batch: int) -> None:
        results.append([issued_id for _ in range(3000 // batch) for issued_id in many(batch)])

    together(*[partial(run, batch) for batch in (1, 1, 1, 1, 1, 3, 100, 1000)])
    every = [number for mine in results for number in numbers(mine)]
    assert sorted(every) == list(range(8 * 3000))
    for mine in results:
        assert mine == sorted(mine)
    stop()
    assert bound() == 8 * 3000
    assert next_id("order") == f"{8 * 3000:09d}"


def test_a_clean_stop_leaves_no_gap(order: IdRule) -> None:
    ids: list[str] = []
    for count in (1, 49, 50, 51, 100, 1, 99, 500, 3):
        ids += many(count)
        stop()
        assert bound() == len(ids)
    assert numbers(ids) == list(range(len(ids)))


def ask_in_threads(ask: Callable[[], str], stop_them: Callable[[], None]) -> list[str]:
    """Return all IDs that four threads get until `stop_them` has run and no ID is available any more."""
    ids: list[str] = []
    lock = threading.Lock()
    ended = threading.Event()

    def run() -> None:
        mine = []
        while not ended.is_set():
            try:
                mine.append(ask())
            except Unavailable:
                continue
        with lock:
            ids.extend(mine)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    stop_them()
    ended.set()
    for thread in threads:
        thread.join()
    return ids


def test_a_stop_while_threads_ask_loses_nothing(order: IdRule) -> None:
    """They are refused or served, and what was served is what is missing afterwards."""
    every: list[str] = []
    for _ in range(8):
        running = service()
        running.next("order")

        def stop_this() -> None:
            time.sleep(0.05)
            stop()

        every += [f"{len(every):09d}", *ask_in_threads(lambda running=running: running.next("order"), stop_this)]  # type: ignore[misc]
        assert bound() == len(every)
    assert len(every) > 1000
    assert sorted(numbers(every)) == list(range(len(every)))


def test_successive_services_under_load_issue_nothing_twice(order: IdRule) -> None:
    """A stop under load may leave a gap: the new service has reserved before the old one could give back."""

    def stop_often() -> None:
        for _ in range(10):
            time.sleep(0.05)
            stop()

    ids = ask_in_threads(lambda: next_id("order"), stop_often)
    assert len(set(ids)) == len(ids) > 1000


def test_after_a_stop_the_next_request_starts_a_new_service(order: IdRule) -> None:
    old = service()
    next_id("order")
    stop()
    assert not old.reservations.running
    with pytest.raises(Unavailable):
        old.next("order")
    assert next_id("order") == "000000001"
    assert service() is not old


# Other processes


def test_concurrent_processes_issue_nothing_twice(order: IdRule, worker: Callable[..., Any]) -> None:
    workers = [worker("flood", "order", "", "1.5", str(batch)) for batch in (1, 1, 50)]
    mine: list[str] = []
    workers[0].wait_for(1)
    until = time.monotonic() + 1
    while time.monotonic() < until:
        mine += many(10)
    for process in workers:
        assert process.end(None) == ""
    every = [*mine, *(line for process in workers for line in process.lines)]
    assert all(len(process.lines) > 100 for process in workers)
    assert len(set(every)) == len(every)
    stop()
    # All ended cleanly, but whose segment was not the last has left a gap of what it had.
    assert bound() >= len(every)


def test_killed_processes_leave_gaps_but_no_duplicates(order: IdRule, worker: Callable[..., Any]) -> None:
    every: list[str] = []
    ids = {"MAX_SEGMENT": 100}
    for round_ in range(3):
        workers = [worker("flood", "order", "", "60", str(batch), ids=ids) for batch in (1, 7)]
        for process in workers:
            process.wait_for(200 + 300 * round_ % 700)
        for process in workers:
            process.end(signal.SIGKILL)
            every += process.lines
    assert len(set(every)) == len(every) > 2000
    # A kill loses the reserved numbers: two segments, and the batch that was on its way to the test.
    assert bound() - len(every) <= 6 * (2 * 100 + 107)
    assert int(next_id("order")) >= max(numbers(every))


def test_a_terminated_process_loses_nothing_when_it_stops_cleanly(order: IdRule, worker: Callable[..., Any]) -> None:
    for round_ in range(3):
        process = worker("talk")
        process.say(f'["order", "", "", {round_ + 10}]')
        process.wait_for(1)
        process.process.stdin.close()
        process.end(None)
    assert bound() == 33


# The caller's transaction and connection


def test_a_number_is_not_taken_back_by_the_callers_rollback(order: IdRule) -> None:
    next_id("order")
    ids = []
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), transaction.atomic():  # noqa: PT012
            ids.append(next_id("order"))
            1 / 0  # noqa: B018
    ids.append(next_id("order"))
    assert ids == ["000000001", "000000002", "000000003", "000000004"]


def test_the_request_path_does_not_touch_the_database(order: IdRule) -> None:
    next_id("order")
    with CaptureQueriesContext(connection) as queries:
        for _ in range(500):
            next_id("order")
        many(500)
        asyncio.run(anext_id("order"))
        monitor("order")
    assert queries.captured_queries == []


def test_segments_are_reserved_ahead(order: IdRule, eventually: Callable[..., bool]) -> None:
    many(51)
    assert eventually(lambda: bound() > 100)
    many(49)
    assert eventually(lambda: service().reservations.count == 2)  # counted after the commit
    counter = service().counter("order", "")
    assert counter.remaining >= 100


# Asynchronous callers


def test_anext_id_does_not_block_the_loop(order: IdRule, locked: Callable[[], Any], impatient: None) -> None:
    async def go() -> tuple[float, BaseException | str | list[str]]:
        slept = 0.0
        asking = asyncio.ensure_future(anext_id("order", "new"))
        while not asking.done():
            began = time.monotonic()
            await asyncio.sleep(0.005)
            slept = max(slept, time.monotonic() - began)
        return slept, (asking.exception() or asking.result())

    next_id("order")
    with override_settings(RESTY_DJANGO={"IDS": {"WAIT": 0.8}}):
        stop()
        next_id("order")
        with locked():
            slept, issued_id = asyncio.run(go())
    assert isinstance(issued_id, Unavailable)
    assert slept < 0.4


def test_five_hundred_tasks_at_once(order: IdRule) -> None:
    async def go() -> list[str]:
        return await asyncio.gather(*(anext_id("order", f"app{n % 5}") for n in range(500)))  # type: ignore[arg-type]

    with override_settings(RESTY_DJANGO={"IDS": {"NEW_NAMES_PER_SECOND": 0, "WAIT": 20.0}}):
        ids = asyncio.run(go())
    assert sorted(ids) == sorted(f"{number:09d}" for number in range(100) for _ in range(5))


def test_a_task_that_is_cancelled_does_not_harm_the_others(order: IdRule, locked: Callable[[], Any]) -> None:
    async def go() -> tuple[list[asyncio.Task[Any]], list[Any]]:
        lock = locked()
        await asyncio.to_thread(lock.__enter__)
        tasks = [asyncio.create_task(anext_ids("order", 2)) for _ in range(20)]
        await asyncio.sleep(0.1)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.sleep(0.05)
        await asyncio.to_thread(lock.__exit__, None, None, None)
        return tasks, await asyncio.gather(*tasks[1::2])

    next_id("order", "other")
    tasks, batches = asyncio.run(go())
    assert all(task.cancelled() for task in tasks[::2])
    assert sorted(number for ids in batches for number in numbers(ids)) == list(range(20))
    assert service().reservations.running


def test_anext_id_and_amonitor_load_the_rules(order: IdRule) -> None:
    assert asyncio.run(anext_id("order")) == "000000000"
    assert asyncio.run(amonitor("order")) == (0, 0)
    assert asyncio.run(anext_ids("order", 2)) == ["000000001", "000000002"]
    for ask in (anext_id, amonitor):
        with pytest.raises(UnknownRule):
            asyncio.run(ask("nothing"))


# Bounds on names


def test_new_names_end_at_the_rules_bound(make_rule: MakeRule, eventually: Callable[..., bool]) -> None:
    make_rule(max_names=3)
    for name in ("a", "b", "c"):
        next_id("order", name)
    for name in ("d", "e", "d"):
        with pytest.raises(TooManyNames, match="3"):
            next_id("order", name)
    assert next_id("order", "b") == "000000001"
    IdRule.objects.get().counters.get(app_name="a").delete()

    def served() -> bool:
        with contextlib.suppress(TooManyNames, TooFast):  # asked many times a second
            return next_id("order", "e") == "000000000"
        return False

    assert eventually(served), "names are counted again after a while"


def test_new_names_come_no_faster_than_the_site_allows(order: IdRule) -> None:
    with override_settings(RESTY_DJANGO={"IDS": {"NEW_NAMES_PER_SECOND": 5}}):
        stop()
        refused = 0
        for n in range(30):
            try:
                next_id("order", f"name{n}")
            except TooFast as error:
                refused += "5 per second" in str(error)
        assert 20 <= refused <= 25
        assert next_id("order", "name0") == "000000001"
        time.sleep(0.5)
        assert next_id("order", "later") == "000000000"
    assert len(service().counters) < 15


def test_a_flood_of_new_names_neither_fills_memory_nor_table(make_rule: MakeRule) -> None:
    make_rule(max_names=10)
    with override_settings(RESTY_DJANGO={"IDS": {"NEW_NAMES_PER_SECOND": 0}}):
        stop()
        for n in range(200):
            try:
                next_id("order", f"name{n}")
            except TooManyNames:
                continue
        assert IdCounter.objects.count() == 10
        assert len(service().counters) == 10


# Monitoring


def test_monitor_returns_the_position_and_creates_no_counter(order: IdRule) -> None:
    with pytest.raises(NotExist):
        monitor("order")
    assert not IdCounter.objects.exists()
    with pytest.raises(UnknownRule):
        monitor("nothing")
    many(7)
    assert monitor("order") == (6, 0)
    stop()
    assert monitor("order") == (6, 0)
    with pytest.raises(NotExist):
        monitor("order", "other")


def test_statistics_count_issued_ids(make_rule: MakeRule) -> None:
    rule = make_rule(segment_size=100)
    many(120)
    many(30, app="b")
    figures = service().stats()
    assert figures["rules"]["order"]["issued"] == 150
    assert figures["rules"]["order"]["names"] == 2
    assert figures["rules_age"] < 5
    rule.segment_size = 50
    rule.save()
    service().load()
    many(5)
    figures = service().stats()
    assert figures["rules"]["order"]["issued"] == 155
    assert figures["reservation_failures"] == 0
    assert figures["reserve_ms"] > 0


# Exhaustion


def test_an_exhausted_counter_says_so_until_there_is_room(make_rule: MakeRule) -> None:
    rule = make_rule(max_counter=49, segment_size=20)
    assert numbers(many(50)) == list(range(50))
    for _ in range(3):
        with pytest.raises(Exhausted):
            next_id("order")
    stop()
    with pytest.raises(Exhausted):
        next_id("order")
    rule.max_counter = 60
    rule.save()
    service().load()
    assert next_id("order") == "000000050"


def test_a_short_cycle_turns_while_callers_ask(make_rule: MakeRule) -> None:
    make_rule(source="{now:%Y%m%d%H%M%S}{counter:03d}", max_counter=999, reset_seconds=1, segment_size=20)
    ids: list[str] = []
    waits: list[float] = []
    lock = threading.Lock()

    def run() -> None:
        mine = []
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            try:
                mine.append(next_id("order"))
            except Exhausted as error:
                waits.append((error.until or 0.0) - time.time())
                time.sleep(0.01)
        with lock:
            ids.extend(mine)

    together(*[run for _ in range(4)])
    assert len(set(ids)) == len(ids)
    cycles = {issued_id[:14] for issued_id in ids}
    assert len(cycles) >= 3
    assert max(int(issued_id[14:]) for issued_id in ids) <= 999
    assert waits
    assert all(-1.1 < wait < 1.1 for wait in waits)


def test_two_nodes_share_a_range(order: IdRule, worker: Callable[..., Any]) -> None:
    neighbour = worker("talk", ids={"STEP": 2, "OFFSET": 1})
    with override_settings(RESTY_DJANGO={"IDS": {"STEP": 2, "OFFSET": 0}}):
        stop()
        assert numbers(many(150)) == list(range(0, 300, 2))
        assert monitor("order") == (298, 0)
        stop()
    neighbour.say('["order", "", "", 150]')
    assert neighbour.wait_for(1)[0] == str([f"{number:09d}" for number in range(1, 301, 2)]).replace("'", '"')
