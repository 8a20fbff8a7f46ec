"""Undo of raised and lowered counters: only as long as no number was reserved since, so no ID is issued twice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from resty_django import ids
from resty_django.ids import operations
from resty_django.ids.models import IdCounter
from tests.integration.ids.admin_tools import COUNTERS, logged, make_counter, make_rule, person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.db]

NUMBERS = ("step", "bound", "shown", "cycle_start", "cycle_end")
ACTIONS = {"raise": "5000", "lower": "20"}
BY_ACTION = pytest.mark.parametrize("action", ACTIONS)


@pytest.fixture(autouse=True)
def _stopped() -> Iterator[None]:
    yield
    ids.stop()


@pytest.fixture
def counter() -> IdCounter:
    return make_counter(make_rule(), bound=100)


def numbers() -> Any:
    return IdCounter.objects.values(*NUMBERS).get()


def do(client: Client, counter: IdCounter, action: str) -> str:
    """Set a counter, and return the address of the undo."""
    to = ACTIONS[action]
    data = {"to": to, "confirmation": f"order/shop {to}"}
    reply = client.post(f"{COUNTERS}{counter.pk}/{action}/", data, follow=True)
    match = re.search(r'<a href="([^"]*/undo/[^"]*)">Undo</a>', reply.content.decode())
    assert match, reply.content.decode()
    return unescape(match[1])


def undo(client: Client, address: str) -> str:
    assert client.get(address).status_code == 200
    reply = client.post(address, follow=True)
    return unescape(" ".join(re.findall(r'(?s)class="messagelist">(.*?)</ul>', reply.content.decode())))


@BY_ACTION
def test_a_counter_is_as_before(admin_client: Client, counter: IdCounter, action: str) -> None:
    before = numbers()
    address = do(admin_client, counter, action)
    assert numbers()["bound"] == int(ACTIONS[action])
    assert "the next number is 100 again." in undo(admin_client, address)
    assert numbers() == before
    assert logged()[-1].startswith("Undone: the next number was ")
    entries = len(logged())
    assert "Nothing was changed: The counter was changed" in undo(admin_client, address)
    assert (numbers(), len(logged())) == (before, entries)
    assert str(ids.next_id("order", app="shop"))[-6:] == "000100"


@BY_ACTION
def test_a_counter_from_which_numbers_were_reserved_stays(
    admin_client: Client, counter: IdCounter, action: str
) -> None:
    address = do(admin_client, counter, action)
    issued = ids.next_id("order", app="shop")
    after = numbers()
    text = undo(admin_client, address)
    assert f"numbers were reserved, since then: its next number is {after['bound']:,}." in text
    assert numbers() == after
    assert ids.next_id("order", app="shop") != issued


@BY_ACTION
def test_a_reservation_between_the_change_and_the_answer_is_noticed(
    admin_client: Client, counter: IdCounter, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The undo compares with what the operation has written, not with what it has read afterwards."""
    fresh, calls = operations._fresh, [0]

    def late(row: IdCounter) -> IdCounter:
        calls[0] += 1
        if calls[0] == 2:  # after the write
            IdCounter.objects.filter(pk=row.pk).update(bound=int(ACTIONS[action]) + 10)
        return fresh(row)

    monkeypatch.setattr(operations, "_fresh", late)
    address = do(admin_client, counter, action)
    monkeypatch.setattr(operations, "_fresh", fresh)
    after = numbers()
    assert after["bound"] == int(ACTIONS[action]) + 10
    assert "Nothing was changed: " in undo(admin_client, address)
    assert numbers() == after


@BY_ACTION
def test_the_undo_needs_the_permission_of_the_action(counter: IdCounter, action: str) -> None:
    codename = f"{action}_idcounter"
    client = person("view_idcounter", codename)
    address = do(client, counter, action)
    after = numbers()
    User.objects.get().user_permissions.remove(Permission.objects.get(codename=codename))
    assert client.get(address).status_code == client.post(address).status_code == 403
    assert numbers() == after


def test_a_confirmed_step_has_no_undo_and_says_so(admin_client: Client) -> None:
    counter = make_counter(make_rule(), bound=14, node_offset=1, step=3, cycle_first=2)
    assert "This cannot be undone." in admin_client.get(f"{COUNTERS}{counter.pk}/confirm-step/").content.decode()
