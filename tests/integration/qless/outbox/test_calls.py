"""Calls of tasks through the outbox: in transactions and outside, before and after the delivery, during outages."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import DatabaseError, connection, transaction

from resty_django.qless import Client, chain, chord, group
from resty_django.qless.errors import DependencyError, InvalidArgument, NoSuchJob
from resty_django.qless.models import OutboxEntry
from resty_django.qless.outbox import lookup
from resty_django.qless.outbox.delivery import Deliverer
from resty_django.qless.outbox.lookup import entries_of
from resty_django.qless.outbox.outbox import MARKS_PER_UPDATE, deliver_all
from resty_django.qless.outbox.runner import OutboxRunner
from resty_django.qless.outcomes import JobTimeout
from resty_django.qless.tasks.results import AsyncResult
from resty_django.qless.testing import FakeClock, TestWorker, record
from resty_django.redis.errors import StoreDown
from tests.integration.qless.conftest import change_settings
from tests.integration.qless.tasks import examples
from tests.integration.qless.tasks.examples import add, once, optioned
from tests.servers import Server, eventually, running

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.db, pytest.mark.redis]

State = OutboxEntry.State


def states() -> list[str]:
    """The states of all entries, oldest first."""
    return [*OutboxEntry.objects.order_by("pk").values_list("state", flat=True)]


def waiting(client: Client) -> list[str]:
    """The jobs of the queue `q` that may run, in the order of their puts."""
    return client.queues["q"].jobs.ready(0, 100)


# --- transactions ---


@pytest.mark.parametrize(
    "call",
    [
        lambda: add.delay(1),
        lambda: add.apply_async((1,), using="default"),
        lambda: add.delay_on_commit(1),
        lambda: add.apply_async_on_commit((1,)),
        lambda: chain(add.s(1), add.s()).delay(),
        lambda: chord([add.s(1), add.s(2)], examples.report.si(None)).apply_async(using="default"),
        lambda: group(add.s(1), add.s(2)).delay_on_commit(),
        lambda: group([]).delay(),
    ],
)
def test_a_call_is_one_row_until_the_commit(outbox: Client, call: Callable[[], Any]) -> None:
    with transaction.atomic():
        result = call()
        assert states() == ["waiting"]
        assert result.state == "PENDING"
        assert outbox.queues.counts() == []
        assert outbox.groups.list().total == 0
    first = OutboxEntry.objects.get()
    found = outbox.groups.get(result.id) if first.jobs == 0 else outbox.jobs.get(first.jid)
    assert found is not None


def test_a_rollback_leaves_nothing(outbox: Client) -> None:
    with transaction.atomic():
        with transaction.atomic():
            undone = add.delay(1)
            transaction.set_rollback(True)
        kept = add.delay(2)
    assert waiting(outbox) == [kept.id]
    assert undone.state == "GONE"
    assert states() == ["waiting"]


def test_calls_outside_of_transactions_are_delivered_at_once(outbox: Client) -> None:
    assert add.delay(1).id in waiting(outbox)


async def test_calls_of_asyncio(outbox: Client) -> None:
    result = await add.adelay(1)
    chained = await chain(add.s(1), add.s()).aapply_async(using="default")
    assert await result.astate() == await chained.astate() == "PENDING"
    assert (await outbox.jobs.aget(result.id)) is not None
    assert await sync_to_async(OutboxEntry.objects.count)() == 2
    unknown: AsyncResult[Any] = AsyncResult("unknown", client=outbox)
    assert await unknown.astate() == "GONE"


def test_other_queues_do_not_use_it(outbox: Client, settings: Any) -> None:
    change_settings(settings, OUTBOX=["orders"])
    add.delay(1)
    assert states() == []
    add.apply_async((1,), queue="orders")
    chain(add.s(1), add.s(2).set(queue="orders")).delay()
    assert states() == ["waiting", "waiting"]
    change_settings(settings, OUTBOX=False)
    add.apply_async((1,), queue="orders")
    assert len(states()) == 2


def test_manual_transactions_leave_the_delivery_to_workers(outbox: Client) -> None:
    transaction.set_autocommit(False)
    try:
        result = add.delay(1)
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert waiting(outbox) == []
    assert deliver_all(outbox)["delivered"] == 1
    assert waiting(outbox) == [result.id]


def test_no_transaction_is_open_during_a_call_of_the_server(outbox: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    open_ones: list[bool] = []
    call_many = outbox.call_many

    def watched(requests: Any) -> Any:
        open_ones.append(connection.in_atomic_block)
        return call_many(requests)

    monkeypatch.setattr(outbox, "call_many", watched)
    with transaction.atomic():
        add.delay(1)
        add.delay(2)
    deliver_all(outbox)
    assert open_ones == [False, False, False]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: add.apply_async((1,), using="replica"), "DATABASE"),
        (lambda: add.apply_async((1,), task_id="x" * 256), "at most 255 characters"),
    ],
)
def test_calls_that_cannot_be_written_are_refused(outbox: Client, call: Callable[[], Any], error: str) -> None:
    with pytest.raises(InvalidArgument, match=error):
        call()
    assert states() == []


def test_using_needs_the_outbox_or_a_queue_that_waits_for_the_commit(outbox: Client, settings: Any) -> None:
    change_settings(settings, OUTBOX=None)
    with pytest.raises(InvalidArgument, match="using="):
        add.apply_async((1,), using="default")
    change_settings(settings, ON_COMMIT=["q"])
    with transaction.atomic():
        result = add.apply_async((1,), using="default")
        assert waiting(outbox) == []
    assert waiting(outbox) == [result.id]


# --- what is sent ---


def test_jobs_are_the_same_as_without_an_outbox(outbox: Client, settings: Any) -> None:
    options: dict[str, Any] = {"task_id": "j", "tags": ["ü\udcff"], "priority": 7, "retries": 3, "expires": 60}
    options["link_error"] = examples.report.s("x")
    views = []
    for setting in (False, True):
        change_settings(settings, OUTBOX=setting)
        optioned.apply_async(**options)
        job = outbox.jobs.get("j")
        outcome = job.outcome()
        views.append(
            (job.klass, job.priority, job.tags, job.original_retries, job.data["args"], outcome.failure[0].klass)
        )
        outbox.jobs["j"].cancel()
    assert views[0] == views[1]


def test_countdown_and_expires_count_from_the_call(outbox: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(outbox, "clock", clock)
    with transaction.atomic():
        soon, later = add.apply_async((1,), countdown=100, expires=300), add.apply_async((2,), countdown=10)
        clock.advance(60)
    assert waiting(outbox) == [later.id]
    assert float(outbox.call("due", "q")) <= clock() + 0.001
    job = outbox.jobs.get(soon.id)
    assert job.data["expires"] == pytest.approx(clock() - 60 + 300)
    clock.advance(39)
    assert outbox.queues["q"].counts().scheduled == 1
    clock.advance(2)
    assert {popped.jid for popped in outbox.queues["q"].pop(9)} == {soon.id, later.id}


def test_before_the_commit_a_unique_task_has_one_id_and_then_one_job(outbox: Client) -> None:
    with transaction.atomic():
        first, second = once.delay(1), once.delay(1)
        assert first.id == second.id
        assert states() == ["waiting", "waiting"]
    assert waiting(outbox) == [first.id]
    job = outbox.queues["q"].pop()
    job.complete()
    deliver_all(outbox)  # as a worker does that finds both rows
    assert states() == ["delivered", "delivered"]
    assert outbox.jobs.get(first.id).state == "complete"


def test_a_graph_of_many_jobs_is_one_row(outbox: Client) -> None:
    result = chord([add.s(number) for number in range(1200)], examples.report.si("end")).delay()
    entry = OutboxEntry.objects.get()
    assert entry.jobs == 1201
    assert outbox.groups.get(result.parent.id).total == 1200
    assert deliver_all(outbox) == {"delivered": 1, "repeated": 1}


# --- before the delivery ---


def test_a_job_that_is_only_in_the_table_can_be_revoked(outbox: Client) -> None:
    with transaction.atomic():
        result = add.delay(1)
        with pytest.raises(TimeoutError):
            result.get(timeout=0.02)
        result.revoke()
        assert result.state == "GONE"
        with pytest.raises(NoSuchJob):
            result.get()
    assert outbox.jobs.get(result.id) is None
    assert states() == ["discarded"]


def test_a_job_that_was_just_delivered_can_be_revoked(outbox: Client) -> None:
    result = add.delay(1)
    assert states() == ["waiting"]  # not marked yet
    result.revoke()
    assert outbox.jobs.get(result.id) is None
    assert deliver_all(outbox) == {}
    assert outbox.jobs.get(result.id) is None


def test_a_group_of_one_member_is_found_and_revoked(outbox: Client) -> None:
    with transaction.atomic():
        members = group(add.s(1)).delay()
        assert members.state == "PENDING"
        empty = group([]).delay()
        assert empty.state == "PENDING"
        members.revoke()
        empty.revoke()
        assert members.state == empty.state == "GONE"
    assert outbox.queues.counts() == []
    assert outbox.groups.list().total == 0
    assert states() == ["discarded", "discarded"]


def test_a_revocation_that_is_rolled_back_has_no_effect(outbox: Client) -> None:
    with transaction.atomic():
        result = add.delay(1)
        with transaction.atomic():
            result.revoke()
            transaction.set_rollback(True)
        assert result.state == "PENDING"
    assert states() == ["waiting"]
    deliver_all(outbox)
    assert waiting(outbox) == [result.id]
    kept = add.delay(2)
    with transaction.atomic():
        kept.revoke()
        transaction.set_rollback(True)
    assert waiting(outbox) == [result.id, kept.id]


def test_a_revocation_that_the_server_refuses_leaves_the_row(outbox: Client) -> None:
    first = add.delay(1)
    outbox.queues["q"].put("shop.jobs.Send", {}, depends=[first.id])
    with pytest.raises(DependencyError):
        first.revoke()
    assert states() == ["waiting"]


def test_a_group_that_is_delivered_between_two_looks_is_found(outbox: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    transaction.set_autocommit(False)
    try:
        members = group(add.s(1), add.s(2)).delay()
        transaction.commit()
    finally:
        transaction.set_autocommit(True)

    def delivered_meanwhile(name: str) -> list[OutboxEntry]:
        deliver_all(outbox)
        return entries_of(name)

    monkeypatch.setattr(lookup, "entries_of", delivered_meanwhile)
    assert members.state == "PENDING"
    assert outbox.groups.get(members.id).total == 2


def test_an_interruption_of_the_caller_goes_on(outbox: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(requests: Any) -> Any:
        raise JobTimeout(1)

    with monkeypatch.context() as patch:
        patch.setattr(outbox, "call_many", interrupted)
        with pytest.raises(JobTimeout):
            add.delay(1)
    assert deliver_all(outbox) == {"delivered": 1}


def test_parts_of_a_graph_are_revoked_together(outbox: Client) -> None:
    with transaction.atomic():
        result = chain(add.s(1), add.s(2)).delay()
        with pytest.raises(DependencyError, match="graph=True"):
            result.revoke()
        result.revoke(graph=True)
        members = group(add.s(1), add.s(2)).delay()
        assert members.state == "PENDING"
        members.revoke()
    assert states() == ["discarded", "discarded"]
    assert outbox.queues.counts() == []


def test_a_job_for_which_another_entry_waits_is_not_revoked(outbox: Client) -> None:
    with transaction.atomic():
        first = add.delay(1)
        second = add.apply_async((2,), depends=first)
        with pytest.raises(DependencyError, match=second.id):
            first.revoke()
        second.revoke()
        first.revoke()
    assert states() == ["discarded", "discarded"]


def test_an_unknown_job_is_still_unknown(outbox: Client) -> None:
    unknown: AsyncResult[Any] = AsyncResult("unknown", client=outbox)
    assert unknown.state == "GONE"
    with pytest.raises(NoSuchJob):
        unknown.revoke(graph=True)


@pytest.mark.parametrize("task_id", ["\udcff", "a\ud800", "a\nb", "~", "\0", "ü" * 60])
def test_any_id_is_found_before_and_after_the_delivery(outbox: Client, task_id: str) -> None:
    with transaction.atomic():
        result = add.apply_async((1,), task_id=task_id)
        assert result.state == "PENDING"
        assert len(entries_of(task_id)) == 1
    assert outbox.queues["q"].counts().waiting == 1
    assert result.state == "PENDING"
    result.revoke()
    assert outbox.queues["q"].counts().waiting == 0


# --- marks ---


def test_a_process_marks_many_rows_together(outbox: Client) -> None:
    for number in range(MARKS_PER_UPDATE - 1):
        add.delay(number)
    assert set(states()) == {"waiting"}
    add.delay(1)
    assert set(states()) == {"delivered"}
    entry = OutboxEntry.objects.first()
    assert entry is not None
    assert entry.delivered_at is not None
    assert entry.due_at > entry.delivered_at


def test_a_worker_marks_the_rest_without_a_second_job(outbox: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(outbox, "clock", clock)
    result = add.delay(1)
    deliverer = Deliverer(outbox, "default")
    assert deliverer.run() == {}  # the row belongs to this process yet
    clock.advance(11)
    assert deliverer.run() == {"delivered": 1, "repeated": 1}
    assert states() == ["delivered"]
    assert outbox.jobs.get(result.id).raw_queue_history[0]["what"] == "put"
    assert len(outbox.jobs.get(result.id).raw_queue_history) == 1


# --- order ---


def test_an_entry_waits_for_the_entries_of_its_dependencies(outbox: Client) -> None:
    transaction.set_autocommit(False)  # nothing is delivered
    try:
        first = add.delay(1)
        second = add.apply_async((2,), depends=first)
        third = chain(add.signature((3,), depends=[second.id]), add.s()).delay()
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    rows = [*OutboxEntry.objects.order_by("pk")]
    deliverer = Deliverer(outbox, "default")
    assert deliverer.send(rows[1:]) == []
    outcomes = deliverer.send(rows)
    assert [delivery.error for delivery in outcomes] == [None, None, None]
    assert outbox.jobs.get(second.id).state == outbox.jobs.get(third.id).state == "depends"


def test_a_call_delivers_what_it_depends_on(outbox: Client) -> None:
    transaction.set_autocommit(False)
    try:
        first = add.delay(1)
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    second = add.apply_async((2,), depends=first)
    assert outbox.jobs.get(first.id).state == "waiting"
    assert outbox.jobs.get(second.id).state == "depends"


def test_what_depends_on_a_refused_entry_waits_for_a_decision(outbox: Client) -> None:
    outbox.config.set("max-payload", 100)
    with transaction.atomic():
        first = add.apply_async(("x" * 200,))
        second = add.apply_async((2,), depends=first)
        third = add.delay(3)
    deliver_all(outbox)
    assert states() == ["refused", "waiting", "delivered"]
    assert "max-payload" in OutboxEntry.objects.order_by("pk")[0].error
    assert second.state == first.state == "PENDING"
    assert waiting(outbox) == [third.id]


# --- outages ---


@pytest.fixture
def server(tmp_path: Path, outbox: Client, settings: Any) -> Iterator[Server]:
    """A server of the queue that may be killed and started again; it keeps what it has confirmed."""
    server = Server(tmp_path, "--appendonly", "yes", "--appendfsync", "always")
    with running([server]):
        change_settings(settings, URL=server.url)
        yield server


def client_now() -> Client:
    from resty_django.qless.clients.default import default_client

    return default_client()


def test_calls_succeed_during_an_outage_and_workers_deliver_them(server: Server) -> None:
    first = add.delay(1)
    server.kill()
    during = [add.delay(number) for number in (2, 3)]
    assert states() == ["waiting"] * 3
    with pytest.raises(StoreDown):
        Deliverer(client_now(), "default").run()
    server.start()
    runner = OutboxRunner(client_now())
    runner.start()
    try:
        assert eventually(lambda: len(waiting(client_now())) == 3)
    finally:
        runner.stop()
    assert waiting(client_now()) == [first.id, *(result.id for result in during)]


def test_a_silent_server_holds_up_one_call(server: Server) -> None:
    def timed(number: int) -> float:
        start = time.perf_counter()
        add.delay(number)
        return time.perf_counter() - start

    add.delay(1)
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    try:
        first, *later = map(timed, (2, 3, 4, 5))
    finally:
        server.process.send_signal(signal.SIGCONT)
    assert min(later) < 0.05 < first


def test_later_calls_of_a_transaction_do_not_overtake_earlier_ones(server: Server) -> None:
    add.delay(1)
    with transaction.atomic():
        server.kill()
        results = [add.delay(number) for number in range(3)]
        transaction.on_commit(server.start)  # after the first delivery, which fails
        results += [add.delay(number) for number in range(3)]
    client = client_now()
    jids = waiting(client)[1:]
    assert jids == [result.id for result in results][: len(jids)]
    deliver_all(client)
    assert waiting(client)[1:] == [result.id for result in results]


def test_a_database_that_is_down_refuses_the_call(outbox: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> Any:
        raise DatabaseError("down")

    with connection.execute_wrapper(refuse), pytest.raises(DatabaseError):
        add.delay(1)
    assert outbox.queues.counts() == []


# --- retention ---


def test_rows_that_wait_for_too_long_are_left_to_a_decision(outbox: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(outbox, "clock", clock)
    with transaction.atomic():
        result = add.delay(1)
        transaction.set_rollback(False)
        clock.advance(8 * 86_400)
        deliverer = Deliverer(outbox, "default")
        deliverer.tidy()
        assert deliverer.run() == {}
        assert states() == ["refused"]
        assert "KEEP" in OutboxEntry.objects.get().error
        assert result.state == "PENDING"
        assert outbox.jobs.get(result.id) is None


def test_a_worker_does_not_send_what_is_older_than_keep(outbox: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(outbox, "clock", clock)
    result = add.delay(1)  # delivered, not marked
    outbox.queues["q"].pop().complete()
    clock.advance(9 * 86_400)
    outbox.source.sync().delete(f"ql:once:{OutboxEntry.objects.get().key}")  # has expired
    OutboxRunner(outbox).run_pass()
    assert states() == ["refused"]
    assert outbox.jobs.get(result.id).state == "complete"


def test_a_process_that_marks_late_does_not_undo_a_redelivery(outbox: Client) -> None:
    first = add.delay(1)
    deliver_all(outbox)
    outbox.source.sync().flushdb()
    deliverer = Deliverer(outbox, "default")
    deliverer.redeliver(outbox.clock() - 60)
    for number in range(MARKS_PER_UPDATE):  # marks the first one, too
        add.delay(number)
    deliver_all(outbox)
    assert first.id in outbox.queues["q"].jobs.ready(0, 100)


def test_delivered_rows_are_deleted_after_keep(outbox: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(outbox, "clock", clock)
    add.delay(1)
    deliver_all(outbox)
    deliverer = Deliverer(outbox, "default")
    clock.advance(7 * 86_400 - 10)
    assert deliverer.tidy() == 0
    assert 86_000 < outbox.source.sync().ttl(f"ql:once:{OutboxEntry.objects.get().key}") <= 8 * 86_400
    clock.advance(20)
    assert deliverer.tidy() == 1
    assert states() == []


def test_a_clock_that_is_set_back_delays_nothing(outbox: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(outbox, "clock", clock)
    result = add.delay(1)
    clock.advance(-3600)
    assert Deliverer(outbox, "default").run() == {"delivered": 1, "repeated": 1}
    assert waiting(outbox) == [result.id]


def test_redelivery_repeats_only_what_the_server_has_lost(outbox: Client) -> None:
    lost = [add.delay(number) for number in range(3)]
    deliver_all(outbox)
    outbox.source.sync().flushdb()
    kept = [add.delay(number) for number in range(2)]
    deliver_all(outbox)
    deliverer = Deliverer(outbox, "default")
    assert deliverer.redeliver(outbox.clock() - 60) == 5
    assert deliverer.run() == {"delivered": 5, "repeated": 2}
    assert sorted(waiting(outbox)) == sorted(result.id for result in [*lost, *kept])
    assert deliverer.redeliver(outbox.clock() + 60) == 0


# --- tests of sites ---


@pytest.mark.django_db
def test_the_worker_for_tests_delivers(settings: Any, valkey_url: str) -> None:
    change_settings(settings, MODULES=[examples.__name__], OUTBOX=True)
    with TestWorker(valkey_url) as worker:
        with transaction.atomic():
            result = chain(add.s(1), add.s(2)).delay()
            assert len(worker.drain()) == 2
        assert result.get() == 4


def test_the_recorder_refuses_what_the_site_would_refuse(outbox: Client, settings: Any) -> None:
    change_settings(settings, OUTBOX=False)
    with record(), pytest.raises(InvalidArgument, match="using="):
        add.apply_async((1,), using="default")


def test_the_recorder_records_after_the_commit(outbox: Client) -> None:
    with record() as tasks:
        with transaction.atomic():
            add.delay(1)
            assert len(tasks) == 0
        assert len(tasks) == 1
        with transaction.atomic():
            add.apply_async((1,), using="default")
            transaction.set_rollback(True)
        assert len(tasks) == 1
    assert states() == []
