"""Django's tasks through the outbox."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import transaction

from resty_django.qless import Client
from resty_django.qless.integrations.django_tasks.compat import (
    TaskResultDoesNotExist,
    TaskResultStatus,
    signals,
    task_backends,
)
from resty_django.qless.models import OutboxEntry
from resty_django.qless.outbox.outbox import deliver_all
from tests.integration.qless.conftest import change_settings

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.db, pytest.mark.redis]

MODULE = "tests.integration.qless.tasks.django_examples"
BACKEND = "resty_django.qless.integrations.django_tasks.QlessBackend"


def tasks_setting(**options: Any) -> dict[str, Any]:
    """The backends that the tasks of the module name."""
    backend = {"BACKEND": BACKEND, "QUEUES": []}
    return {"default": {**backend, "OPTIONS": options}, "again": backend}


@pytest.fixture
def site(outbox: Client, settings: Any) -> Client:
    """A site whose tasks of Django go through the outbox."""
    change_settings(settings, MODULES=[MODULE])
    settings.TASKS = tasks_setting()
    from resty_django.qless.clients.default import default_client

    return default_client()


@pytest.fixture
def add(site: Client) -> Any:
    """A task. Its module needs the settings of the site."""
    return importlib.import_module(MODULE).add


@pytest.fixture
def announced() -> Iterator[list[str]]:
    """The IDs of the results that `task_enqueued` has sent."""
    ids: list[str] = []

    def receive(sender: Any, task_result: Any, **kwargs: Any) -> None:
        ids.append(task_result.id)

    signals.task_enqueued.connect(receive)
    yield ids
    signals.task_enqueued.disconnect(receive)


def test_a_task_is_enqueued_in_the_transaction(site: Client, add: Any, announced: list[str]) -> None:
    with transaction.atomic():
        result = add.enqueue(1, b=2)
        assert site.jobs.get(result.id) is None
        found = add.get_result(result.id)
        assert (found.status, found.args, found.kwargs) == (TaskResultStatus.READY, [1], {"b": 2})
        assert found.task.queue_name == add.queue_name
        assert announced == []
    assert announced == [result.id]
    assert site.jobs.get(result.id) is not None
    with transaction.atomic():
        undone = add.enqueue(1)
        transaction.set_rollback(True)
    with pytest.raises(TaskResultDoesNotExist):
        add.get_result(undone.id)


def test_a_manual_transaction_announces_the_task_at_once(site: Client, add: Any, announced: list[str]) -> None:
    transaction.set_autocommit(False)
    try:
        result = add.enqueue(1)
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert announced == [result.id]
    assert deliver_all(site) == {"delivered": 1}
    assert add.get_result(result.id).status == TaskResultStatus.READY


async def test_tasks_of_asyncio(site: Client, add: Any, announced: list[str]) -> None:
    result = await add.aenqueue(1)
    assert await sync_to_async(OutboxEntry.objects.count)() == 1
    assert announced == [result.id]
    site.source.sync().flushdb()  # as before the delivery
    assert (await add.aget_result(result.id)).status == TaskResultStatus.READY
    with pytest.raises(TaskResultDoesNotExist):
        await add.aget_result("unknown")


@pytest.mark.parametrize(("by_queue", "option", "expected"), [(True, False, 0), (False, True, 1), (False, None, 0)])
def test_the_option_of_the_backend_decides(
    site: Client, add: Any, settings: Any, by_queue: bool, option: bool | None, expected: int
) -> None:
    change_settings(settings, OUTBOX=by_queue)
    options = {} if option is None else {"OUTBOX": option}
    settings.TASKS = tasks_setting(**options)
    result = add.enqueue(1)
    assert OutboxEntry.objects.count() == expected
    assert add.get_result(result.id).status == TaskResultStatus.READY
    assert deliver_all(site)["refused"] == 0


def test_a_wrong_option_is_reported(site: Client, settings: Any) -> None:
    settings.TASKS = tasks_setting(OUTBOX="yes")
    (message,) = task_backends["default"].check()
    assert message.id == "resty_qless.E005"
    assert "OUTBOX" in message.msg
