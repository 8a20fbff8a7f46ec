"""Processes are killed between two steps of the outbox; others do what is missing, and nothing twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resty_django.qless import client as default
from resty_django.qless.models import OutboxEntry
from resty_django.qless.outbox.delivery import Deliverer
from resty_django.qless.outbox.outbox import Outbox
from tests.integration.qless.conftest import SkewedClient, change_settings
from tests.integration.qless.outbox import shop, victim

pytestmark = [pytest.mark.redis, pytest.mark.db, pytest.mark.django_db(transaction=True)]

ORDERS = 24
SIGKILL = -9


@pytest.fixture
def deliverer(valkey: Any, valkey_url: str, settings: Any) -> Iterator[Deliverer]:
    """What comes after the process that dies, when claims have ended."""
    change_settings(settings, **shop.settings_for(valkey_url))
    client = SkewedClient(valkey_url)
    client.skew = 61.0
    yield Deliverer(client, "default")
    client.close()
    default.close()


def die(url: str, log: Path, point: str, passes: int, *arguments: str) -> None:
    process = shop.start(url, log, {"point": point, "passes": passes}, *arguments)
    assert process.wait(60) == SIGKILL, log.read_text()


def check(deliverer: Deliverer) -> None:
    assert len(shop.accepted()) > ORDERS / 2
    assert shop.puts(deliverer.client) == shop.expected()
    assert {*OutboxEntry.objects.values_list("state", flat=True)} == {"delivered"}


@pytest.mark.parametrize("point", ["row", "commit", "put", "sent", "mark", "marked"])
def test_no_order_loses_its_job_when_the_process_that_took_it_dies(
    deliverer: Deliverer, valkey_url: str, tmp_path: Path, point: str
) -> None:
    die(valkey_url, tmp_path / "log", point, 2 if "mark" in point else 5, "sell", "0", str(ORDERS))
    assert shop.puts(deliverer.client) <= shop.expected()
    victim.sell(0, ORDERS)  # the rest
    deliverer.run()
    check(deliverer)


@pytest.mark.parametrize("point", ["claim", "put", "sent", "mark", "marked"])
def test_no_order_loses_its_job_when_the_process_that_delivers_it_dies(
    deliverer: Deliverer, valkey_url: str, tmp_path: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as dying:
        dying.setattr(Outbox, "deliver", lambda outbox, entry: False)
        victim.sell(0, ORDERS)
    OutboxEntry.objects.update(due_at="2020-01-01T00:00:00Z")
    assert not shop.puts(deliverer.client)
    die(valkey_url, tmp_path / "log", point, 2, "manage", "qless_outbox", "--once")
    assert shop.puts(deliverer.client) <= shop.expected()
    deliverer.run()
    check(deliverer)


