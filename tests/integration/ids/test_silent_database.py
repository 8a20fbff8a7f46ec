"""A database connection that dies without a word is found, logged and replaced, and IDs go on."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from django.db import OperationalError, connection

from resty_django.database import LimitedConnection, limited_settings
from resty_django.ids import next_id, stop
from resty_django.ids.errors import IdError
from resty_django.ids.models import IdRule
from resty_django.ids.service import service
from resty_django.ids.service.reservations import WATCHDOG_SECONDS
from tests.integration.ids.conftest import served
from tests.servers import eventually
from tests.tcpproxy import Proxy

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]

TIMEOUT = 1.0
SLACK = 10
"""A time limit of a test is this many times what is expected."""


@pytest.fixture
def proxy(silent_database: Proxy, settings: Any) -> Iterator[Proxy]:
    """The proxy, between the reservation thread and the server."""
    settings.RESTY_DJANGO = {"IDS": {"DATABASE_TIMEOUT": TIMEOUT, "WAIT": 0.2, "REFRESH": 0.5}}
    yield silent_database
    stop()


def served_within(seconds: float, app: str) -> bool:
    return eventually(lambda: served([], app), seconds)


@pytest.mark.services
def test_a_connection_whose_traffic_is_dropped_is_replaced(
    order: IdRule, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    next_id("order", "before")
    proxy.silence()
    began = time.monotonic()
    assert served_within(SLACK * (TIMEOUT + WATCHDOG_SECONDS), "new")
    assert time.monotonic() - began > TIMEOUT / 2, "the connection was not silent"
    assert service().stats()["reservation_failures"] >= 1
    assert service().stats()["last_error"]
    assert any(record.levelno >= logging.ERROR and "did not answer for" in record.message for record in caplog.records)


@pytest.mark.services
def test_a_server_that_is_silent_to_new_connections_too_is_an_outage_with_an_end(order: IdRule, proxy: Proxy) -> None:
    next_id("order", "before")
    proxy.silence(new=True)
    accepted = proxy.accepted
    assert not served_within(TIMEOUT, "new")
    until = time.monotonic() + SLACK * (TIMEOUT + WATCHDOG_SECONDS)
    while proxy.accepted < accepted + 2 and time.monotonic() < until:
        time.sleep(0.05)
    assert proxy.accepted >= accepted + 2, "it does not try again"
    proxy.silence()
    assert served_within(SLACK * (TIMEOUT + WATCHDOG_SECONDS), "new")


@pytest.mark.services
def test_a_stop_does_not_wait_for_a_silent_database(order: IdRule, proxy: Proxy) -> None:
    next_id("order", "before")
    proxy.silence(new=True)
    began = time.monotonic()
    stop()
    assert time.monotonic() - began < 10


# Without a server


@pytest.fixture
def short(settings: Any) -> None:
    settings.RESTY_DJANGO = {"IDS": {"DATABASE_TIMEOUT": TIMEOUT, "WAIT": 0.2}}


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], threading.Event]]:
    """Have the next operation on the connection of the reservation thread hang until the event, as a driver may."""
    ended: list[threading.Event] = []

    def hang() -> threading.Event:
        event = threading.Event()
        ended.append(event)
        limited = service().reservations.connection
        assert limited is not None

        def execute(execute: Callable[..., Any], *args: Any) -> Any:
            event.wait(60)
            raise OperationalError("the driver came back")

        limited.wrapper.execute_wrappers.append(execute)
        return event

    yield hang
    for event in ended:
        event.set()


def test_a_driver_that_hangs_is_left_behind(
    order: IdRule, short: None, stuck: Callable[[], threading.Event], caplog: pytest.LogCaptureFixture
) -> None:
    next_id("order", "before")
    hanging = stuck()
    assert served_within(SLACK * 2 * (TIMEOUT + WATCHDOG_SECONDS), "new")
    assert service().reservations.failures >= 1
    assert any("starting a new" in record.message for record in caplog.records)
    failures = service().reservations.failures
    hanging.set()
    assert served_within(SLACK * TIMEOUT, "newer")
    assert service().reservations.failures == failures, "the old thread still counts"
    assert len({next_id("order", "new") for _ in range(300)}) == 300


def test_a_query_that_runs_too_long_is_interrupted(order: IdRule, short: None, eventually: Callable[..., bool]) -> None:
    """By the database or by the watchdog, whichever is first."""
    next_id("order", "before")
    endless = {
        "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
        "mysql": "SELECT SLEEP(60)",
        "postgresql": "SELECT pg_sleep(60)",
    }[connection.vendor]

    def run() -> None:
        with connection.cursor() as cursor:  # the thread's connection
            cursor.execute(endless)

    began = time.monotonic()
    done: Future[None] = service().reservations.submit(run)
    with contextlib.suppress(OperationalError, IdError):
        done.result(SLACK * 2 * (TIMEOUT + WATCHDOG_SECONDS))
    assert time.monotonic() - began < 30
    assert served_within(SLACK * TIMEOUT, "new")


def test_work_without_the_database_is_not_timed(order: IdRule, short: None) -> None:
    """Rules that take long to compile are not an outage."""
    next_id("order", "before")
    service().reservations.submit(lambda: time.sleep(2 * TIMEOUT + 2 * WATCHDOG_SECONDS)).result(30)
    assert service().reservations.failures == 0
    next_id("order", "new")


def test_a_limited_connection_knows_how_long_it_waits(order: IdRule) -> None:
    waits: list[float] = []

    def run() -> None:
        limited = LimitedConnection("default", 5.0)

        def look(execute: Callable[..., Any], *args: Any) -> Any:
            time.sleep(0.02)
            waits.append(limited.waited)
            return execute(*args)

        limited.wrapper.execute_wrappers.append(look)
        IdRule.objects.count()
        waits.append(limited.waited)
        limited.wrapper.close()
        limited.abort()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert waits[-1] == 0.0
    assert all(0.01 < wait < 5 for wait in waits[:-1])
    assert len(waits) >= 2


@pytest.mark.parametrize(
    ("vendor", "options", "limits"),
    [
        ("sqlite", {}, {"timeout": 2.5}),
        ("sqlite", {"timeout": 0.5}, {"timeout": 0.5}),
        ("mysql", {"read_timeout": 1}, {"connect_timeout": 3, "read_timeout": 1, "write_timeout": 3}),
        (
            "postgresql",
            {"pool": True, "keepalives_idle": 1},
            {
                "connect_timeout": 3,
                "tcp_user_timeout": 2500,
                "keepalives_idle": 1,
                "keepalives_interval": 1,
                "keepalives_count": 2,
            },
        ),
        ("oracle", {"a": 1}, {"a": 1}),
    ],
)
def test_limits_of_the_driver(vendor: str, options: dict[str, Any], limits: dict[str, Any]) -> None:
    settings = {"ENGINE": "django.db.backends." + vendor, "OPTIONS": options, "NAME": "x"}
    before = dict(options)
    assert limited_settings(settings, vendor, 2.5) == {**settings, "OPTIONS": limits}
    assert options == before
