"""Two operators edit one object: no acknowledged change is undone by the other's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections, models
from django.test import Client
from rest_framework.test import APIClient

from resty_django.ids.models import IdRule
from resty_django.limits.models import LimitPolicy
from tests.threads import together

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]

URL = "/api/ids/rules/order/"


@pytest.fixture
def rule() -> IdRule:
    return IdRule.objects.create(name="order", source="O{counter:06d}")


@pytest.fixture
def client(admin_user: User) -> APIClient:
    client = APIClient()
    client.force_authenticate(admin_user)
    return client


EDITS: Mapping[str, tuple[Any, Any]] = {
    "description": ("", "new"),
    "enabled": (True, False),
    "max_counter": (999_999, 99_999),
    "segment_size": (1000, 50),
    "max_names": (10_000, 5),
}


@pytest.mark.parametrize("method", ["patch", "put"])
@pytest.mark.parametrize("field", EDITS)
def test_a_change_writes_only_what_was_sent(
    rule: IdRule, client: APIClient, monkeypatch: pytest.MonkeyPatch, field: str, method: str
) -> None:
    """Between a client's read of the rule and its write, another one changes everything else."""
    from resty_django.ids.api import rules

    others = {name: new for name, (_, new) in EDITS.items() if name != field}
    find = rules.find

    def find_and_be_overtaken(name: str) -> IdRule:
        stored = find(name)
        IdRule.objects.filter(pk=stored.pk).update(**others)
        return stored

    monkeypatch.setattr(rules, "find", find_and_be_overtaken)
    body = {field: EDITS[field][1], **({"name": "order", "source": rule.source} if method == "put" else {})}
    assert getattr(client, method)(URL, body, format="json").status_code == 200
    stored = IdRule.objects.get()
    assert {name: getattr(stored, name) for name in EDITS} == {name: new for name, (_, new) in EDITS.items()}


def test_clients_that_change_different_fields_undo_nothing(rule: IdRule, admin_user: User) -> None:
    lost: list[Any] = []
    errors: list[Any] = []

    def change(field: str, values: list[Any]) -> None:
        client = APIClient()
        client.force_authenticate(admin_user)
        try:
            for value in values:
                reply = client.patch(URL, {field: value}, format="json")
                if reply.status_code != 200:
                    errors.append(reply.content)
                elif getattr(IdRule.objects.get(), field) != value:
                    lost.append((field, value))
        finally:
            connections.close_all()

    together(
        partial(change, "enabled", [n % 2 == 0 for n in range(15)]),
        partial(change, "description", [f"text {n}" for n in range(15)]),
    )
    assert not lost
    assert len(errors) < 15, errors[:1]  # of a database that was busy for too long; nothing was acknowledged then


def test_a_version_can_be_asked_for(rule: IdRule, client: APIClient) -> None:
    tag = client.get(URL)["ETag"]
    assert tag == '"1"'
    changed = client.patch(URL, {"description": "first"}, format="json", headers={"If-Match": tag})
    assert (changed.status_code, changed["ETag"], changed.json()["version"]) == (200, '"2"', 2)
    for method, body in (("patch", {"enabled": False}), ("put", {"name": "order", "source": "X"}), ("delete", {})):
        reply = getattr(client, method)(URL, body, format="json", headers={"If-Match": tag})
        assert (reply.status_code, reply.json()["code"]) == (412, "precondition_failed"), method
    assert IdRule.objects.values_list("description", "enabled", "version").get() == ("first", True, 2)
    for header in ('"2"', '"1", "2"', "*"):
        assert client.patch(URL, {"enabled": True}, format="json", headers={"If-Match": header}).status_code == 200
        IdRule.objects.update(version=2)
    for header in ("2", 'W/"2"', "", '"two"'):
        reply = client.patch(URL, {"enabled": True}, format="json", headers={"If-Match": header})
        assert reply.status_code == 412, header
    assert client.post("/api/ids/rules/", {"name": "n", "source": "{counter}"}, format="json")["ETag"] == '"1"'
    assert client.delete(URL, headers={"If-Match": '"2"'}).status_code == 204


# The admin


def make_policy() -> LimitPolicy:
    return LimitPolicy.objects.create(name="site", algorithm="fixed_window", limit=5, window="1m", key="ip")


OBJECTS: Mapping[str, tuple[Callable[[], models.Model], str, dict[str, Any], dict[str, Any]]] = {
    "rule": (
        lambda: IdRule.objects.create(name="order", source="O{counter:06d}"),
        "/admin/resty_ids/idrule/{}/change/",
        {"segment_size": 77},
        {"description": "mine"},
    ),
    "policy": (
        make_policy,
        "/admin/resty_limits/limitpolicy/{}/change/",
        {"limit": 7},
        {"description": "mine"},
    ),
}


def shown(client: Client, url: str) -> dict[str, Any]:
    """Return the fields that a browser would send back."""
    form = client.get(url).context["adminform"].form
    data = {name: form[name].value() for name in form.fields}
    return {
        name: "on" if value is True else value
        for name, value in data.items()
        if value is not None and value is not False
    }


@pytest.mark.parametrize("kind", OBJECTS)
def test_the_second_user_sees_what_changed(admin_client: Client, kind: str) -> None:
    make, url, theirs, ours = OBJECTS[kind]
    obj = make()
    url = url.format(obj.pk)
    first, second = shown(admin_client, url), shown(admin_client, url)
    assert b'name="seen_version" value="1"' in admin_client.get(url).content
    assert admin_client.post(url, {**first, **theirs}).status_code == 302
    refused = admin_client.post(url, {**second, **ours})
    assert refused.status_code == 200
    text = refused.content.decode()
    (field, value), *_ = theirs.items()
    assert "Another user has saved this object since you opened it (version 1, now 2)." in text
    assert f"stored “{value}”" in text
    assert 'name="seen_version" value="2"' in text
    stored = type(obj)._default_manager.get()
    assert getattr(stored, field) == value
    assert stored.description == ""  # type: ignore[attr-defined]

    assert admin_client.post(url, {**shown(admin_client, url), **ours}).status_code == 302
    stored = type(obj)._default_manager.get()
    assert getattr(stored, field) == value
    assert stored.description == "mine"  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_form_sent_again_is_saved(admin_client: Client, kind: str) -> None:
    make, url, _, ours = OBJECTS[kind]
    obj = make()
    url = url.format(obj.pk)
    data = {**shown(admin_client, url), **ours}
    type(obj)._default_manager.get().save()
    assert admin_client.post(url, data).status_code == 200
    assert admin_client.post(url, {**data, "seen_version": "2"}).status_code == 302
    assert type(obj)._default_manager.get().description == "mine"  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", OBJECTS)
def test_only_fields_that_differ_are_written(
    admin_client: Client, kind: str, django_assert_max_num_queries: Any
) -> None:
    make, url, _, ours = OBJECTS[kind]
    obj = make()
    url = url.format(obj.pk)
    data = {**shown(admin_client, url), **ours}
    with django_assert_max_num_queries(100) as captured:
        assert admin_client.post(url, data).status_code == 302
    (update,) = [
        query["sql"] for query in captured if query["sql"].startswith("UPDATE") and "description" in query["sql"]
    ]
    assert "algorithm" not in update
    assert "source" not in update


def test_the_preview_does_not_mind_another_version(admin_client: Client, rule: IdRule) -> None:
    data = shown(admin_client, f"/admin/resty_ids/idrule/{rule.pk}/change/")
    rule.save()
    reply = admin_client.post(f"/admin/resty_ids/idrule/preview/?rule={rule.pk}", data)
    assert b"O000000" in reply.content
    assert b"Somebody" not in reply.content
