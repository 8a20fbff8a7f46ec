"""Both clients against the real UDP server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from resty_django.ids import errors
from resty_django.ids.client import AsyncIdClient, IdClient, MonitorReply, NodesDown
from resty_django.ids.models import IdRule
from resty_django.ids.service.id_service import IdService
from resty_django.ids.udp.server import UdpServer, bind
from tests.threads import serving

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.db]

KEY = "a shared secret of some length"


@pytest.fixture
def start() -> Iterator[Callable[[], tuple[str, int]]]:
    """Start servers in threads and return their addresses."""
    with ExitStack() as running:

        def make() -> tuple[str, int]:
            service = IdService()
            service.load()
            server = UdpServer(bind("127.0.0.1", 0), service)
            running.enter_context(serving(server))
            host, port = server.sock.getsockname()
            return host, port

        yield make


@pytest.fixture(autouse=True)
def rules() -> None:
    IdRule.objects.create(name="order", source="O{counter:06d}")
    IdRule.objects.create(name="salted", source="S{salt:2}{counter:06d}")
    IdRule.objects.create(name="few", source="F{counter:01d}", max_counter=2)
    IdRule.objects.create(name="invoice", source="I{counter:06d}", gapless=True)


def test_clients_get_ids_batches_and_positions(start: Any) -> None:
    with IdClient([start()], timeout=3) as client:
        assert client.get("order", "shop") == "O000000"
        assert client.get_many("order", 3, "shop") == ["O000001", "O000002", "O000003"]
        assert client.get_many("order", 1, "shop") == ["O000004"]
        assert client.get("salted", salt="ab") == "Sab000000"
        assert client.get("order", "日本") == "O000000"
        assert client.monitor("order", "shop") == MonitorReply(4, 0)
        assert len(set(client.get_many("order", 1000))) == 1000


def test_refusals_arrive_as_their_classes(start: Any) -> None:
    with IdClient([start()], timeout=3) as client:
        for arguments, expected in (
            ({"rule": "nope"}, errors.UnknownRule),
            ({"rule": "order", "app": "a b"}, errors.BadName),
            ({"rule": "salted", "salt": "abc"}, errors.BadSalt),
            ({"rule": "order", "count": 1001}, errors.BadCount),
            ({"rule": "invoice"}, errors.NeedsTransaction),
        ):
            with pytest.raises(expected) as caught:
                client.get_many(**{"count": 1, **arguments})
            assert type(caught.value) is expected
            assert not str(caught.value).startswith(expected.code)
        client.get_many("few", 3)
        with pytest.raises(errors.Exhausted):
            client.get("few")
        with pytest.raises(errors.NotExist):
            client.monitor("order", "nobody")
        with pytest.raises(errors.NotExist):
            client.monitor("nope")


def test_two_servers_on_one_database_never_issue_one_id_twice(start: Any) -> None:
    async def ask() -> list[str]:
        async with AsyncIdClient([start(), start()], timeout=5) as client:
            batches = await asyncio.gather(*(client.get_many("order", 20, "shop") for _ in range(100)))
        return [issued_id for batch in batches for issued_id in batch]

    ids = asyncio.run(ask())
    assert len(set(ids)) == 2000


def test_only_signed_requests_are_served_where_keys_are_set(start: Any, settings: Any) -> None:
    settings.RESTY_DJANGO = {"IDS": {"UDP": {"KEYS": [KEY]}}}
    node = start()
    with IdClient([node], timeout=3, key=KEY) as client:
        assert client.get("order") == "O000000"
        assert client.get_many("order", 2) == ["O000001", "O000002"]
        with pytest.raises(errors.UnknownRule):
            client.get("nope")
        assert client.monitor("order").counter == 2
    for key in (None, "another secret"):
        with IdClient([node], timeout=0.1, attempts=1, key=key) as client, pytest.raises(NodesDown):
            client.get("order")
