"""Jobs and their locks: heartbeats, lost locks, clocks that are wrong, a server that is down."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from resty_django.qless import Client
from resty_django.qless.worker.commands import RequeueJob
from resty_django.redis import StoreDown
from tests.integration.qless.conftest import change_settings, history, job_of
from tests.integration.qless.worker import jobs
from tests.integration.qless.worker.conftest import StartInProcess as Start
from tests.integration.qless.worker.conftest import holds, put, short_locks, state, until, wait_for
from tests.servers import Server

pytestmark = [pytest.mark.redis, pytest.mark.contract]


def calls_of_scripts(client: Client) -> int:
    return int(client.source.sync().info("commandstats")["cmdstat_evalsha"]["calls"])


@pytest.mark.parametrize("name", ["blind", "ahold"])
def test_locks_are_prolonged(start_worker: Start, client: Client, name: str) -> None:
    short_locks(client)
    start_worker()
    jid = holds(put(client, name))
    before = job_of(client, jid).expires_at
    rival = Client(client.source.sync(), worker_name="other")
    end = time.monotonic() + 2
    while time.monotonic() < end:
        assert rival.queues["q"].pop() is None
        time.sleep(0.02)
    assert job_of(client, jid).expires_at > before + 1
    jobs.GO.set()
    until(client, jid, "complete")
    assert history(client, jid) == ["put", "popped", "done"]


@pytest.mark.parametrize("what", ["cancel", "timeout", "move"])
@pytest.mark.parametrize(("name", "outcome"), [("hold", "lost"), ("ahold", "cancelled")])
def test_a_job_that_the_worker_has_lost_is_interrupted_at_once(
    start_worker: Start, client: Client, name: str, outcome: str, what: str
) -> None:
    worker = start_worker()
    jid = holds(put(client, name))
    worker.pause()
    getattr(job_of(client, jid), what)(*(["elsewhere"] if what == "move" else []))
    assert jobs.SEEN.get(timeout=20) == (outcome, jid)
    wait_for(lambda: worker.counts["lost"] == 1)
    end_state = {"cancel": None, "timeout": "stalled", "move": "waiting"}[what]
    taken_away = client.jobs.get(jid)
    assert (taken_away and taken_away.state) == end_state


def test_a_thread_is_interrupted_if_asked_for(start_worker: Start, client: Client) -> None:
    worker = start_worker(interrupt=True)
    jid = holds(put(client, "spin"))
    job_of(client, jid).cancel()
    assert jobs.SEEN.get(timeout=20) == ("LostLock", jid)
    put(client, "note", "next")
    assert jobs.SEEN.get(timeout=20) == "next"
    assert worker.counts["lost"] == 1


def test_a_bound_task_sees_that_it_was_revoked(start_worker: Start, client: Client) -> None:
    worker = start_worker(queues=("default",))
    result = jobs.looks_bound.delay()
    holds(result.id)
    result.revoke()
    assert jobs.SEEN.get(timeout=20) == ("lost", result.id)
    wait_for(lambda: worker.counts["lost"] == 1)


def test_the_result_of_a_lost_job_is_not_written(start_worker: Start, client: Client) -> None:
    worker = start_worker(queues=("q",), concurrency=1)
    jid = holds(put(client, "blind"))
    worker.pause()
    client.queues["q"].put("x", {"new": 1}, jid=jid)
    wait_for(lambda: next(iter(worker.running.values())).job.lost)
    jobs.GO.set()
    wait_for(lambda: not worker.running)
    job = job_of(client, jid)
    assert (job.state, job.data) == ("waiting", {"new": 1})


def test_a_notice_that_a_lock_expired_is_answered_by_a_heartbeat(start_worker: Start, client: Client) -> None:
    """The job is in its grace period, and its worker continues it."""
    client.config.set("grace-period", 30)
    worker = start_worker()
    jid = holds(put(client, "hold"))
    late = Client(client.source.sync(), worker_name="late", clock=lambda: time.time() + 70)
    assert late.queues["q"].pop() is None  # sends the notice
    wait_for(lambda: job_of(client, jid).expires_at > time.time() + 59)
    jobs.GO.set()
    until(client, jid, "complete")
    assert worker.counts["lost"] == 0


def test_a_changed_heartbeat_option_changes_the_lease(start_worker: Start, client: Client) -> None:
    worker = start_worker()
    assert worker.stop() == 0
    client.config.set("q-heartbeat", 2)
    worker = start_worker()
    holds(put(client, "blind"))
    wait_for(lambda: worker.lease("q") == 2)


def test_jobs_of_a_pop_whose_reply_was_lost_are_given_back(start_worker: Start, client: Client) -> None:
    worker = start_worker(name="mine")
    ghost = Client(client.source.sync(), worker_name="mine")
    jid = put(client, "note", "found", queue="other")
    assert ghost.queues["other"].pop() is not None
    worker.check_leases()
    wait_for(lambda: client.queues["other"].counts().waiting == 1)
    assert job_of(client, jid).retries_left == 5


@pytest.mark.parametrize("offset", [-30.0, 30.0])
def test_a_wrong_clock_steals_no_lock_with_server_time(start_worker: Start, client: Client, offset: float) -> None:
    client.config.set("server-time", 1)
    short_locks(client, seconds=10.0, grace=0)
    right = start_worker(concurrency=1)
    jid = holds(put(client, "blind"))
    wrong = start_worker(clock=lambda: time.time() + offset, interval=0.05)
    second = put(client, "note", "second")
    assert jobs.SEEN.get(timeout=20) == "second"
    until(client, second, "complete")
    calls = calls_of_scripts(client)
    wait_for(lambda: calls_of_scripts(client) > calls + 20)
    assert state(client, jid) == "running"
    assert job_of(client, jid).worker_name == right.name
    later = put(client, "note", "later", delay=0.3)
    assert jobs.SEEN.get(timeout=20) == "later"
    until(client, later, "complete")
    jobs.GO.set()
    until(client, jid, "complete")
    assert wrong.counts == {"completed": 2}


# --- when jobs are asked for ---


def test_a_put_wakes_an_idle_worker_before_its_interval(start_worker: Start, client: Client) -> None:
    worker = start_worker()
    wait_for(lambda: client.source.sync().pubsub_numsub(b"ql:wake:q")[0][1] == 1)
    before = calls_of_scripts(client)
    for number in range(20):
        put(client, "note", number)
        assert jobs.SEEN.get(timeout=20) == number
    calls = calls_of_scripts(client)
    assert calls - before < 200, worker.snapshot()


def test_a_late_notification_hides_no_other(start_worker: Start, client: Client) -> None:
    """It is heard while the slot is taken, and the queue is empty by then."""
    worker = start_worker(concurrency=1)
    wait_for(lambda: client.source.sync().pubsub_numsub(b"ql:wake:q")[0][1] == 1)
    for number in range(5):
        jobs.GO.clear()
        holds(put(client, "hold"))
        client.source.sync().publish("ql:wake:q", time.time())
        worker.ask_when_due("q")
        jobs.GO.set()
        wait_for(lambda: not worker.running)
        put(client, "note", number)
        assert jobs.SEEN.get(timeout=20) == number


def test_a_scheduled_job_starts_when_it_is_due(start_worker: Start, client: Client) -> None:
    start_worker()
    due = time.time() + 0.5
    put(client, "note", "due", delay=0.5)
    assert jobs.SEEN.get(timeout=20) == "due"
    assert time.time() >= due - 0.01


def test_puts_without_a_notification_are_found_by_polling(start_worker: Start, client: Client) -> None:
    """Another core writes the keys alone."""
    start_worker(interval=0.2)
    jid = put(client, "note", "quiet", queue="hidden")
    server = client.source.sync()
    server.hset(f"ql:j:{jid}", "queue", "q")
    server.rename("ql:q:hidden-work", "ql:q:q-work")
    assert jobs.SEEN.get(timeout=20) == "quiet"


def test_a_queue_at_its_concurrency_limit_is_polled_rarely(start_worker: Start, client: Client) -> None:
    client.queues["q"].max_concurrency = 1
    start_worker(concurrency=4, interval=30.0)
    first = holds(put(client, "hold"))
    second = put(client, "hold")
    calls = calls_of_scripts(client)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        assert jobs.SEEN.empty()
        time.sleep(0.02)
    assert calls_of_scripts(client) - calls < 40
    jobs.GO.set()
    until(client, first, "complete")
    until(client, second, "complete")


# --- the server is down ---


@pytest.mark.parametrize("name", ["note", "boom", "later"])
def test_an_end_that_was_sent_before_the_connection_broke_counts(
    start_worker: Start, client: Client, name: str
) -> None:
    worker = start_worker()
    call_many, broken = worker.client.call_many, []

    def breaking(requests: Any) -> Any:
        replies = call_many(requests)
        if not broken and any(command in ("complete", "fail", "retry") for command, *_ in requests):
            broken.append(requests)
            raise StoreDown("the connection broke")
        return replies

    worker.client.call_many = breaking  # type: ignore[method-assign]
    jid = put(client, name, retries=0)
    until(client, jid, "complete" if name == "note" else "failed")
    wait_for(lambda: sum(worker.counts.values()) == 1)
    assert broken
    assert worker.counts["lost"] == 0


def test_a_requeue_takes_no_job_from_another_worker(start_worker: Start, client: Client) -> None:
    """The worker does not know yet that the job is lost."""
    worker = start_worker()
    call_many = worker.client.call_many
    rival = Client(client.source.sync(), worker_name="other")

    def late(requests: Any) -> Any:
        if any(command == "requeue" for command, *_ in requests):
            raise AssertionError("the lock was not looked at")
        if any(isinstance(running.command, RequeueJob) for running in worker.unsent):
            job_of(client, jid).move("elsewhere")
            assert rival.queues["elsewhere"].pop() is not None
        return call_many(requests)

    worker.client.call_many = late  # type: ignore[method-assign]
    jid = put(client, "again", {"n": 0})
    wait_for(lambda: worker.counts["lost"] == 1)
    job = job_of(client, jid)
    assert (job.state, job.worker_name) == ("running", "other")


@pytest.fixture
def own_client(start_worker: Start, own_server: Server, settings: Any) -> Iterator[Client]:
    """A client of the test's own server, which the settings name."""
    change_settings(settings, URL=own_server.url)
    with closing(Client(own_server.url, worker_name="tests")) as client:
        yield client


def test_jobs_continue_while_the_server_is_down_and_are_completed_later(
    start_worker: Start, own_server: Server, own_client: Client
) -> None:
    worker = start_worker(url=own_server.url)
    jid, other = put(own_client, "blind"), put(own_client, "hold")
    assert {jobs.SEEN.get(timeout=20), jobs.SEEN.get(timeout=20)} == {("holds", jid), ("holds", other)}
    own_server.kill()
    jobs.GO.set()
    wait_for(lambda: worker.snapshot()["down"])
    own_server.start()
    until(own_client, jid, "complete")
    until(own_client, other, "complete")
    put(own_client, "note", "after")
    assert jobs.SEEN.get(timeout=30) == "after"
    wait_for(lambda: worker.counts["completed"] == 3)
    assert worker.stop() == 0


def test_a_server_that_only_answers_reads_is_called_ever_less_often_and_logged_once(
    start_worker: Start, own_server: Server, own_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a failover: it is a replica for a while."""
    worker = start_worker(url=own_server.url)
    jid = holds(put(own_client, "blind"))
    call_many, sent = worker.client.call_many, []

    def counted(requests: Any) -> Any:
        sent.append(time.monotonic())
        return call_many(requests)

    own_server.call("REPLICAOF", "127.0.0.1", 1)
    worker.client.call_many = counted  # type: ignore[method-assign]
    jobs.GO.set()
    wait_for(lambda: len(sent) >= 6)
    assert sent[5] - sent[0] > 1.2  # the first call may be a read, which succeeds
    own_server.call("REPLICAOF", "NO", "ONE")
    until(own_client, jid, "complete")
    wait_for(lambda: not worker.snapshot()["down"])
    lines = [record.getMessage() for record in caplog.records if record.name == "resty_django.qless.worker"]
    assert ["replica" in line for line in lines] == [True, False], lines


def test_a_stop_while_the_server_is_down_ends_after_the_grace_time(
    start_worker: Start, own_server: Server, own_client: Client
) -> None:
    worker = start_worker(url=own_server.url)
    jid = holds(put(own_client, "blind"))
    own_server.kill()
    jobs.GO.set()
    assert worker.stop(0.5) == 3
    own_server.start()
    assert state(own_client, jid) == "running"


def test_jobs_that_cannot_be_read_fail_and_block_no_others(start_worker: Start, client: Client) -> None:
    jid = put(client, "note", "bad")
    put(client, "note", "good")
    client.source.sync().hset(f"ql:j:{jid}", "tags", json.dumps("no list"))
    start_worker()
    assert jobs.SEEN.get(timeout=30) == "good"
    wait_for(lambda: client.jobs.failed() == {"q-UnreadableReply": 1})
