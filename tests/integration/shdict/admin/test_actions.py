"""Operations on a shared dictionary in the admin: permissions, and the history."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.test import Client

from resty_django.models import SharedDictionary
from resty_django.shdict import SharedDict, shdicts
from tests.staff import logged

pytestmark = [pytest.mark.django_db, pytest.mark.db]

LIST = "/admin/resty_django/shareddictionary/"
PAGE = f"{LIST}default/change/"
ACTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "delete-key": ("delete_dictionary_item", {"key": "kept"}),
    "flush-expired": ("flush_expired_items", {}),
    "flush-all": ("flush_dictionary", {"confirmation": "default"}),
}


def url(action: str) -> str:
    return f"{LIST}default/{action}/"


@pytest.fixture
def filled(dictionary: SharedDict) -> SharedDict:
    dictionary.set("kept", 1)
    dictionary.set("gone", 2, 0.001)
    time.sleep(0.01)
    assert dictionary.get_stale("gone") is not None
    return dictionary


@pytest.mark.parametrize("action", ACTIONS)
def test_actions_say_that_they_cannot_be_undone(admin_client: Client, filled: SharedDict, action: str) -> None:
    text = admin_client.get(url(action)).content.decode()
    assert "This cannot be undone." in text
    known = "Number of keys: 2" if filled.engine == "lmdb" else "The number of keys is not known"
    assert (known in text) is (action == "flush-all")


def test_a_key_is_deleted(admin_client: Client, filled: SharedDict) -> None:
    reply = admin_client.post(url("delete-key"), {"key": "kept"}, follow=True)
    assert reply.redirect_chain == [(PAGE, 302)]
    assert 'Deleted the key <code class="resty-id">kept</code>.' in reply.content.decode()
    assert filled.get("kept") is None
    entry = LogEntry.objects.get()
    assert entry.get_change_message() == "Deleted the key “kept”."
    assert entry.content_type == ContentType.objects.get_for_model(SharedDictionary)
    assert entry.object_id == "default"
    assert entry.get_admin_url() == PAGE
    assert "Deleted the key" in admin_client.get(f"{LIST}default/history/").content.decode()


def test_deleting_a_missing_key_shows_a_message_and_adds_no_entry(admin_client: Client, filled: SharedDict) -> None:
    reply = admin_client.post(url("delete-key"), {"key": " kept"})
    assert "Not done: The key “ kept” does not exist." in reply.content.decode()
    assert admin_client.post(url("delete-key"), {"key": ""}).status_code == 200
    assert filled.get("kept") == 1
    assert logged() == []


def test_expired_items_are_freed(admin_client: Client, filled: SharedDict) -> None:
    assert "get_stale()" in admin_client.get(url("flush-expired")).content.decode()
    assert admin_client.post(url("flush-expired"), {}).status_code == 302
    assert filled.get_stale("gone") is None
    assert filled.get("kept") == 1
    assert logged() == ["Freed 1 expired item."]


def test_flush_expired_is_bounded(admin_client: Client, filled: SharedDict, monkeypatch: pytest.MonkeyPatch) -> None:
    from resty_django.admin import dictionaries

    monkeypatch.setattr(dictionaries, "FREED_AT_ONCE", 3)
    for number in range(4):
        filled.set(f"gone{number}", 1, 0.001)
    time.sleep(0.01)
    admin_client.post(url("flush-expired"), {})
    admin_client.post(url("flush-expired"), {})
    assert logged()[0] == "Freed 3 expired items. There may be more."
    assert logged()[1] == "Freed 2 expired items."


def test_flush_all_takes_the_exact_name(admin_client: Client, filled: SharedDict) -> None:
    for typed in ("", "Default", " default", "default ", "other"):
        assert admin_client.post(url("flush-all"), {"confirmation": typed}).status_code == 200
        assert filled.get("kept") == 1
        assert logged() == []
    assert "Type “default” to empty it" in admin_client.get(url("flush-all")).content.decode()
    assert admin_client.post(url("flush-all"), {"confirmation": "default"}).status_code == 302
    assert filled.get("kept") is None
    assert logged() == ["Marked everything in it expired."]


# --- who may do what ------------------------------------------------------------------------------------------------


def test_figures_and_items_have_separate_permissions(person: Callable[..., Client], filled: SharedDict) -> None:
    filled.set("secret-key", "secret-value")
    viewer = person("view_shareddictionary")
    reader = person("view_shareddictionary", "view_dictionary_items")
    blind = person("view_dictionary_items")
    assert viewer.get(LIST).status_code == viewer.get(PAGE).status_code == 200
    assert "Keys and values" not in viewer.get(PAGE).content.decode()
    for query in ("?key=secret-key", "?k=c2VjcmV0LWtleQ==", "?find=secret"):
        assert viewer.get(PAGE + query).status_code == 403
        assert "secret-key" in reader.get(PAGE + query).content.decode()
        assert blind.get(PAGE + query).status_code == 403
    assert "secret-value" in reader.get(f"{PAGE}?key=secret-key").content.decode()
    assert blind.get(LIST).status_code == blind.get(PAGE).status_code == 403
    assert blind.get(f"{LIST}default/history/").status_code == 403
    assert LIST not in blind.get("/admin/").content.decode()
    assert LIST in viewer.get("/admin/").content.decode()


def test_the_dictionaries_of_the_settings_are_meant(admin_client: Client, filled: SharedDict) -> None:
    assert "other" not in shdicts
    assert admin_client.post(f"{LIST}other/flush-all/", {"confirmation": "other"}).status_code == 302
    assert logged() == []
