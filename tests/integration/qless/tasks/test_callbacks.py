"""Callbacks, and what tasks do that wait for a failed one, with a real server and a worker in a thread."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import transaction

from resty_django.qless import AsyncResult, TaskFailed, TaskOutcome, chain, client, group, task
from resty_django.qless.tasks.message import dispatcher
from resty_django.txid import bound, txid
from tests.integration.qless.conftest import LONG, change_settings, history
from tests.integration.qless.tasks import examples
from tests.integration.qless.tasks.examples import (
    add,
    alarm,
    fails,
    note,
    once,
    optioned,
    report,
    silent,
    total,
    watched,
)
from tests.integration.qless.worker.conftest import InProcessWorker, wait_for

pytestmark = pytest.mark.redis


def trail(count: int) -> list[Any]:
    """Wait for this number of entries."""
    wait_for(lambda: len(examples.TRAIL) >= count, "callbacks are to run")
    return sorted(examples.TRAIL, key=str)


def test_callbacks_get_the_outcome(running: InProcessWorker) -> None:
    result = add.apply_async((1, 2), on_success=report, on_complete=[report.s("x"), report.si("none", "y")])
    assert result.get(LONG) == 3
    outcome = TaskOutcome(result.id, f"{examples.__name__}.add", "complete", 3)
    assert trail(3) == sorted([(outcome,), (outcome, "x"), ("none", "y")], key=str)
    assert (outcome.succeeded, outcome.failed) == (True, False)
    assert history(client, result.id) == ["put", "popped", "done", "callback", "callback", "callback"]


def test_a_failure_calls_its_callbacks_alone(running: InProcessWorker) -> None:
    result = fails.s("broken").set(on_failure=report, on_success=note.s(), link_error=alarm.s()).delay()
    with pytest.raises(TaskFailed, match="broken"):
        result.get(LONG)
    wait_for(lambda: len(examples.TRAIL) == 2)
    for entry in examples.TRAIL:
        outcome = entry[0] if isinstance(entry, tuple) else entry
        assert (outcome.jid, outcome.state, outcome.failure_group, outcome.result) == (
            *(result.id, "failed", "q-ValueError", None),
        )
        assert outcome.failure_message.startswith("ValueError: broken")


def test_link_passes_the_result(running: InProcessWorker) -> None:
    add.apply_async((1, 2), link=[note.s("x"), note.si("y")])
    assert trail(2) == [["y", {}], [3, "x", {}]]


def test_tasks_and_callbacks_have_their_own_callbacks(running: InProcessWorker) -> None:
    watched.delay()
    (outcome,) = trail(1)
    assert (outcome.task, outcome.failure_group) == (watched.name, "q-KeyError")
    examples.TRAIL.clear()
    add.apply_async((1, 2), on_success=watched.si().set(on_complete=report.s("end")))
    assert next(entry for entry in trail(2) if isinstance(entry, tuple))[0].task == watched.name
    examples.TRAIL.clear()
    watched.apply_async(on_failure=report.s("instead"))
    assert trail(1)[0][1] == "instead"
    examples.TRAIL.clear()
    with pytest.raises(TaskFailed):
        watched.apply_async(on_failure=[]).get(LONG)
    assert examples.TRAIL == []


def test_each_end_has_its_callback(running: InProcessWorker) -> None:
    result = watched.apply_async(on_success=report, on_failure=alarm.s().set(task_id="alarm"))
    trail(1)
    result.job().requeue("q")
    trail(2)
    assert AsyncResult[None]("alarm-2").get(LONG) is None
    examples.GO.set()
    assert client.unfail("q-KeyError", "q") == 1
    assert result.get(LONG) == 3
    assert [end[0].state for end in trail(3) if isinstance(end, tuple)] == ["complete"]


def test_a_put_sends_its_callbacks(site: Any, valkey: Any) -> None:
    ids = {"txid": txid(), "request_id": "web-1.example_7"}
    with bound(**ids):  # type: ignore[arg-type]
        result = add.apply_async((1,), on_failure=alarm.s().set(countdown=5, tags=["x"]), link=note.si("y"))
    fields = {name.decode(): value.decode() for name, value in valkey.hgetall(f"ql:o:{result.id}").items()}
    assert fields.keys() == {"at", "success", "failure"}
    ((jid, queue, klass, data, options),) = json.loads(fields["failure"])
    assert (len(jid), queue, klass) == (32, "q", alarm.name)
    assert json.loads(data) == {"args": [], "kwargs": {}, "pass": "outcome"}
    assert options == {"priority": 7, "retries": 2, "tags": ["alarm", "x"], "delay": 5, **ids}
    ((_, _, klass, data, options),) = json.loads(fields["success"])
    assert (klass, json.loads(data), options) == (note.name, {"args": ["y"], "kwargs": {}}, ids)


def test_plain_calls_send_no_outcome(site: Any, valkey: Any) -> None:
    sender = dispatcher()
    for each in (add, optioned):
        args = (1,) if each is add else ()
        message = each.message(args, {}, client=sender.client)
        assert message.consequences is None
        assert "outcome" not in message.request(sender.client)
    assert valkey.exists(f"ql:o:{add.delay(1).id}") == 0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"on_sucess": report}, TypeError, "no option 'on_sucess'. Did you mean 'on_success'"),
        ({"on_success": 7}, TypeError, r"on_success= takes tasks and signatures such as task.s\(1\)"),
        ({"on_failure": "report"}, TypeError, "not 'report'"),
        ({"on_failure": [report, chain(add.s(1))]}, TypeError, "on_failure= takes tasks"),
        ({"link": add.s(1, 2)}, TypeError, "invalid arguments"),
        ({"on_complete": note.s().set(depends=["x"])}, TypeError, "A task in on_complete= has no option 'depends'"),
        ({"on_complete": note.s().set(eta=None)}, TypeError, "has no option 'eta'"),
        ({"if_failed": "ski"}, TypeError, "if_failed= must be one of .* Did you mean 'skip'"),
    ],
)
def test_wrong_options_are_refused(site: Any, options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        add.apply_async((1,), **options)
    assert client.queues.counts() == []


def test_wrong_options_of_tasks_and_steps_are_refused(site: Any) -> None:
    with pytest.raises(TypeError, match="on_success="):
        task(on_success=3)(add.function)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="every="):
        task(name="every.other", every=3, on_failure=report)(optioned.function)
    with pytest.raises(TypeError, match="link="):
        silent.apply_async(link=note)
    with pytest.raises(TypeError, match="'nam'"):
        group(add.s(1), nam="x")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'queue'"):
        chain(add.s(1)).apply_async(queue="x")
    with pytest.raises(TypeError, match="if_failed="):
        group(add.s(1).set(if_failed="skip")).delay()
    with pytest.raises(TypeError, match="name or options"):
        group(group(add.s(1), name="x"))
    assert client.queues.counts() == []


def test_the_callbacks_of_a_chain_run_at_its_end(running: InProcessWorker) -> None:
    ended = chain(add.s(1), add.s(2)).set(link=note.s(), on_failure=report).delay()
    assert ended.get(LONG) == 4
    assert trail(1) == [[4, {}]]
    examples.TRAIL.clear()
    ended = chain(fails.s("first"), add.si(2)).apply_async(link=note.s(), on_failure=report)
    (((outcome,),)) = trail(1)
    assert (outcome.jid, outcome.failure_group) == (ended.id, "q-DependencyFailed")
    assert "which failed: ValueError: first" in outcome.failure_message


def test_a_failed_step_may_skip_the_rest(running: InProcessWorker) -> None:
    result = chain(fails.s().set(if_failed="skip"), add.si(1), note.s("x")).set(on_complete=report).delay()
    assert result.get(LONG) is None
    assert (result.state, result.ready(), result.successful(), result.parent.state) == (
        "SKIPPED",
        True,
        False,
        "SKIPPED",
    )
    (((outcome,),)) = trail(1)
    assert (outcome.state, outcome.result) == ("skipped", None)


def test_a_failed_step_may_let_the_rest_run(running: InProcessWorker) -> None:
    assert chain(fails.s().set(if_failed="release"), note.s("x")).delay().get(LONG) == [None, "x", {}]
    assert chain(fails.s(), note.s("x").set(allow_failure=True)).delay().get(LONG) == [None, "x", {}]
    failed = fails.delay()
    with pytest.raises(TaskFailed):
        failed.get(LONG)
    assert note.apply_async(("late",), depends=[failed], allow_failure=True).get(LONG) == ["late", {}]
    with pytest.raises(TaskFailed) as caught:
        note.apply_async(("late",), depends=[failed]).get(LONG)
    assert caught.value.jid == failed.id


def test_a_failed_step_may_let_the_rest_wait(running: InProcessWorker) -> None:
    result = chain(fails.s("wait").set(if_failed="wait"), add.si(1), note.s()).delay()
    with pytest.raises(TaskFailed, match="ValueError: wait"):
        result.get(LONG)
    assert (result.state, result.parent.state) == ("PENDING", "PENDING")
    examples.GO.set()
    client.unfail("q-ValueError", "q")
    assert result.get(LONG) == [2, {}]


def test_a_chain_sends_the_policies_of_its_steps(site: Any, valkey: Any) -> None:
    result = chain(fails.s().set(if_failed="skip"), add.si(1), note.s().set(allow_failure=True)).delay()
    first, second, third = result.parent.parent.id, result.parent.id, result.id
    assert valkey.exists(f"ql:o:{first}") == 0
    assert valkey.hgetall(f"ql:o:{second}").keys() == {b"at", b"policy", f"policy:{first}".encode()}
    assert valkey.hmget(f"ql:o:{second}", "policy", f"policy:{first}") == [b"fail", b"skip"]
    assert valkey.hgetall(f"ql:o:{third}").keys() == {b"at", b"policy"}
    assert valkey.hget(f"ql:o:{third}", "policy") == b"release"
    assert result.job().data == {"args": [], "kwargs": {}, "from": second, "allow_failure": True}


def test_a_canceled_task_calls_its_callback(running: InProcessWorker) -> None:
    result = add.apply_async((1,), countdown=60, on_complete=report)
    result.revoke()
    (((outcome,),)) = trail(1)
    assert (outcome.jid, outcome.state) == (result.id, "canceled")


def test_a_callback_without_an_outcome_fails(running: InProcessWorker) -> None:
    client.queues["q"].put(report, {"args": [], "kwargs": {}, "pass": "outcome"}, jid="by-hand")
    with pytest.raises(TaskFailed, match="UnreadableReply"):
        AsyncResult[None]("by-hand").get(LONG)


def test_a_unique_task_may_be_a_callback(running: InProcessWorker) -> None:
    examples.GO.set()
    for _ in range(2):
        add.apply_async((1,), link=once.s(5))
    wait_for(lambda: examples.TRAIL.count(("once", 2, 5)) == 2)


@pytest.mark.django_db(transaction=True)
def test_groups_on_commit_are_put_at_the_commit(running: InProcessWorker) -> None:
    with transaction.atomic():
        result = (group(add.s(1), add.s(2), on_complete=report) | total.s()).delay_on_commit()
        assert client.queues.counts() == []
    assert result.get(LONG) == 5
    assert trail(1)[0][0].id == result.parent.id
    with transaction.atomic():
        group(add.s(1)).delay_on_commit()
        transaction.set_rollback(True)
    assert len(client.jobs.complete(0, 100)) == 4


@pytest.mark.django_db(transaction=True)
def test_groups_wait_for_the_commit_by_the_setting(site: Any) -> None:
    change_settings(site, ON_COMMIT=["*"])
    with transaction.atomic():
        results = [group(add.s(1)).delay(), group([]).delay()]
        assert [result.state for result in results] == ["GONE", "GONE"]
    assert [result.state for result in results] == ["PENDING", "SUCCESS"]
    with transaction.atomic():
        results = [group(add.s(1)).delay(), group([]).delay()]
        transaction.set_rollback(True)
    assert [result.state for result in results] == ["GONE", "GONE"]
