"""The database slow, locked, broken or gone: what is reserved is given out, then a clear error, then recovery."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.test.utils import override_settings

from resty_django.ids import anext_id, monitor, next_id, stop
from resty_django.ids.errors import Unavailable, UnknownRule
from resty_django.ids.models import IdCounter, IdRule
from resty_django.ids.service import service

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("impatient")]

Context = Callable[[], AbstractContextManager[None]]
WAIT = 0.6


@pytest.fixture(autouse=True)
def _short_wait() -> Iterator[None]:
    with override_settings(RESTY_DJANGO={"IDS": {"WAIT": WAIT}}):
        yield


def drained() -> list[str]:
    """All that can be had."""
    seen = []
    while True:
        try:
            seen.append(next_id("order"))
        except Unavailable:
            return seen


def served(seen: list[str], app: str = "") -> bool:
    """Whether an ID could be had, which is then added to `seen`."""
    try:
        seen.append(next_id("order", app))
    except Unavailable:
        return False
    return True


@pytest.fixture(params=["broken", "locked"])
def outage(request: pytest.FixtureRequest) -> Context:
    """Reservations that fail at once, and ones that do not come back."""
    found: Context = request.getfixturevalue(request.param)
    return found


def test_what_is_reserved_is_given_out_then_unavailable_then_it_recovers(
    order: IdRule, outage: Context, eventually: Callable[..., bool]
) -> None:
    first = next_id("order")
    with outage():
        seen = drained()
        assert seen == [f"{number:09d}" for number in range(1, 100)]
        began = time.monotonic()
        with pytest.raises(Unavailable, match=r"try again|did not answer|not asked again"):
            next_id("order")
        assert time.monotonic() - began < WAIT + 0.3
        with pytest.raises(Unavailable):
            asyncio.run(anext_id("order"))
        with pytest.raises(Unavailable):
            next_id("order", "new")

    assert eventually(lambda: served(seen))
    seen += [next_id("order") for _ in range(150)]
    assert len({first, *seen}) == len(seen) + 1
    new: list[str] = []
    assert eventually(lambda: served(new, "new"))
    assert new == ["000000000"]


def test_the_error_comes_within_the_wait_for_every_caller(order: IdRule, locked: Context) -> None:
    next_id("order")
    times: list[float] = []

    def ask() -> None:
        began = time.monotonic()
        with pytest.raises(Unavailable):
            next_id("order", "new")
        times.append(time.monotonic() - began)

    with locked():
        threads = [threading.Thread(target=ask) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(times) == 10
    assert max(times) < WAIT + 0.5


def test_a_broken_database_is_left_alone_for_a_growing_pause(order: IdRule, broken: Context) -> None:
    next_id("order")
    with broken():
        drained()
        before = service().desk.failures
        until = time.monotonic() + 1.0
        asked = 0
        while time.monotonic() < until:
            with pytest.raises(Unavailable):
                next_id("order")
            asked += 1
            time.sleep(0.002)
        assert asked > 100
        assert service().desk.failures - before <= 5
        assert "resty_ids_idcounter" in service().desk.last_error


def test_the_segment_ahead_is_tried_again_in_the_background(
    order: IdRule, broken: Context, eventually: Callable[..., bool]
) -> None:
    """The database failed when half of the segment was used, and is back before the rest is: nobody waits."""
    seen = [next_id("order") for _ in range(50)]
    with broken():
        seen.append(next_id("order"))
        assert eventually(lambda: service().desk.failures > 0)

    def reserved() -> bool:
        seen.append(next_id("order"))
        time.sleep(0.05)
        return service().counter("order", "").remaining > 50

    assert eventually(reserved)
    assert len(seen) < 100
    assert seen == [f"{number:09d}" for number in range(len(seen))]


def test_a_first_request_without_a_database_is_unavailable_and_a_later_one_is_served(
    order: IdRule, eventually: Callable[..., bool]
) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE resty_ids_idrule RENAME TO resty_ids_away")
    try:
        for ask in (lambda: next_id("order"), lambda: monitor("order"), lambda: asyncio.run(anext_id("order"))):
            with pytest.raises(Unavailable):
                ask()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE resty_ids_away RENAME TO resty_ids_idrule")
    assert next_id("order") == "000000000"


def test_rules_stay_known_while_the_database_is_away(order: IdRule, eventually: Callable[..., bool]) -> None:
    with override_settings(RESTY_DJANGO={"IDS": {"WAIT": WAIT, "REFRESH": 0.05}}):
        stop()
        next_id("order")
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE resty_ids_idrule RENAME TO resty_ids_away")
        try:
            assert eventually(lambda: service().desk.failures > 1)
            assert next_id("order") == "000000001"
            with pytest.raises(UnknownRule):
                next_id("nothing")
        finally:
            with connection.cursor() as cursor:
                cursor.execute("ALTER TABLE resty_ids_away RENAME TO resty_ids_idrule")
        order.segment_size = 7
        order.save()
        assert eventually(lambda: service().rule("order").ready().spec.segment_size == 7)


def test_a_stop_without_a_database_ends_and_leaves_a_gap(order: IdRule, outage: Context) -> None:
    next_id("order")
    with outage():
        began = time.monotonic()
        stop(timeout=1.0)
        assert time.monotonic() - began < 3
    assert IdCounter.objects.get().bound in (1, 100)
    assert int(next_id("order")) in (1, 100)


def test_a_caller_that_holds_the_lock_itself_gets_an_answer(order: IdRule, eventually: Callable[..., bool]) -> None:
    """SQLite has one writer: a reservation cannot be made while the caller's own transaction is that writer."""
    seen: list[str] = []
    with transaction.atomic():
        Group.objects.create(name="written by the caller")
        assert served(seen) == (connection.vendor != "sqlite")
    assert eventually(lambda: served(seen))
    assert seen == [f"{number:09d}" for number in range(len(seen))]


# Servers that end connections


def kill_others() -> int:
    """End all other connections to the test database."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            return int(cursor.fetchone()[0])
        cursor.execute("SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()")
        found = [row[0] for row in cursor.fetchall()]
        for one in found:
            cursor.execute(f"KILL {one}")
        return len(found)


@pytest.fixture
def server() -> None:
    if connection.vendor == "sqlite":
        pytest.skip("RESTY_TEST_DB names no server")


@pytest.mark.services
@pytest.mark.usefixtures("server")
def test_killed_connections_are_replaced_without_an_error(order: IdRule) -> None:
    seen = []
    killed = 0
    for n in range(400):
        seen.append(next_id("order"))
        if n % 40 == 0:
            killed += kill_others()
            time.sleep(0.05)  # else two kills might meet one reservation
    assert killed >= 2
    assert seen == [f"{number:09d}" for number in range(400)]
    kill_others()
    assert next_id("order", "new") == "000000000"
    assert monitor("order", "new") == (0, 0)
    assert service().desk.failures <= 1  # a kill may meet a reservation on its way, which is then made again


@pytest.mark.services
@pytest.mark.usefixtures("server")
def test_connections_killed_under_load_cost_gaps_at_most(order: IdRule) -> None:
    seen: list[str] = []
    lock = threading.Lock()
    ended = threading.Event()

    def run() -> None:
        mine: list[str] = []
        while not ended.is_set():
            try:
                found: Any = next_id("order", count=20)
                mine += found
            except Unavailable:
                time.sleep(0.01)
        with lock:
            seen.extend(mine)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(30):
        time.sleep(0.05)
        kill_others()
    ended.set()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == len(seen) > 1000


@pytest.mark.services
@pytest.mark.usefixtures("server")
def test_a_read_only_server_is_an_outage(order: IdRule, eventually: Callable[..., bool]) -> None:
    if connection.vendor != "mysql":
        pytest.skip("of MariaDB and MySQL alone")
    next_id("order")
    with connection.cursor() as cursor:
        cursor.execute("FLUSH TABLES WITH READ LOCK")
        try:
            assert len(drained()) == 99
            with pytest.raises(Unavailable):
                next_id("order")
        finally:
            cursor.execute("UNLOCK TABLES")
    assert eventually(lambda: served([]))
