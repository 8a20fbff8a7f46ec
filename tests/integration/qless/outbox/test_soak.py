"""Orders of many processes, while these, workers and the server are killed; each order has its jobs, once."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from redis.exceptions import RedisError

from resty_django.qless import Client
from resty_django.qless import client as default
from resty_django.qless.models import OutboxEntry
from resty_django.qless.outbox.delivery import Deliverer
from tests import processes
from tests.integration.qless.conftest import change_settings
from tests.integration.qless.outbox import shop, victim
from tests.integration.qless.worker.conftest import descendants, wait_for
from tests.integration.qless.worker.conftest import own_server as own_server  # the fixture
from tests.servers import Server

pytestmark = [
    pytest.mark.redis,
    pytest.mark.db,
    pytest.mark.soak,
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(900),
]

SELLERS, ORDERS = 8, 1000
EMPTY = "local keys = redis.call('KEYS', 'ql:j:*') redis.call('FLUSHALL') return keys"


class Storm:
    """The processes, each replaced by another when it dies at a random point, and a server with outages."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.log = folder / "log"
        self.dice = random.Random()
        self.deaths: dict[str, int] = dict.fromkeys([*victim.POINTS, "workers", "servers"], 0)
        self.running: list[tuple[str, tuple[str, ...], processes.Process]] = []
        self.ended = threading.Event()
        share = ORDERS // SELLERS
        for number in range(SELLERS):
            self.start("sell", str(number * share), str((number + 1) * share), "0.1")
        for command in ("qless_outbox", "qless_outbox", "runqless"):
            self.start("manage", command)

    def start(self, *arguments: str) -> None:
        points = ["row", "commit", "put", "sent", "mark", "marked"] if arguments[0] == "sell" else [*victim.POINTS][2:]
        options: dict[str, Any] = {"seconds": 1.0}
        if "runqless" not in arguments:  # workers are killed from outside
            options |= {"point": self.dice.choice(points), "passes": self.dice.randint(1, 20)}
        process = shop.start(self.server.url, self.log, options, *arguments)
        self.running.append((options.get("point", ""), arguments, process))

    def sellers(self) -> int:
        return sum(arguments[0] == "sell" for _, arguments, _ in self.running)

    def replace_the_dead(self) -> None:
        for place in list(self.running):
            point, arguments, process = place
            if process.poll() is not None:
                self.running.remove(place)
                if process.returncode == -signal.SIGKILL:
                    self.deaths[point] += 1
                    self.start(*arguments)
                else:
                    assert process.returncode == 0 and arguments[0] == "sell", self.log.read_text()[-3000:]

    def kill_a_worker(self) -> None:
        pids = [pid for _, arguments, process in self.running if "runqless" in arguments for pid in descendants(process.pid)]
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.dice.choice(pids), signal.SIGKILL)
                self.deaths["workers"] += 1

    def outages(self) -> None:
        """Stop or kill the server, again and again, and start it again."""
        while not self.ended.wait(self.dice.uniform(0.5, 3.0)):
            if self.dice.random() < 0.5 and self.server.process is not None:
                self.server.process.terminate()
                self.server.process.wait(20)
            self.server.kill()
            self.deaths["servers"] += 1
            time.sleep(self.dice.choice([0.1, 0.5, 2.0]))
            self.server.start()

    def rage(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Let everything happen until all orders are placed."""
        outages = threading.Thread(target=self.outages)
        outages.start()
        try:
            next_kill, end = time.monotonic() + 2.0, time.monotonic() + 600
            while self.sellers():
                assert time.monotonic() < end, self.log.read_text()[-3000:]
                self.replace_the_dead()
                if time.monotonic() > next_kill:
                    self.kill_a_worker()
                    next_kill = time.monotonic() + 2.0
                meanwhile()
                time.sleep(0.02)
        finally:
            self.ended.set()
            outages.join(60)
            self.end()

    def end(self) -> None:
        for _, _, process in self.running:
            for pid in [process.pid, *descendants(process.pid)] if process.poll() is None else []:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait(20)


@pytest.fixture
def storm(own_server: Server, settings: Any, tmp_path: Path) -> Iterator[Storm]:
    change_settings(settings, **shop.settings_for(own_server.url))
    storm = Storm(own_server, tmp_path)
    yield storm
    storm.end()
    default.close()


def drain(client: Client) -> None:
    """Deliver what is left, as a worker does; claims of the dead last a second."""

    def is_empty() -> bool:
        Deliverer(client, "default").run()
        return not OutboxEntry.objects.filter(state=OutboxEntry.State.WAITING).exists()

    wait_for(is_empty, "the outbox is empty", 30)


def report(storm: Storm, record_property: Callable[[str, object], None], **figures: object) -> None:
    for name, figure in {"orders": len(shop.accepted()), "deaths": storm.deaths, **figures}.items():
        record_property(name, figure)
        print(f"{name}: {figure}")


def check_orders() -> None:
    accepted = shop.accepted()
    assert accepted == {order for order in range(ORDERS) if order % 10}
    assert not OutboxEntry.objects.filter(state=OutboxEntry.State.REFUSED).exists()


def test_each_order_has_its_jobs_once(storm: Storm, record_property: Any) -> None:
    storm.rage()
    client = Client(storm.server.url)
    drain(client)
    puts, expected = shop.puts(client), shop.expected()
    report(storm, record_property, jobs=puts.total(), lost=(expected - puts).total(), twice=(puts - expected).total())
    check_orders()
    assert puts == expected
    assert all(storm.deaths.values()), storm.deaths


def test_each_order_has_its_jobs_after_redis_was_emptied(storm: Storm, record_property: Any) -> None:
    before: set[bytes] = set()
    client = Client(storm.server.url)

    def empty_once() -> None:
        if not before and len(shop.accepted()) > ORDERS / 2:
            with contextlib.suppress(RedisError):  # during an outage
                before.update(storm.server.call("EVAL", EMPTY, "0"))

    storm.rage(empty_once)
    drain(client)
    lost = shop.expected() - shop.puts(client)
    call_command("qless_outbox", redeliver_since="1h")
    drain(client)
    puts, expected = shop.puts(client), shop.expected()
    repeated = len(before & {*storm.server.call("KEYS", "ql:j:" + "[0-9a-f]" * 32)})
    report(storm, record_property, jobs=puts.total(), lost_with_redis=lost.total(), repeated=repeated)
    check_orders()
    assert puts == expected
    assert lost
