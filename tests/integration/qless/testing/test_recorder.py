"""Recording of enqueued tasks: without a server."""

from __future__ import annotations

import threading
import unittest
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import transaction
from django.test import TestCase

from resty_django.qless import NotAllowed, chain, group
from resty_django.qless.testing import QlessTestMixin, Recorder, assert_enqueued, assert_not_enqueued, record
from tests.integration.qless.testing.shop_tasks import rename, send_invoice, total

MODULE = "tests.integration.qless.testing.shop_tasks"
NO_SERVER = {"URL": "redis://127.0.0.1:1/0", "MODULES": [MODULE]}


@pytest.fixture(autouse=True)
def _no_server(settings: Any) -> None:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": NO_SERVER}


@pytest.fixture
def recorded() -> Iterator[Recorder]:
    with record() as recorder:
        yield recorder


def test_enqueued_task_is_recorded_as_a_worker_would_see_it(recorded: Recorder) -> None:
    eta = datetime(2027, 1, 2, tzinfo=UTC)
    result = send_invoice.apply_async((7,), {"copy": True}, eta=eta, tags=["late"], depends=["a"])
    (task,) = recorded
    assert (task.task, task.id, task.args, task.kwargs) == (send_invoice, result.id, [7], {"copy": True})
    assert (task.queue, task.priority, task.tags) == ("mail", 3, ("billing", "late"))
    assert (task.eta, task.depends) == (eta, ("a",))


def test_task_is_found_by_its_arguments_in_any_spelling(recorded: Recorder) -> None:
    send_invoice.delay(7)
    for args, kwargs in (((7,), None), (None, {"order": 7}), ((7, False), None), ((7,), {"copy": False})):
        assert recorded.assert_enqueued(send_invoice, args, kwargs, queue="mail", count=1).args == [7]
    recorded.assert_not_enqueued(send_invoice, args=(7, True))
    recorded.assert_not_enqueued(send_invoice, queue="default")
    recorded.assert_not_enqueued(total)
    total.delay([1, 2])
    recorded.assert_enqueued(total, args=((1, 2),))  # tuples arrive as lists


def test_failed_assertion_lists_what_was_enqueued(recorded: Recorder) -> None:
    with pytest.raises(AssertionError, match=r"send_invoice was not enqueued\. Nothing was enqueued\.$"):
        recorded.assert_enqueued(send_invoice)
    send_invoice.delay(8, copy=True)
    with pytest.raises(AssertionError) as failure:
        recorded.assert_enqueued(send_invoice, args=(7,), queue="mail")
    assert str(failure.value) == (
        f"{MODULE}.send_invoice(7) with queue='mail' was not enqueued. Enqueued were:\n"
        f"  {MODULE}.send_invoice(8, copy=True) in 'mail'"
    )
    with pytest.raises(AssertionError, match="was enqueued 1 times, not 2"):
        recorded.assert_enqueued(send_invoice, count=2)
    with pytest.raises(AssertionError, match="A task was enqueued"):
        recorded.assert_not_enqueued()
    with pytest.raises(TypeError, match="quue"):
        recorded.assert_enqueued(send_invoice, quue="mail")


def test_functions_use_the_innermost_recorder(recorded: Recorder) -> None:
    with record() as inner:
        send_invoice.delay(7)
        assert_enqueued(send_invoice, args=(7,), queue="mail")
    assert (len(inner), len(recorded)) == (1, 0)
    assert_not_enqueued(send_invoice)


def test_functions_say_how_to_record() -> None:
    with pytest.raises(RuntimeError, match=r"record\(\)"):
        assert_enqueued(send_invoice)


async def test_async_calls_chains_and_threads_are_recorded(recorded: Recorder) -> None:
    await send_invoice.adelay(1)
    chain(group(total.s([1]), total.s([2])), total.s(extra=1)).delay()
    thread = threading.Thread(target=send_invoice.delay, args=(2,))
    thread.start()
    thread.join()
    assert [str(task).removeprefix(f"{MODULE}.") for task in recorded] == [
        "send_invoice(1) in 'mail'",
        "total([1]) in 'default'",
        "total([2]) in 'default'",
        "total(extra=1) in 'default'",
        "send_invoice(2) in 'mail'",
    ]
    recorded.assert_enqueued(total, kwargs={"extra": 1})


def test_refused_calls_are_refused_while_recording(recorded: Recorder, settings: Any) -> None:
    with pytest.raises(TypeError):
        send_invoice.delay()  # type: ignore[call-arg]
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": NO_SERVER["URL"]}}
    with pytest.raises(NotAllowed):
        send_invoice.delay(1)
    assert len(recorded) == 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("queues", [[], ["*"]])
def test_task_on_commit_is_recorded_at_the_commit(recorded: Recorder, settings: Any, queues: list[str]) -> None:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {**NO_SERVER, "ON_COMMIT": queues}}
    enqueue = send_invoice.delay if queues else send_invoice.delay_on_commit
    with transaction.atomic():
        enqueue(7)
        recorded.assert_not_enqueued()
    recorded.assert_enqueued(send_invoice, args=(7,))
    recorded.clear()
    with transaction.atomic():
        enqueue(8)
        transaction.set_rollback(True)
    recorded.assert_not_enqueued()


class OrderTests(QlessTestMixin, TestCase):
    """A test class as a site would write it."""

    def test_order_is_invoiced(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            send_invoice.delay_on_commit(7)
        self.assert_enqueued(send_invoice, args=(7,), queue="mail", count=1)
        self.assert_not_enqueued(rename)

    def test_each_test_starts_without_tasks(self) -> None:
        self.assert_not_enqueued()
        assert_not_enqueued()


def test_methods_of_the_mixin_can_be_extended() -> None:
    class Extended(QlessTestMixin, unittest.TestCase):
        def assert_enqueued(self, *args: Any, **options: Any) -> Any:
            return super().assert_enqueued(*args, queue="mail", **options)

        def test(self) -> None:
            send_invoice.delay(7)
            self.assert_enqueued(send_invoice)
            rename.delay("a", "b")
            with pytest.raises(AssertionError):
                self.assert_enqueued(rename)

    outcome = unittest.TestResult()
    Extended("test").run(outcome)
    assert (outcome.testsRun, outcome.errors, outcome.failures) == (1, [], [])


def test_mixin_works_with_unittest() -> None:
    class Plain(QlessTestMixin, unittest.TestCase):
        def test(self) -> None:
            send_invoice.delay(7)
            self.assert_enqueued(send_invoice)

    outcome = unittest.TestResult()
    Plain("test").run(outcome)
    assert (outcome.testsRun, outcome.errors, outcome.failures) == (1, [], [])


def test_callbacks_and_groups_are_recorded(recorded: Recorder) -> None:
    result = group(
        [send_invoice.s(n).set(on_failure=total.si([n])) for n in (1, 2)], name="invoices", on_complete=total.si([])
    ).delay()
    assert [(task.group, task.on_failure[0].task, task.on_failure[0].args) for task in recorded] == [
        (result.id, total, [[1]]),
        (result.id, total, [[2]]),
    ]
    recorded.assert_not_enqueued(total)
    (invoices,) = recorded.groups
    assert (invoices.id, invoices.name, invoices.members) == (result.id, "invoices", (*recorded,))
    assert ([task.task for task in invoices.on_complete], invoices.on_success) == ([total], ())
    recorded.clear()
    assert recorded.groups == []
