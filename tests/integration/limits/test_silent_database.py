"""A database that says nothing keeps the thread of the limits for no longer than its bound.

Private names: `registry._rows` is the read that is held up until the database is silent.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from django.db import connection, connections

from resty_django.checks import check_databases
from resty_django.limits.models import LimitPolicy
from resty_django.limits.policies import registry
from tests.integration.limits.policy_tools import make_policy
from tests.integration.limits.quota_tools import monthly
from tests.integration.limits.view_tools import change
from tests.logserver import until
from tests.tcpproxy import Proxy

pytestmark = [
    pytest.mark.db,
    pytest.mark.services,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("limits_site"),
]


def read_often(settings: Any, monkeypatch: pytest.MonkeyPatch) -> LimitPolicy:
    change(settings, REFRESH=0.1)
    monkeypatch.setattr(registry, "DATABASE_TIMEOUT", 1.0)
    row = make_policy("pay", description="before")
    registry.refresh_policies()
    return row


@pytest.mark.usefixtures("database_up")
def test_a_quota_waits_no_longer_than_the_timeouts_that_the_check_names(
    silent_database: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = connections.settings["default"]
    options = {**database["OPTIONS"], "connect_timeout": 2, "read_timeout": 2}
    if connection.vendor == "postgresql":
        del options["read_timeout"]
    monkeypatch.setitem(database, "OPTIONS", options)
    assert check_databases() == []
    counted = monthly(10, on_error="open")
    silent_database.silence(new=True)
    decisions: list[Any] = []
    start = time.monotonic()
    thread = threading.Thread(target=lambda: decisions.append(counted.use("k")), daemon=True)
    thread.start()
    thread.join(20)
    assert [(decision.allowed, decision.failed) for decision in decisions] == [(True, True)]
    assert time.monotonic() - start > 1


def test_policies_are_read_again_after_a_silence(
    silent_database: Proxy, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = read_often(settings, monkeypatch)
    registry.refresh_soon()
    until(lambda: silent_database.accepted >= 2)  # the thread of the limits reads again and again
    with registry.refresh_lock:  # between two reads
        silent_database.silence(new=True)
    accepted = silent_database.accepted
    until(lambda: silent_database.accepted >= accepted + 2)  # it gives up on silent connections, and tries again
    silent_database.silence()
    LimitPolicy.objects.filter(pk=row.pk).update(description="after")
    until(lambda: registry.get_policy("pay").spec.description == "after")


def test_a_read_that_the_silence_interrupts_is_given_up(
    silent_database: Proxy, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy acknowledges what it receives, so keep-alives and the like find no fault."""
    row = read_often(settings, monkeypatch)
    read, silenced = registry._rows, threading.Event()

    def read_in_silence() -> Any:
        if not silenced.is_set():
            connection.ensure_connection()
            silent_database.silence()
            silenced.set()
        return read()

    monkeypatch.setattr(registry, "_rows", read_in_silence)
    registry.refresh_soon()
    assert silenced.wait(60)
    LimitPolicy.objects.filter(pk=row.pk).update(description="after")
    until(lambda: registry.get_policy("pay").spec.description == "after")
