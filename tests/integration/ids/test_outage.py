"""The database slow, locked, broken or gone: what is reserved is given out, then a clear error, then recovery."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, connection, transaction
from django.test.utils import override_settings

from resty_django.ids import anext_id, monitor, next_id, next_ids, stop
from resty_django.ids.errors import Unavailable, UnknownRule
from resty_django.ids.models import IdRule
from resty_django.ids.service import service
from tests.integration.ids.conftest import away, served

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("impatient")]

Context = Callable[[], AbstractContextManager[None]]
WAIT = 0.6
NO_SUCH_THREAD = 1094
"""The error of MariaDB if a connection to be killed has already ended."""


@pytest.fixture(autouse=True)
def _short_wait() -> Iterator[None]:
    with override_settings(RESTY_DJANGO={"IDS": {"WAIT": WAIT}}):
        yield


def drained() -> list[str]:
    """Return all available IDs."""
    ids = []
    while True:
        try:
            ids.append(next_id("order"))
        except Unavailable:
            return ids


@pytest.fixture(params=["broken", "locked"])
def outage(request: pytest.FixtureRequest) -> Context:
    """Reservations that fail at once, and ones that do not come back."""
    context: Context = request.getfixturevalue(request.param)
    return context


def test_reserved_numbers_are_issued_then_none_then_the_service_recovers(
    order: IdRule, outage: Context, eventually: Callable[..., bool]
) -> None:
    first = next_id("order")
    with outage():
        ids = drained()
        assert ids == [f"{number:09d}" for number in range(1, 100)]
        began = time.monotonic()
        with pytest.raises(Unavailable, match=r"try again|did not answer|not asked again|migrate"):
            next_id("order")
        assert time.monotonic() - began < 10 * WAIT
        with pytest.raises(Unavailable):
            asyncio.run(anext_id("order"))
        with pytest.raises(Unavailable):
            next_id("order", "new")

    assert eventually(lambda: served(ids))
    ids += [next_id("order") for _ in range(150)]
    assert len({first, *ids}) == len(ids) + 1
    new: list[str] = []
    assert eventually(lambda: served(new, "new"))
    assert new == ["000000000"]


def test_the_error_comes_within_the_wait_for_every_caller(order: IdRule, locked: Context) -> None:
    next_id("order")

    def ask() -> float:
        began = time.monotonic()
        with pytest.raises(Unavailable):
            next_id("order", "new")
        return time.monotonic() - began

    with locked(), ThreadPoolExecutor(10) as pool:
        callers = [pool.submit(ask) for _ in range(10)]
        assert max(caller.result() for caller in callers) < 10 * WAIT


def test_a_broken_database_is_left_alone_for_a_growing_pause(order: IdRule, broken: Context) -> None:
    next_id("order")
    with broken():
        drained()
        before = service().reservations.failures
        until = time.monotonic() + 1.0
        requests = 0
        while time.monotonic() < until:
            with pytest.raises(Unavailable):
                next_id("order")
            requests += 1
            time.sleep(0.002)
        assert requests > 100
        assert service().reservations.failures - before <= 5
        assert "resty_ids_idcounter" in service().reservations.last_error
        assert service().stats()["last_error"] == service().reservations.last_error
        assert service().stats()["reservation_failures"] == service().reservations.failures


def test_the_segment_ahead_is_tried_again_in_the_background(
    order: IdRule, broken: Context, eventually: Callable[..., bool]
) -> None:
    """The database failed when half of the segment was used, and is back before the rest is: nobody waits."""
    ids = [next_id("order") for _ in range(50)]
    with broken():
        ids.append(next_id("order"))
        assert eventually(lambda: service().reservations.failures > 0)

    def reserved() -> bool:
        ids.append(next_id("order"))
        time.sleep(0.05)
        return service().counter("order", "").remaining > 50

    assert eventually(reserved)
    assert len(ids) < 100
    assert ids == [f"{number:09d}" for number in range(len(ids))]


def test_a_first_request_without_a_database_is_unavailable_and_a_later_one_is_served(
    order: IdRule, eventually: Callable[..., bool]
) -> None:
    with away("resty_ids_idrule"):
        for ask in (lambda: next_id("order"), lambda: monitor("order"), lambda: asyncio.run(anext_id("order"))):
            with pytest.raises(Unavailable):
                ask()
    assert next_id("order") == "000000000"


def test_rules_stay_known_while_the_database_is_away(order: IdRule, eventually: Callable[..., bool]) -> None:
    with override_settings(RESTY_DJANGO={"IDS": {"WAIT": WAIT, "REFRESH": 0.05}}):
        stop()
        next_id("order")
        with away("resty_ids_idrule"):
            assert eventually(lambda: service().reservations.failures > 1)
            assert next_id("order") == "000000001"
            with pytest.raises(UnknownRule):
                next_id("nothing")
        order.segment_size = 7
        order.save()
        assert eventually(lambda: service().rule("order").ready().spec.segment_size == 7)


def test_a_stop_without_a_database_ends_and_leaves_a_gap(order: IdRule, outage: Context) -> None:
    next_id("order")
    with outage():
        began = time.monotonic()
        stop(timeout=1.0)
        assert time.monotonic() - began < 10
    # 1: the server executed the return of the numbers after all, when the outage was over
    assert int(next_id("order")) in (1, 100)


def test_a_caller_that_holds_the_lock_itself_gets_an_answer(order: IdRule, eventually: Callable[..., bool]) -> None:
    """SQLite has one writer: a reservation cannot be made while the caller's own transaction is that writer."""
    ids: list[str] = []
    with transaction.atomic():
        Group.objects.create(name="written by the caller")
        assert served(ids) == (connection.vendor != "sqlite")
    assert eventually(lambda: served(ids))
    assert ids == [f"{number:09d}" for number in range(len(ids))]


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
        killed = 0
        for (connection_id,) in cursor.fetchall():
            try:
                cursor.execute(f"KILL {connection_id}")
            except OperationalError as error:
                if error.args[0] != NO_SUCH_THREAD:
                    raise
            else:
                killed += 1
        return killed


@pytest.fixture
def server() -> None:
    if connection.vendor == "sqlite":
        pytest.skip("RESTY_TEST_DB names no server")


@pytest.mark.services
@pytest.mark.usefixtures("server")
def test_killed_connections_are_replaced_without_an_error(order: IdRule) -> None:
    ids = []
    killed = 0
    for n in range(400):
        ids.append(next_id("order"))
        if n % 40 == 0:
            killed += kill_others()
            time.sleep(0.05)  # else two kills might meet one reservation
    assert killed >= 2
    assert ids == [f"{number:09d}" for number in range(400)]
    kill_others()
    assert next_id("order", "new") == "000000000"
    assert monitor("order", "new") == (0, 0)
    assert service().reservations.failures <= 1  # a kill may meet a reservation on its way, which is then made again


@pytest.mark.services
@pytest.mark.usefixtures("server")
def test_connections_killed_under_load_cost_gaps_at_most(order: IdRule) -> None:
    ended = threading.Event()

    def run() -> list[str]:
        ids: list[str] = []
        while not ended.is_set():
            try:
                ids += next_ids("order", 20)
            except Unavailable:
                time.sleep(0.01)
        return ids

    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(run) for _ in range(4)]
        try:
            for _ in range(30):
                time.sleep(0.05)
                kill_others()
        finally:
            ended.set()
        issued = [number for done in runs for number in done.result()]
    assert len(set(issued)) == len(issued) > 1000


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
