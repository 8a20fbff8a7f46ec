"""New application names, however many and fast, do not hold up the names that a process serves."""

from __future__ import annotations

import gc
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from statistics import quantiles
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings

from resty_django.ids import next_id, stop
from resty_django.ids.errors import IdError, TooFast, TooManyNames
from resty_django.ids.models import IdCounter, IdRule
from resty_django.ids.service import id_service, requests
from resty_django.ids.service.id_service import IdService
from tests.servers import free_port

from .conftest import ROOT
from .test_reservations import held

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]


def outcome(future: Future[None]) -> str:
    """The error of an order, or "" if it was carried out."""
    try:
        future.result(20)
    except IdError as error:
        return type(error).__name__
    return ""


def store(rule: IdRule, name: str, bound: int) -> None:
    """Make the row of a counter, as another process would."""
    times = {"cycle_start": 0, "cycle_end": 9, "shown": 0, "cycle_began": "2026-11-21T12:00:00Z", "cycle_first": 0}
    IdCounter.objects.create(rule=rule, app_name=name, bound=bound, **times)


def test_known_names_come_first(order: IdRule) -> None:
    next_id("order", "known")
    store(order, "stored", 5)
    done: list[str] = []
    with held() as ids:
        orders = []
        for name in ("new1", "stored", "new2", "known"):
            counter = ids.counter("order", name)
            counter.attempt_many(200)
            orders.append(counter.refill(5))
            orders[-1].add_done_callback(lambda _, name=name: done.append(name))
    assert [outcome(future) for future in orders] == [""] * 4
    assert done == ["known", "new1", "new2", "stored"] or done == ["known", "stored", "new1", "new2"]
    assert next_id("order", "known") == "000000100"


def test_orders_that_nobody_waits_for_make_no_rows(make_rule: Any) -> None:
    make_rule(max_names=3)
    with override_settings(RESTY_DJANGO={"IDS": {"WAIT": 0.2, "NEW_NAMES_PER_SECOND": 1}}):
        stop()
        with held() as ids:
            given_up = [ids.counter("order", f"gone{n}").refill(0.2) for n in range(50)]
            time.sleep(0.3)
            asked = ids.counter("order", "asked").refill(0.2)
        assert {outcome(future) for future in given_up} == {"Unavailable"}
        assert outcome(asked) == "", "the others have used up no token of NEW_NAMES_PER_SECOND"
    assert set(IdCounter.objects.values_list("app_name", flat=True)) == {"asked"}
    assert IdRule.objects.get().name_count == 1
    assert set(ids.counters) == {("order", "asked")}


@pytest.mark.usefixtures("no_refill")
def test_names_beyond_the_rate_are_refused_before_any_is_created(order: IdRule, monkeypatch: Any) -> None:
    refused_at: list[int] = []
    with override_settings(RESTY_DJANGO={"IDS": {"NEW_NAMES_PER_SECOND": 10}}):
        stop()
        with held() as ids:
            create_many = ids.store.create_many

            def created(counters: Any) -> Any:
                refused_at.append(sum(future.done() for future in orders))
                return create_many(counters)

            monkeypatch.setattr(ids.store, "create_many", created)
            orders = [ids.counter("order", f"name{n}").refill(5) for n in range(100)]
        outcomes = [outcome(future) for future in orders]
    assert outcomes == [""] * 10 + ["TooFast"] * 90
    assert refused_at == [90]
    assert IdCounter.objects.count() == 10


@pytest.mark.usefixtures("no_refill")
def test_names_in_the_database_are_not_bounded_after_a_restart(order: IdRule) -> None:
    with override_settings(RESTY_DJANGO={"IDS": {"NEW_NAMES_PER_SECOND": 0}}):
        for n in range(30):
            next_id("order", f"name{n}")
    with override_settings(RESTY_DJANGO={"IDS": {"NEW_NAMES_PER_SECOND": 1}}):
        stop()
        with held() as ids:
            orders = [ids.counter("order", f"name{n}").refill(5) for n in range(30)]
        assert {outcome(future) for future in orders} == {""}
        assert next_id("order", "new") == "000000000"
        with pytest.raises(TooFast):
            next_id("order", "newer")


def test_new_names_share_transactions_and_fail_alone(make_rule: Any) -> None:
    make_rule(max_names=30)
    make_rule("other")
    batches: list[list[str]] = []
    with override_settings(RESTY_DJANGO={"IDS": {"NEW_NAMES_PER_SECOND": 0}}):
        stop()
        with held() as ids:
            create_many = ids.store.create_many

            def created(counters: Any) -> Any:
                batches.append([f"{counter.rule.spec.name}/{counter.app}" for counter in counters])
                if len(batches) == 1:  # another process is faster with one of the names
                    store(IdRule.objects.get(name="order"), "name7", 50)
                return create_many(counters)

            ids.store.create_many = created  # type: ignore[method-assign]
            orders = [ids.counter("order", f"name{n}").refill(5) for n in range(40)]
            orders.append(ids.counter("other", "name").refill(5))
        outcomes = [outcome(future) for future in orders]
        assert outcomes.count("TooManyNames") == 40 - 30 - 1
        assert set(outcomes) == {"", "TooManyNames"}
        assert (outcomes[7], outcomes[40]) == ("", "")
        assert [len(batch) for batch in batches] == [requests.NEW_BATCH, 40 - requests.NEW_BATCH, 1]
        assert IdCounter.objects.filter(rule__name="order").count() == 31
        assert next_id("order", "name7") == "000000050"
        with pytest.raises(TooManyNames):
            next_id("order", "name39")


@pytest.mark.usefixtures("no_refill")
def test_the_number_of_new_names_is_counted_as_they_come_and_go(order: IdRule, monkeypatch: Any) -> None:
    monkeypatch.setattr(id_service, "MAX_PENDING_NAMES", 20)

    def waiting() -> int:
        return sum(not counter.known for counter in ids.counters.values())

    with override_settings(RESTY_DJANGO={"IDS": {"NEW_NAMES_PER_SECOND": 5}}):
        stop()
        with held() as ids:
            orders = [ids.counter("order", f"name{n}").refill(5) for n in range(20)]
            with pytest.raises(TooManyNames):
                ids.counter("order", "name20")
            assert waiting() == 20
            ids.forget(ids.counter("order", "name19"))
            ids.forget(ids.counter("order", "name18"))
            for name in ("again1", "again2"):
                ids.counter("order", name)
            with pytest.raises(TooManyNames):
                ids.counter("order", "again3")
            for name in ("again1", "again2"):
                ids.forget(ids.counter("order", name))
            assert waiting() == 18
        assert [outcome(future) for future in orders[:6]] == [""] * 5 + ["TooFast"]
        outcome(orders[-1])
        assert waiting() == 0
        order.source = "X{counter:09d}"
        order.save()
        ids.refresh_now()
        assert ids.counters == {}
        for n in range(20):
            ids.counter("order", f"later{n}")
        with pytest.raises(TooManyNames):
            ids.counter("order", "later20")


def test_a_new_name_costs_the_same_however_many_there_are(order: IdRule) -> None:
    def lines(ids: IdService, name: str) -> int:
        """The lines of Python that a request for a new name runs before it waits."""
        count = 0

        def trace(frame: Any, event: str, arg: Any) -> Any:
            nonlocal count
            count += event == "line"
            return trace

        gc.disable()  # it would run, and count, the finalizers of other tests' objects
        sys.settrace(trace)
        try:
            ids.counter("order", name)
        finally:
            sys.settrace(None)
            gc.enable()
        return count

    old = sys.gettrace()
    try:
        with held() as ids:
            few = lines(ids, "few")
            for n in range(9_990):
                ids.counter("order", f"name{n}")
            for counter in ids.counters.values():
                ids.reserved(counter)
                counter.known = True
            for n in range(9_990):
                ids.counter("order", f"more{n}")
            assert lines(ids, "many") == few
    finally:
        sys.settrace(old)


# --- a real server --------------------------------------------------------------------------------------------------

RATE = 1000
"""Datagrams of a flood per second."""


@contextmanager
def server() -> Iterator[int]:
    port = free_port(socket.SOCK_DGRAM)
    env = {**os.environ, "RESTY_DB_NAME": str(connection.settings_dict["NAME"])}
    command = [sys.executable, "manage.py", "runidserver", "--port", str(port), "--stats", "0"]
    process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.terminate()
        assert process.wait(20) == 0


def ask(sock: socket.socket, seq: int) -> float:
    """Seconds until the known name has its ID; inf if it is refused or not answered."""
    began = time.perf_counter()
    sock.send(json.dumps({"action": "get", "rule_name": "order", "app_name": "known", "seq": seq}).encode())
    try:
        while (reply := json.loads(sock.recv(65535))).get("seq") != seq:
            pass
    except TimeoutError:
        return float("inf")
    return time.perf_counter() - began if reply["code"] == 0 else float("inf")


FLOOD = """
import json, socket, sys, time
port, rate, kind, first = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.connect(("127.0.0.1", port))
began, sent = time.monotonic(), 0
while True:
    while sent < (time.monotonic() - began) * rate:
        name = f"n{first + sent}"
        text = json.dumps({"action": "get", "rule_name": "order", "app_name": name})
        sock.send(text.encode() if kind == "names" else text[:-9].encode())
        sent += 1
    time.sleep(0.002)
"""


def measured(port: int, kind: str, seconds: float, first: int) -> list[float]:
    """The latencies of a known name under a flood."""
    flood = subprocess.Popen([sys.executable, "-c", FLOOD, str(port), str(RATE), kind, str(first)])
    latencies = []
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(10)
            sock.connect(("127.0.0.1", port))
            until, seq = time.monotonic() + seconds, 0
            while time.monotonic() < until:
                seq += 1
                latencies.append(ask(sock, seq))
                time.sleep(0.005)
            assert flood.poll() is None
    finally:
        flood.kill()
        flood.wait()
    return latencies


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_known_name_is_served_under_a_flood_of_new_ones(make_rule: Any) -> None:
    """At most three times the p99 under as many malformed datagrams; both turn by turn, on one server."""
    make_rule(segment_size=10)
    latencies: dict[str, list[float]] = {"names": [], "malformed": []}
    with server() as port, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(1)
        sock.connect(("127.0.0.1", port))
        for _ in range(60):
            try:
                if ask(sock, 0) < 1:
                    break
            except ConnectionRefusedError:
                time.sleep(0.5)
        for turn in range(5):
            for kind, values in latencies.items():
                values += measured(port, kind, 5, 100_000 * turn)
        time.sleep(1)
        assert ask(sock, 1) < 1, "the known name is served at once after the flood"
    p99 = {kind: quantiles(values, n=100)[98] for kind, values in latencies.items()}
    print(
        {kind: f"{1000 * seconds:.2f} ms" for kind, seconds in p99.items()}, f"{p99['names'] / p99['malformed']:.2f} x"
    )
    assert max(latencies["names"]) < float("inf"), "every request of the known name is served"
    assert p99["names"] <= 3 * p99["malformed"]
    assert IdCounter.objects.count() <= 50 * 35, "NEW_NAMES_PER_SECOND is 50"
