"""Requests to the reservation thread are limited, merged and served by priority."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from resty_django.ids import monitor, next_id, stop
from resty_django.ids.errors import NotExist, Unavailable
from resty_django.ids.models import IdCounter, IdRule
from resty_django.ids.service import IdService, requests, service
from resty_django.ids.udp import server as udp
from resty_django.ids.udp.server import UdpServer, bind
from tests.threads import serving

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]


@contextmanager
def held() -> Iterator[IdService]:
    """The service, whose thread is busy."""
    hold, holding = threading.Event(), threading.Event()
    ids = service()
    ids.load()

    def wait() -> None:
        holding.set()
        hold.wait(60)

    ids.reservations.submit(wait)
    assert holding.wait(10)
    try:
        yield ids
    finally:
        hold.set()


def test_lookups_have_a_bound_and_equal_ones_are_one(order: IdRule) -> None:
    with held() as ids:
        refused = 0
        for n in range(25_000):
            try:
                ids.reservations.requests.lookup(order.pk, f"app{n % 12_500}")
            except Unavailable:
                refused += 1
        assert len(ids.reservations.requests) == requests.MAX_LOOKUPS
        assert refused == 25_000 - 2 * requests.MAX_LOOKUPS


def test_a_request_for_the_rules_joins_the_one_that_waits(order: IdRule) -> None:
    with held() as ids:
        waiting = {ids.reservations.requests.refresh() for _ in range(10_000)}
        assert len(waiting) == 1
        assert len(ids.reservations.requests) == 1


def test_reservations_come_before_lookups(order: IdRule) -> None:
    done: list[str] = []
    with held() as ids:
        lookups = [ids.reservations.requests.lookup(order.pk, f"app{n}") for n in range(50)]
        for future in lookups:
            future.add_done_callback(lambda _: done.append("lookup"))
        ids.counter("order", "new").refill(5).add_done_callback(lambda _: done.append("reservation"))
    for future in lookups:
        assert future.result(10) is None
    assert done == ["reservation", *["lookup"] * 50]


def test_changed_rules_are_read_though_reservations_never_end(order: IdRule) -> None:
    with held() as ids:
        look = ids.reservations.requests.refresh()
        repeated = threading.Event()

        def reserve(number: int = 0) -> None:
            time.sleep(0.01)
            if not repeated.is_set():
                ids.counter("order", f"app{number}").refill(5).add_done_callback(lambda _: reserve(number + 1))

        reserve()
    try:
        assert look.result(20)
    finally:
        repeated.set()


def test_many_lookups_are_few_queries(order: IdRule) -> None:
    IdCounter.objects.bulk_create(
        [
            IdCounter(rule=order, app_name=f"app{n}", bound=n + 1, cycle_start=0, cycle_end=9, shown=0,
                      cycle_began="2026-11-21T12:00:00Z", cycle_first=0)
            for n in range(300)
        ]
    )  # fmt: skip
    queries: list[int] = []
    with held() as ids:
        lookups = {n: ids.reservations.requests.lookup(order.pk, f"app{n}") for n in range(600)}
        read_positions = ids.reservations.read_positions

        def counted() -> None:
            with CaptureQueriesContext(connection_of_the_thread()) as captured:
                read_positions()
            queries.append(len(captured))

        ids.reservations.read_positions = counted  # type: ignore[method-assign]
    positions = {n: future.result(20) for n, future in lookups.items()}
    assert sum(queries) <= 600 // requests.LOOKUP_BATCH
    assert {n for n, position in positions.items() if position is not None} == set(range(300))
    assert all(position == (n, 0) for n, position in positions.items() if position is not None)


def connection_of_the_thread() -> Any:
    return connection


def test_lookups_that_nobody_waits_for_any_more_cost_nothing(order: IdRule, settings: Any) -> None:
    settings.RESTY_DJANGO = {"IDS": {"WAIT": 0.05}}
    with held() as ids:
        late = ids.reservations.requests.lookup(order.pk, "app")
        time.sleep(0.2)
    with pytest.raises(Unavailable):
        late.result(10)
    ids.load()


def test_a_stop_refuses_waiting_requests(order: IdRule) -> None:
    with held() as ids:
        futures: list[Any] = [ids.reservations.requests.lookup(order.pk, f"app{n}") for n in range(100)]
        futures += [ids.reservations.requests.refresh(), ids.counter("order", "new").refill(5)]
        stop(timeout=0.1)
        for future in futures:
            with pytest.raises(Unavailable):
                future.result(10)


def test_monitor_still_answers(order: IdRule) -> None:
    next_id("order", "here")
    stop()
    assert monitor("order", "here").counter == 0
    with pytest.raises(NotExist):
        monitor("order", "nowhere")


def test_a_flood_of_monitor_requests_holds_up_no_ids(order: IdRule, settings: Any) -> None:
    """Names never heard of, by the thousand, over UDP: new names get their numbers, and a stop is quick."""
    settings.RESTY_DJANGO = {"IDS": {"UDP": {"PORT": 1}}}
    sock = bind("127.0.0.1", 0)
    server = UdpServer(sock, service())
    server.service.load()
    most_parked = 0
    with serving(server):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client, held():
            client.connect(sock.getsockname())
            client.settimeout(30)
            for n in range(8_000):
                client.send(b'{"action":"monitor","rule_name":"order","app_name":"nobody%d"}' % n)
                if n % 200 == 0:
                    time.sleep(0.001)
                    most_parked = max(most_parked, server.snapshot()["parked"])
        assert most_parked <= udp.MAX_PARKED_MONITORS
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.connect(sock.getsockname())
            client.settimeout(30)
            client.send(b'{"action":"get","rule_name":"order","app_name":"new"}')
            assert b'"code":0' in client.recv(65536)
        assert len(server.service.reservations.requests) <= requests.MAX_LOOKUPS
