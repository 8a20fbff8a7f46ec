"""The error for an unavailable ID contains the reason, and what to do about it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection, connections, transaction
from rest_framework.test import APIClient

from resty_django.ids import anext_id, monitor, next_id, service
from resty_django.ids.errors import Unavailable
from resty_django.ids.models import IdRule
from resty_django.ids.udp.server import UdpServer, bind
from tests.integration.ids.conftest import away
from tests.threads import serving

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]

MIGRATE = "The tables of the ID service are missing or out of date. Run manage.py migrate."


OUTAGES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "no rules": lambda: away("resty_ids_idrule"),
    "no counters": lambda: away("resty_ids_idcounter"),
    "an old table": lambda: away("resty_ids_idrule", "version"),
}


@pytest.mark.parametrize("outage", OUTAGES)
def test_unmigrated_tables_are_named_everywhere(order: IdRule, admin_user: User, outage: str) -> None:
    client = APIClient()
    client.force_authenticate(admin_user)
    with OUTAGES[outage]():
        for ask in (lambda: next_id("order"), lambda: asyncio.run(anext_id("order")), lambda: monitor("order")):
            with pytest.raises(Unavailable) as refused:
                ask()
            assert str(refused.value) == MIGRATE
        reply = client.post("/api/ids/rules/order/ids/", {}, format="json")
        assert (reply.status_code, reply.json()["message"]) == (503, MIGRATE)
        server = UdpServer(bind("127.0.0.1", 0), service.service())
        with serving(server), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect(server.sock.getsockname())
            sock.settimeout(20)
            sock.send(b'{"action":"get","rule_name":"order","app_name":""}')
            assert MIGRATE.encode() in sock.recv(65535)


@pytest.mark.usefixtures("impatient")
def test_an_error_says_that_the_caller_holds_the_write_lock(order: IdRule, settings: Any) -> None:
    settings.RESTY_DJANGO = {"IDS": {"WAIT": 1.0}}
    with transaction.atomic():
        Group.objects.create(name="written by the caller")
        if connection.vendor != "sqlite":
            assert next_id("order")
            return
        for app in ("", "", "other"):
            with pytest.raises(Unavailable, match="own transaction"):
                next_id("order", app)


@pytest.mark.usefixtures("impatient")
def test_an_error_says_that_another_connection_holds_the_write_lock(
    order: IdRule, settings: Any, locked: Callable[[], AbstractContextManager[None]], eventually: Callable[..., bool]
) -> None:
    settings.RESTY_DJANGO = {"IDS": {"WAIT": 1.0}}
    next_id("order", "before")
    with locked():
        with pytest.raises(Unavailable) as refused:
            next_id("order")
        assert ("SQLite's write lock" in str(refused.value)) == (connection.vendor == "sqlite")
        assert "This thread" not in str(refused.value)

    def served() -> bool:
        try:
            return bool(next_id("order"))
        except Unavailable:
            return False

    assert eventually(served, 20)
    assert service.service().reservations.reason == ""


READ_ONLY = {
    "sqlite": ("init_command", "PRAGMA query_only = 1"),
    "mysql": ("init_command", "SET SESSION TRANSACTION READ ONLY"),
    "postgresql": ("options", "-c default_transaction_read_only=on"),
}


@pytest.mark.usefixtures("impatient")
def test_a_read_only_database_is_named(order: IdRule, admin_user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    database = connections.settings["default"]  # of connections of other threads, too
    options = {**database["OPTIONS"], **dict([READ_ONLY[connection.vendor]])}
    monkeypatch.setitem(database, "OPTIONS", options)
    reason = "The database is read-only. Allow writes, or connect to the primary server."
    with pytest.raises(Unavailable) as refused:
        next_id("order")
    assert str(refused.value) == reason
    client = APIClient()
    client.force_authenticate(admin_user)
    reply = client.post("/api/ids/rules/order/ids/", {}, format="json")
    assert (reply.status_code, reply.json()["message"]) == (503, reason)
