"""The code on docs/reference/jobs/outbox.md runs, and its settings are right."""

from __future__ import annotations

from typing import Any

import pytest

from resty_django.conf import all_problems, conf
from resty_django.qless import Client
from resty_django.qless.models import OutboxEntry
from tests.docs_reader import execute, page
from tests.integration.qless.conftest import change_settings
from tests.integration.qless.tasks.examples import note

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.db, pytest.mark.redis]


def test_the_code_of_the_page_runs(outbox: Client, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(settings.DATABASES, "ids", {})
    namespace: dict[str, Any] = {"send_invoice": note}
    used = []
    for block in page("docs/reference/jobs/outbox.md").blocks:
        if block.language != "python":
            continue
        execute(block.text, block.place, namespace)
        if "RESTY_DJANGO" in block.text:
            change_settings(settings, **namespace["RESTY_DJANGO"]["QLESS"])
            assert all_problems() == []
            used.append(conf.qless.outbox.queues)
            change_settings(settings, OUTBOX=True)
    assert used == [("*",), ("orders", "mail"), ("*",)]
    assert OutboxEntry.objects.count() == 1
    assert outbox.jobs.get(namespace["result"].id) is not None
