"""How jobs end, by what they do."""

from __future__ import annotations

import time
from typing import Any

import pytest

from resty_django.limits.policies import registry
from resty_django.qless import Client
from resty_django.qless.outcomes.error_text import MAX_MESSAGE_CHARS
from resty_django.qless.worker import job_failed
from resty_django.shdict import shdicts
from resty_django.txid import bound
from resty_django.txid.logging import TxidFilter
from tests.integration.qless.conftest import change_settings
from tests.integration.qless.worker import jobs
from tests.integration.qless.worker.conftest import JOBS, holds, put, traced_code_runs, until, wait_for
from tests.integration.qless.worker.conftest import StartInProcess as Start

pytestmark = [pytest.mark.redis, pytest.mark.contract]


BOTH = pytest.mark.parametrize("prefix", ["", "a"])
REQUEST_ID = "f058ebd6-02f7-4d3f-942e-904344e8cde5"


@BOTH
def test_a_job_runs_and_is_complete(start_worker: Start, client: Client, prefix: str) -> None:
    start_worker()
    jid = put(client, f"{prefix}note", {"order": 7})
    assert jobs.SEEN.get(timeout=20) == {"order": 7}
    job = until(client, jid, "complete")
    assert job.data == {"order": 7}
    assert job.result().result is None


@BOTH
def test_a_job_that_raises_fails_in_the_group_of_its_exception(
    start_worker: Start, client: Client, prefix: str
) -> None:
    signals: list[Any] = []

    def receiver(sender: Any, **facts: Any) -> None:
        signals.append((sender.__name__, facts["job"].jid, str(facts["error"]), facts["group"]))

    job_failed.connect(receiver)
    try:
        start_worker()
        jid = put(client, f"{prefix}boom", "x" * 20_000)
        failure = until(client, jid, "failed").failure
    finally:
        job_failed.disconnect(receiver)
    assert failure["group"] == "q-ValueError"
    assert failure["message"].startswith("ValueError: boom xxx")
    assert "Traceback" not in failure["message"][:100]
    assert f"in {prefix}boom" in failure["message"] or len(failure["message"]) == MAX_MESSAGE_CHARS
    assert len(failure["message"]) <= MAX_MESSAGE_CHARS
    assert [(name, which, group) for name, which, _, group in signals] == [(f"{prefix}boom", jid, "q-ValueError")]


def test_a_job_that_cannot_be_run_fails_in_the_group_of_the_reason(start_worker: Start, client: Client) -> None:
    start_worker()
    for name, group in (
        ("exits", "q-SystemExit"),
        ("not_json", "q-InvalidArgument"),
        ("Nothing", "q-method-missing"),
        ("missing", "q-ImportError"),
        ("Misfit", "q-MiddlewareError"),
    ):
        assert until(client, put(client, name), "failed").failure["group"] == group


def test_no_class_outside_of_the_allowed_modules_is_run(start_worker: Start, client: Client) -> None:
    start_worker()
    for klass in ("os.system", "resty_django.qless.tasks.message.use_dispatcher", "resty_django.limits.jobs.JobLimit"):
        failure = until(client, client.queues["q"].put(klass, "true"), "failed").failure
        assert failure["group"] == "q-NotAllowed"
        assert "MODULES" in failure["message"]


def test_a_class_has_functions_for_queues(start_worker: Start, client: Client) -> None:
    start_worker(queues=("special", "q"))
    put(client, "Named", queue="special")
    assert jobs.SEEN.get(timeout=20) == "special"
    put(client, "Named")
    assert jobs.SEEN.get(timeout=20) == "perform"


def test_a_result_is_kept_if_asked_for(start_worker: Start, client: Client) -> None:
    start_worker()
    job = until(client, put(client, "Answer", 21), "complete")
    assert job.result().result == {"answer": 42}


def test_changed_data_are_kept(start_worker: Start, client: Client) -> None:
    start_worker()
    job = until(client, put(client, "change", {"old": 1}), "complete")
    assert job.data == {"old": 1, "changed": True}


def test_a_job_may_end_itself(start_worker: Start, client: Client) -> None:
    worker = start_worker()
    jid = put(client, "by_itself")
    wait_for(lambda: client.queues["next"].length() == 1)
    assert until(client, jid, "waiting").queue_name == "next"
    assert worker.stop() == 0
    assert worker.counts == {"by itself": 1}


@pytest.mark.parametrize("prefix", ["", "a", "async_"])
def test_hooks_are_called(start_worker: Start, client: Client, prefix: str) -> None:
    worker = start_worker()
    jid = put(client, f"{prefix}hooked")
    until(client, jid, "complete")
    assert jobs.SEEN.get(timeout=20) == "before"
    if prefix != "a":
        assert jobs.SEEN.get(timeout=20) == "after"
    wait_for(lambda: worker.counts.total() == 1)
    assert worker.counts == {"completed": 1}


@pytest.mark.parametrize(
    ("name", "data", "retries", "seen", "end"),
    [
        ("later", None, 2, [2, 1, 0], {"group": "mine", "message": "not yet"}),
        ("again", {"n": 0}, 3, [(0, 3), (1, 3), (2, 3)], {"data": {"n": 3}}),
        ("Retried", {}, 2, [(1, {}), (2, {}), (3, {})], {"group": "q-OSError"}),
        (
            *("Requeued", {}, 1),
            [(1, {}), *((1, {"requeues_by_exception": {"OSError": count}}) for count in (1, 2))],
            {"retries_left": 1},
        ),
    ],
)
def test_retries_take_retries_and_requeues_take_none(
    start_worker: Start, client: Client, name: str, data: Any, retries: int, seen: list[Any], end: dict[str, Any]
) -> None:
    start_worker()
    job = until(client, put(client, name, data, retries=retries), "complete" if name == "again" else "failed")
    assert [jobs.SEEN.get(timeout=20) for _ in range(3)] == seen
    facts = {"data": job.data, "retries_left": job.retries_left, **job.failure}
    assert facts == facts | end


@pytest.mark.parametrize(("name", "outcome"), [("Slow", "JobTimeout"), ("AsyncSlow", "cancelled")])
def test_a_timeout_interrupts_the_job(start_worker: Start, client: Client, name: str, outcome: str) -> None:
    start_worker()
    jid = holds(put(client, name))
    failure = until(client, jid, "failed").failure
    assert jobs.SEEN.get(timeout=20) == (outcome, jid)
    assert failure["group"] == "q-JobTimeout"
    assert "0.2 s" in failure["message"]


def test_code_under_a_debugger_runs_on_after_an_interrupt(start_worker: Start, client: Client) -> None:
    start_worker()
    until(client, put(client, "Slow"), "failed")
    assert traced_code_runs()


def test_a_job_that_ignores_its_timeout_ends_the_process(start_worker: Start, client: Client) -> None:
    worker = start_worker()
    jid = put(client, "Deaf")
    failure = until(client, jid, "failed").failure
    assert failure["group"] == "q-JobTimeout"
    assert worker.join() == 73


def test_middleware_of_the_settings_is_around_middleware_of_the_class(
    start_worker: Start, client: Client, settings: Any
) -> None:
    worker = start_worker()
    change_settings(settings, WORKER={"MIDDLEWARE": [f"{JOBS}.outer"]})
    until(client, put(client, "Trailed"), "complete")
    assert jobs.TRAIL == ["outer before", "one before", "two before", "two after", "one after", "outer after"]
    jobs.TRAIL.clear()
    until(client, put(client, "AsyncTrailed"), "complete")
    assert jobs.TRAIL == ["outer before", "one before", "async before", "async after", "one after", "outer after"]
    worker.stop()


def test_exceptions_are_reported(start_worker: Start, client: Client) -> None:
    start_worker()
    put(client, "Reported", tags=["new"])
    error, facts = jobs.SEEN.get(timeout=20)
    assert isinstance(error, ValueError)
    assert (facts["klass"], facts["queue"], facts["tags"]) == (f"{JOBS}.Reported", "q", ["new"])
    wait_for(lambda: client.jobs.failed() == {"q-ValueError": 1})


def test_connections_are_renewed(start_worker: Start, client: Client) -> None:
    start_worker(concurrency=1)
    until(client, put(client, "Reconnected"), "complete")
    until(client, put(client, "Reconnected"), "complete")
    assert [jobs.SEEN.get(timeout=20) for _ in range(4)] == ["alive?", "renewed", "alive?", "renewed"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["ByPolicy", "AsyncByPolicy", "KeyedByCoroutine", "AsyncKeyedByCoroutine"])
def test_a_job_over_a_policy_limit_is_put_again_with_its_retries(
    start_worker: Start, client: Client, name: str
) -> None:
    shdicts["limits"].flush_all()
    registry.declare_policy("jobs-by-policy", "fixed_window", limit=1, window="1h")
    try:
        start_worker(concurrency=1)
        first, second = put(client, name), put(client, name, retries=3)
        until(client, first, "complete")
        assert until(client, second, "scheduled").retries_left == 3
    finally:
        registry.withdraw_policy("jobs-by-policy")
        registry.forget_policies()


@pytest.mark.django_db(transaction=True)
def test_a_job_under_an_unknown_policy_fails(start_worker: Start, client: Client) -> None:
    start_worker()
    failure = until(client, put(client, "ByPolicy"), "failed").failure
    assert failure["group"] == "q-LookupError"
    assert "'jobs-by-policy'" in failure["message"]
    registry.forget_policies()


@pytest.mark.parametrize("reserver", ["ordered", "round_robin"])
def test_queues_are_emptied_in_the_order_of_the_reserver(start_worker: Start, client: Client, reserver: str) -> None:
    worker = start_worker(queues=("a", "b", "c"), reserver=reserver, concurrency=1)
    worker.pause()
    for queue in ("c", "a", "b"):
        for number in range(2):
            put(client, "note", f"{queue}{number}", queue=queue)
    worker.resume()
    notes = [jobs.SEEN.get(timeout=20) for _ in range(6)]
    if reserver == "ordered":
        assert notes == ["a0", "a1", "b0", "b1", "c0", "c1"]
    else:
        assert sorted(notes[:3]) == ["a0", "b0", "c0"]
        assert sorted(notes[3:]) == ["a1", "b1", "c1"]


def test_the_txid_of_the_put_is_bound_in_the_job(start_worker: Start, client: Client) -> None:
    start_worker()
    with bound() as txid:
        put(client, "txid")
    assert jobs.SEEN.get(timeout=20) == (txid, txid, None, None)
    put(client, "txid")
    carried, current, *_ = jobs.SEEN.get(timeout=20)
    assert carried is None or carried == current
    assert current not in (None, txid)


def test_the_request_id_of_the_caller_is_bound_in_the_job(
    start_worker: Start, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.handler.addFilter(TxidFilter())
    start_worker()
    with bound(request_id=REQUEST_ID) as txid:
        put(client, "txid")
        jid = put(client, "boom", "loudly", retries=0)
    assert jobs.SEEN.get(timeout=20) == (txid, txid, REQUEST_ID, REQUEST_ID)
    until(client, jid, "failed")
    (line,) = (record for record in caplog.records if jid in record.getMessage())
    assert (line.txid, line.request_id) == (txid, REQUEST_ID)  # type: ignore[attr-defined]


def test_a_request_id_that_another_client_has_forged_is_ignored(start_worker: Start, client: Client) -> None:
    start_worker()
    name, forged = f"{jobs.__name__}.txid", "1\n2026-11-21 INFO - forged"
    client.call("put", "w", "q", "forged", name, "{}", 0, "txid", "no txid", "request_id", forged)
    carried, current, request_id, current_request_id = jobs.SEEN.get(timeout=20)
    assert (carried, request_id, current_request_id) == ("no txid", forged, None)
    assert current not in (None, carried)


@pytest.mark.parametrize(
    ("name", "messages"),
    [
        ("boom", ["failed: ValueError: boom loudly"]),
        ("aboom", ["failed: ValueError: boom loudly"]),
        ("Retried", ["failed and runs again in 0.0 s: OSError: no route", "failed: OSError: no route"]),
    ],
)
def test_retries_and_failures_are_logged_with_the_txid_of_the_put(
    start_worker: Start, client: Client, caplog: pytest.LogCaptureFixture, name: str, messages: list[str]
) -> None:
    caplog.handler.addFilter(TxidFilter())
    start_worker()
    with bound() as txid:
        jid = put(client, name, "loudly", retries=1)
    until(client, jid, "failed")
    lines = [(record.txid, record.getMessage()) for record in caplog.records if jid in record.getMessage()]
    assert lines == [(txid, f"job {jid} ({jobs.__name__}.{name}) {message}") for message in messages]


@pytest.mark.django_db(transaction=True)
@BOTH
def test_database_connections_are_closed_as_around_a_request(
    start_worker: Start, client: Client, settings: Any, prefix: str
) -> None:
    """CONN_MAX_AGE is 0 seconds, so each job has a new connection."""
    start_worker(concurrency=1)
    for jid in [put(client, f"{prefix}query") for _ in range(2)]:
        until(client, jid, "complete")
    assert jobs.SEEN.get(timeout=20) is not jobs.SEEN.get(timeout=20)


@pytest.mark.db
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("name", "how"),
    [("lose", ""), ("alose", "sync_to_async"), ("alose", "thread_sensitive=False"), ("alose", "to_thread")],
)
def test_a_job_whose_thread_has_lost_its_database_connection(
    start_worker: Start, client: Client, name: str, how: str
) -> None:
    start_worker(concurrency=1)
    for _ in range(2):
        until(client, put(client, name, how), "complete")


@pytest.mark.db
@pytest.mark.django_db(transaction=True)
def test_a_receiver_of_failures_whose_thread_has_lost_its_database_connection(
    start_worker: Start, client: Client
) -> None:
    """The worker's own thread sends the signal if the job cannot begin."""

    def receiver(job: Any, **kwargs: Any) -> None:
        jobs.lose(job)

    job_failed.connect(receiver)
    start_worker()
    for _ in range(2):
        until(client, put(client, "missing"), "failed")
    job_failed.disconnect(receiver)
    assert jobs.SEEN.qsize() == 2


def test_idle_workers_run_a_paced_retry_at_its_pace(start_worker: Start, client: Client) -> None:
    for number in range(12):
        put(client, "note", number)
        client.queues["q"].pop(1)[0].fail("q-Timeout", "slow")
    start_worker(interval=60)
    start_worker(interval=60)
    client.call("pace", "q-Timeout", 8)
    started = time.monotonic()
    assert sorted(jobs.SEEN.get(timeout=20) for _ in range(12)) == [*range(12)]
    assert 1.2 < time.monotonic() - started < 8  # 11 steps of 0.125 s
