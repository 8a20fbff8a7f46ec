"""Transactions, clocks, databases and servers in states that are rare: no row is lost, and none is delivered twice."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import Error, connection, connections, transaction

from resty_django.qless import Client, chain
from resty_django.qless.models import OutboxEntry
from resty_django.qless.outbox.delivery import Deliverer
from resty_django.qless.outbox.outbox import MARKS_PER_UPDATE, Outbox, default_outbox, deliver_all
from tests.integration.qless.conftest import SkewedClient, change_settings, history
from tests.integration.qless.tasks.examples import add
from tests.servers import Server, running

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.db, pytest.mark.redis]

State = OutboxEntry.State
Clients = Callable[[float], Client]


@pytest.fixture
def later(outbox: Client, valkey_url: str) -> Iterator[Clients]:
    """Clients of the same server whose clocks are ahead by a number of seconds."""
    with ExitStack() as stack:

        def make(seconds: float) -> Client:
            client = SkewedClient(valkey_url)
            client.skew = seconds
            stack.callback(client.close)
            return client

        yield make


@pytest.fixture
def no_owner(outbox: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes die after each commit."""
    monkeypatch.setattr(Outbox, "deliver", lambda outbox, entry: False)


@pytest.fixture
def second(outbox: Client, tmp_path: Path) -> Iterator[str]:
    """The alias of a second database, with an outbox."""
    alias = "second"
    connections.settings[alias] = {
        **connections.settings["default"],
        **{"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "second.sqlite3")},
        **{"OPTIONS": {"transaction_mode": "IMMEDIATE"}, "HOST": "", "PORT": "", "USER": "", "PASSWORD": ""},
    }
    connections[alias].connect()  # Django lets tests of one database use others that are connected
    with connections[alias].schema_editor() as editor:
        editor.create_model(OutboxEntry)
    yield alias
    connections[alias].close()
    del connections[alias]
    del connections.settings[alias]


def in_thread(function: Callable[[], object]) -> threading.Thread:
    """Run a function with separate connections."""

    def run() -> None:
        try:
            function()
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def states() -> list[str]:
    return [*OutboxEntry.objects.order_by("pk").values_list("state", flat=True)]


def put_once(client: Client, *results: Any) -> bool:
    return all(history(client, result.id).count("put") == 1 for result in results)


def servers_only() -> None:
    if connection.vendor == "sqlite":
        pytest.skip("RESTY_TEST_DB names no server")


# --- transactions ---


@pytest.mark.parametrize("undone", ["default", "second"])
def test_transactions_of_two_databases_end_separately(outbox: Client, settings: Any, second: str, undone: str) -> None:
    change_settings(settings, OUTBOX={"DATABASE": ["default", second]})
    results = {}
    with transaction.atomic("default"), transaction.atomic(second):
        for alias in ("default", second, "default", second):
            results.setdefault(alias, []).append(add.apply_async((1,), using=alias))
        transaction.set_rollback(True, using=undone)
    kept = second if undone == "default" else "default"
    assert put_once(outbox, *results[kept])
    assert [outbox.jobs.get(result.id) for result in results[undone]] == [None, None]
    assert OutboxEntry.objects.using(undone).count() == 0
    assert OutboxEntry.objects.using(kept).values_list("transaction").distinct().count() == 1


def test_workers_deliver_each_database(later: Clients, settings: Any, second: str, no_owner: None) -> None:
    change_settings(settings, OUTBOX={"DATABASE": ["default", second]})
    results = [add.apply_async((1,), using=alias) for alias in ("default", second, second)]
    client = later(11.0)
    assert [Deliverer(client, alias).run() for alias in ("default", second)] == [{"delivered": 1}, {"delivered": 2}]
    assert put_once(client, *results)


def test_a_savepoint_that_is_rolled_back_leaves_the_rest_in_order(later: Clients, no_owner: None) -> None:
    with transaction.atomic():
        first = add.delay(1)
        with transaction.atomic():
            add.delay(2)
            with transaction.atomic():
                add.delay(3)
            transaction.set_rollback(True)
        last = add.delay(4)
    client = later(11.0)
    assert Deliverer(client, "default").run() == {"delivered": 2}
    assert client.queues["q"].jobs.ready() == [first.id, last.id]
    assert OutboxEntry.objects.values_list("transaction").distinct().count() == 1


def test_a_row_with_a_smaller_id_is_committed_later(later: Clients, no_owner: None) -> None:
    servers_only()
    is_written, may_commit = threading.Event(), threading.Event()
    results = []

    def slow() -> None:
        with transaction.atomic():
            results.append(add.delay(1))
            is_written.set()
            may_commit.wait(30)

    thread = in_thread(slow)
    assert is_written.wait(30)
    results.append(add.delay(2))
    client = later(11.0)
    assert Deliverer(client, "default").run() == {"delivered": 1}
    may_commit.set()
    thread.join(30)
    assert states() == ["waiting", "delivered"]
    assert Deliverer(client, "default").run() == {"delivered": 1}
    assert put_once(client, *results)


# --- claims ---


def test_claims_leave_out_what_another_connection_is_claiming(later: Clients, no_owner: None) -> None:
    servers_only()
    for number in range(4):
        add.delay(number)
    pks = [*OutboxEntry.objects.order_by("pk").values_list("pk", flat=True)]
    is_locked, may_end = threading.Event(), threading.Event()

    def claim_slowly() -> None:
        with transaction.atomic():
            assert len(OutboxEntry.objects.select_for_update().filter(pk__in=pks[:2])) == 2
            is_locked.set()
            may_end.wait(30)

    thread = in_thread(claim_slowly)
    assert is_locked.wait(30)
    deliverer = Deliverer(later(11.0), "default")
    try:
        assert [entry.pk for entry in deliverer.claim()] == pks[2:]  # does not wait
    finally:
        may_end.set()
        thread.join(30)
    assert [entry.pk for entry in deliverer.claim()] == pks[:2]


def test_two_deliverers_at_once_put_each_job_once(later: Clients, no_owner: None) -> None:
    results = [add.delay(number) for number in range(150)]
    clients = [later(11.0), later(80.0)]  # the second one takes over claims of the first one
    threads = [in_thread(Deliverer(client, "default").run) for client in clients]
    for thread in threads:
        thread.join(60)
    assert {*states()} == {"delivered"}
    assert put_once(clients[0], *results)


def test_an_entry_that_is_claimed_without_the_earlier_ones_of_its_transaction_waits(
    later: Clients, no_owner: None
) -> None:
    with transaction.atomic():
        results = [add.delay(1), add.delay(2)]
    client = later(11.0)
    deliverer, other = (Deliverer(client, "default") for _ in range(2))
    claimed = deliverer.claim()
    assert deliverer.send(claimed[1:]) == []
    other.settle(other.send(claimed[:1]))
    assert [delivery.error for delivery in deliverer.send(claimed[1:])] == [None]
    assert client.queues["q"].jobs.ready() == [result.id for result in results]


def test_an_entry_that_is_discarded_while_it_is_sent_stays_discarded(later: Clients, no_owner: None) -> None:
    result = add.delay(1)
    client = later(11.0)
    deliverer = Deliverer(client, "default")
    claimed = deliverer.claim()
    result.revoke()
    deliverer.settle(deliverer.send(claimed))
    assert states() == ["discarded"]
    assert client.jobs.get(result.id) is None


# --- clocks ---


@pytest.mark.parametrize("skew", [3600.0, -3600.0])
def test_a_deliverer_dies_after_its_clock_was_set(later: Clients, no_owner: None, skew: float) -> None:
    result = add.delay(1)
    client = later(11.0)
    Deliverer(client, "default").claim()
    client.skew += skew
    lost = Deliverer(client, "default").claim()
    assert len(lost) == 1  # the claim is over, or from the future
    client.skew = 11.0 + 61.0
    assert Deliverer(client, "default").run() == {"delivered": 1}
    Deliverer(client, "default").settle(Deliverer(client, "default").send(lost))
    assert put_once(client, result)


@pytest.mark.parametrize("skew", [3600.0, -3600.0])
def test_rows_of_a_process_whose_clock_is_wrong_are_delivered(later: Clients, no_owner: None, skew: float) -> None:
    default_outbox().client = later(skew)
    result = add.delay(1)
    client = later(11.0)
    assert Deliverer(client, "default").run() == {"delivered": 1}
    assert put_once(client, result)


# --- the database goes away ---


class Outage:
    """Statements that write fail, as while the database is down or locked, until the block ends."""

    def __enter__(self) -> None:
        if connection.vendor == "sqlite":
            self.other = sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)
            self.other.execute("BEGIN IMMEDIATE")
            with connection.cursor() as cursor:
                cursor.execute("PRAGMA busy_timeout = 0")
            return
        number = "connection_id()" if connection.vendor == "mysql" else "pg_backend_pid()"
        kill = "KILL %s" if connection.vendor == "mysql" else "SELECT pg_terminate_backend(%s)"
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {number}")
            backend = cursor.fetchone()[0]

        def end() -> None:
            with connection.cursor() as cursor:
                cursor.execute(kill, [backend])

        in_thread(end).join(30)

    def __exit__(self, *_: object) -> None:
        if connection.vendor == "sqlite":
            self.other.close()
        connection.close()


def test_the_database_goes_away_before_the_mark(later: Clients, no_owner: None) -> None:
    result = add.delay(1)
    deliverer = Deliverer(later(11.0), "default")
    deliveries = deliverer.send(deliverer.claim())
    with Outage(), pytest.raises(Error):
        deliverer.settle(deliveries)
    assert states() == ["waiting"]
    client = later(11.0 + 61.0)
    assert Deliverer(client, "default").run() == {"delivered": 1, "repeated": 1}
    assert put_once(client, result)


def test_a_process_cannot_mark_what_it_has_delivered(later: Clients, caplog: pytest.LogCaptureFixture) -> None:
    results = [add.delay(number) for number in range(MARKS_PER_UPDATE - 1)]
    with transaction.atomic():
        results.append(add.delay(0))
        outage = Outage()
        transaction.on_commit(outage.__enter__)
        connection.run_on_commit.reverse()
    outage.__exit__()
    assert {*states()} == {"waiting"}
    client = later(11.0)
    assert Deliverer(client, "default").run() == {"delivered": MARKS_PER_UPDATE, "repeated": MARKS_PER_UPDATE}
    assert put_once(client, *results)
    assert caplog.text == ""


# --- the server refuses ---


@pytest.fixture
def full(outbox: Client) -> Iterator[Callable[[bool], None]]:
    """Fill the server, or make room."""
    redis = outbox.source.sync()
    used = int(redis.info("memory")["used_memory"])

    def fill(is_full: bool) -> None:
        redis.config_set("maxmemory", used // 2 if is_full else 0)

    yield fill
    fill(False)


def test_jobs_wait_while_the_server_is_full(later: Clients, full: Callable[[bool], None]) -> None:
    full(True)
    with transaction.atomic():
        results = [add.delay(1), add.delay(2)]
        results.append(chain(add.s(3), add.s(4)).delay())
    client: Any = later(11.0)
    assert Deliverer(client, "default").run() == {}
    assert states() == ["waiting"] * 3
    full(False)
    client.skew += 61.0
    assert Deliverer(client, "default").run() == {"delivered": 3}
    assert put_once(client, *results, results[2].parent)


@pytest.mark.parametrize("is_owner", [True, False])
def test_a_row_that_the_server_refuses_stops_no_other(
    later: Clients, is_owner: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_owner:
        monkeypatch.setattr(Outbox, "deliver", lambda outbox, entry: False)
    client = later(11.0)
    client.config.set("max-payload", 200)
    with transaction.atomic():
        before = add.delay(1)
        refused = add.delay(10**300)
        after = add.delay(2)
    assert not is_owner or put_once(client, before, after)
    Deliverer(client, "default").run()
    assert states() == ["delivered", "refused", "delivered"]
    assert "longer than max-payload" in OutboxEntry.objects.get(state=State.REFUSED).error
    assert put_once(client, before, after)
    assert client.jobs.get(refused.id) is None


def test_the_text_of_an_error_fits_each_database(later: Clients, no_owner: None) -> None:
    client, name = later(11.0), "a\udc80"
    client.config.set("fixes", "all")
    add.apply_async((1,), task_id=name)
    other = add.apply_async((2,), depends=[name])
    assert Deliverer(client, "default").run() == {"delivered": 2}
    add.apply_async((1,), task_id=name, depends=[other.id])
    other = add.delay(1)
    assert Deliverer(client, "default").run() == {"delivered": 1, "refused": 1}
    assert "would wait for itself" in OutboxEntry.objects.get(state=State.REFUSED).error
    assert put_once(client, other)


class Emptied(Client):
    """A client whose server is emptied between the commands of its first pipeline."""

    is_emptied = False

    def call_many(self, requests: Any) -> list[Any]:
        if self.is_emptied:
            return super().call_many(requests)
        self.is_emptied = True
        replies = super().call_many(requests[:1])
        self.source.sync().flushdb()
        return replies + super().call_many(requests[1:])


def test_a_row_is_sent_again_after_the_server_was_emptied_between_its_commands(
    later: Clients, no_owner: None, valkey_url: str
) -> None:
    last = chain(add.s(1), add.s(2)).delay()
    with closing(Emptied(valkey_url, clock=later(11.0).clock)) as client:
        Deliverer(client, "default").run()
    assert states() == ["waiting"]
    client = later(20.0)
    assert Deliverer(client, "default").run() == {"delivered": 1}
    assert put_once(client, last.parent, last)


# --- rows that wait for others ---


def test_a_process_delivers_what_depends_on_its_own_jobs(outbox: Client) -> None:
    first = add.delay(1)
    second = add.apply_async((2,), depends=[first.id])
    with transaction.atomic():
        third = add.apply_async((3,), depends=[first.id, second.id])
    assert put_once(outbox, first, second, third)


def test_a_dependent_does_not_send_a_row_before_the_earlier_ones_of_its_transaction(
    later: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as dying, transaction.atomic():
        dying.setattr(Outbox, "deliver", lambda outbox, entry: False)
        first, second = add.delay(1), add.delay(2)
    dependent = add.apply_async((3,), depends=[second.id])
    client = later(11.0)
    Deliverer(client, "default").run()
    assert client.queues["q"].jobs.ready() == [first.id, second.id]
    assert put_once(client, first, second, dependent)


def test_a_pass_ends_although_many_rows_wait_for_one(
    later: Clients, no_owner: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = later(11.0)
    client.config.set("max-payload", 200)
    refused = add.delay(10**300)
    for number in range(4):
        add.apply_async((number,), depends=[refused.id])
    monkeypatch.setattr("resty_django.qless.outbox.delivery.MAX_ENTRIES", 2)
    deliverer = Deliverer(client, "default")
    passes = []

    def slow(entries: Any) -> Any:
        passes.append(len(entries))
        assert len(passes) < 10
        client.skew += 2.0
        return needed(entries)

    needed = deliverer.needed
    monkeypatch.setattr(Deliverer, "needed", staticmethod(slow))
    assert deliverer.run() == {"refused": 1, "blocked": 4}


# --- maintenance ---


def test_a_row_that_is_redelivered_at_this_moment_is_not_deleted(later: Clients) -> None:
    result = add.delay(1)
    Deliverer(later(11.0), "default").run()
    deliverer = Deliverer(later(11.0 + 8 * 86400), "default")

    def redeliver_before(execute: Any, sql: str, *args: Any) -> Any:
        if sql.startswith("DELETE"):
            OutboxEntry.objects.update(state=State.WAITING)
        return execute(sql, *args)

    with connection.execute_wrapper(redeliver_before):
        assert deliverer.tidy() == 0
    assert OutboxEntry.objects.get().jid == result.id


def test_redelivery_includes_what_its_process_has_not_marked(
    outbox: Client, valkey: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    result = add.delay(1)
    valkey.flushdb()
    call_command("qless_outbox", redeliver_since="1h")
    for _ in range(MARKS_PER_UPDATE - 1):
        add.delay(2)
    assert {*states()} == {"delivered"}
    assert put_once(outbox, result)


def test_an_error_after_the_commit_is_logged(
    outbox: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(outbox: Outbox, entry: OutboxEntry) -> bool:
        raise RuntimeError("broken")

    monkeypatch.setattr(Outbox, "deliver", fail)
    with transaction.atomic():
        add.delay(1)
    assert "broken" in caplog.text
    assert states() == ["waiting"]


def test_an_entry_waits_for_an_entry_of_another_database(
    outbox: Client, settings: Any, second: str, no_owner: None
) -> None:
    change_settings(settings, OUTBOX={"DATABASE": ["default", second]})
    client = default_outbox().client
    first = add.apply_async((1,), using=second)
    dependent = add.apply_async((2,), depends=first)
    chained = chain(add.signature((3,), depends=[dependent.id]), add.s()).apply_async(using=second)
    default, other = (Deliverer(client, alias) for alias in ("default", second))
    assert default.run(all_waiting=True) == {"blocked": 1}
    assert client.jobs.get(dependent.id) is None
    assert deliver_all(client) == {"delivered": 3, "blocked": 2}
    assert put_once(client, first, dependent, chained)
    assert client.queues["q"].jobs.ready() == [first.id]
    assert other.run(all_waiting=True) == {}


def test_what_a_restored_backup_does_not_contain_is_repeated(outbox: Client, settings: Any, tmp_path: Path) -> None:
    server = Server(tmp_path)
    with running([server]):
        change_settings(settings, URL=server.url)
        client = default_outbox().client
        before = [add.delay(number) for number in range(3)]
        client.queues["q"].pop().complete()
        server.call("SAVE")
        backup = (tmp_path / "dump.rdb").read_bytes()
        client.queues["q"].pop().complete()
        after = [add.delay(number) for number in range(2)]
        deliver_all(client)
        server.kill()
        (tmp_path / "dump.rdb").write_bytes(backup)
        server.start()
        assert client.queues["q"].jobs.ready() == [result.id for result in before[1:]]  # one of them has run
        deliverer = Deliverer(client, "default")
        assert deliverer.redeliver(client.clock() - 3600) == 5
        assert deliverer.run() == {"delivered": 5, "repeated": 3}
        assert client.queues["q"].jobs.ready() == [result.id for result in [*before[1:], *after]]
        assert client.jobs.get(before[0].id).state == "complete"
