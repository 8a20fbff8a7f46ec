"""Undo of actions of the limits' admin: the state is as before, or the message says what has changed since."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client

from resty_django.limits import Quota
from resty_django.limits.models import LimitOverride, LimitPolicy, QuotaUsage
from tests.integration.limits.policy_tools import POLICIES, logged, make_policy, person
from tests.integration.limits.test_limits_admin import data
from tests.integration.limits.test_overrides_admin import OVERRIDES, entered, make_override
from tests.integration.limits.test_quota_admin import monthly, row_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("limits_site")]

QUOTAS = "/admin/resty_limits/quotausage/"
NOTHING = "Nothing was changed: "


def messages_of(reply: Any) -> str:
    return unescape(" ".join(re.findall(r'(?s)class="messagelist">(.*?)</ul>', reply.content.decode())))


def undo_url(reply: Any) -> str:
    match = re.search(r'<a href="([^"]*/undo/[^"]*)">Undo</a>', messages_of(reply))
    assert match, messages_of(reply)
    return match[1]


def undo(client: Client, address: str) -> str:
    """Confirm an undo, which changes nothing before, and return the message."""
    before = len(logged())
    reply = client.get(address)
    assert reply.status_code == 200
    assert "csrfmiddlewaretoken" in reply.content.decode()
    assert len(logged()) == before
    return messages_of(client.post(address, follow=True))


def state(model: Any) -> list[dict[str, Any]]:
    """Return the rows without the fields that each save changes."""
    changing = {"version", "created_at", "updated_at"}
    return [
        {name: value for name, value in row.items() if name not in changing}
        for row in model.objects.order_by("pk").values()
    ]


# --- each action: do, undo, undo again ---


def set_mode(client: Client) -> Any:
    pks = [row.pk for row in LimitPolicy.objects.all()]
    return client.post(POLICIES, {"action": "off", "_selected_action": pks, "confirmed": "yes"}, follow=True)


def edit_override(client: Client) -> Any:
    row = LimitOverride.objects.get()
    form = entered(rate="90/m", reason="paid", ends_at_0="2030-01-01", ends_at_1="00:00:00", seen_version=row.version)
    return client.post(f"{OVERRIDES}{row.pk}/change/", form, follow=True)


def delete_override(client: Client) -> Any:
    row = LimitOverride.objects.get()
    return client.post(f"{OVERRIDES}{row.pk}/delete/", {"post": "yes"}, follow=True)


def delete_selected_overrides(client: Client) -> Any:
    pks = [row.pk for row in LimitOverride.objects.all()]
    form = {"action": "delete_selected", "_selected_action": pks, "post": "yes"}
    return client.post(OVERRIDES, form, follow=True)


def add_override(client: Client) -> Any:
    return client.post(f"{OVERRIDES}add/", entered(key="192.0.2.9", limit="pay", reason="new"), follow=True)


def add_policy(client: Client) -> Any:
    return client.post(f"{POLICIES}add/", data(name="new"), follow=True)


def edit_policy(client: Client) -> Any:
    row = LimitPolicy.objects.get(name="pay")
    return client.post(f"{POLICIES}{row.pk}/change/", data(seen_version=row.version), follow=True)


def delete_policy(client: Client) -> Any:
    row = LimitPolicy.objects.get(name="pay")
    return client.post(f"{POLICIES}{row.pk}/delete/", {"post": "yes"}, follow=True)


def touch_policy() -> None:
    row = LimitPolicy.objects.get(name="pay")
    row.description = "changed"
    row.save()


def touch_override() -> None:
    row = LimitOverride.objects.order_by("-pk")[0]
    row.reason = "somebody else"
    row.save()


ACTIONS: dict[str, tuple[Callable[[Client], Any], Any, str, Callable[[], Any], str]] = {
    "mode": (set_mode, LimitPolicy, "change_limitpolicy", touch_policy, "Changed again since then: “pay”."),
    "change": (
        edit_override,
        LimitOverride,
        "change_limitoverride",
        touch_override,
        "Changed again since then: “",
    ),
    "delete": (
        delete_override,
        LimitOverride,
        "delete_limitoverride",
        lambda: make_override(rate="10/m"),
        "There is already an override of this key and limit.",
    ),
    "delete several": (
        delete_selected_overrides,
        LimitOverride,
        "delete_limitoverride",
        lambda: make_override(rate="10/m"),
        "There is already an override of this key and limit.",
    ),
    "add": (add_override, LimitOverride, "add_limitoverride", touch_override, "Changed again since then: “"),
    "add a policy": (
        add_policy,
        LimitPolicy,
        "add_limitpolicy",
        lambda: LimitPolicy.objects.get(name="new").save(),
        "Changed again since then: “new”.",
    ),
    "change a policy": (
        edit_policy,
        LimitPolicy,
        "change_limitpolicy",
        touch_policy,
        "Changed again since then: “pay”.",
    ),
    "delete a policy": (
        delete_policy,
        LimitPolicy,
        "delete_limitpolicy",
        lambda: make_policy(limit=9),
        "already exists.",
    ),
}
BY_ACTION = pytest.mark.parametrize("action", ACTIONS)


@pytest.fixture(autouse=True)
def _rows() -> None:
    make_policy(tiers="pro: 600/m", exempt_networks="10.0.0.0/8\n192.0.2.0/24", status=503)
    make_policy("search", mode="shadow")
    make_override(reason="a customer", ends_at="2031-05-05T10:00:00Z")


@BY_ACTION
def test_an_action_is_undone_once(action: str) -> None:
    do, model, permission, _touch, _text = ACTIONS[action]
    client = person(f"view_{model._meta.model_name}", permission)
    before = state(model)
    reply = do(client)
    assert state(model) != before
    address = undo_url(reply)
    entries = len(logged())
    text = undo(client, address)
    assert "Undone: " in text
    assert state(model) == before
    assert len(logged()) > entries
    assert all(entry.startswith("Undone: ") for entry in logged()[entries:])
    entries, again = len(logged()), undo(client, address)
    assert NOTHING in again, again
    assert state(model) == before
    assert len(logged()) == entries


@BY_ACTION
def test_what_was_changed_since_is_said_and_stays(action: str) -> None:
    do, model, permission, touch, text = ACTIONS[action]
    client = person(f"view_{model._meta.model_name}", permission)
    address = undo_url(do(client))
    touch()
    after, entries = state(model), len(logged())
    message = undo(client, address)
    assert NOTHING in message
    assert text in message, message
    assert state(model) == after
    assert len(logged()) == entries


@BY_ACTION
def test_an_undo_needs_the_permission_of_the_action_and_its_user(action: str) -> None:
    do, model, permission, _touch, _text = ACTIONS[action]
    view = f"view_{model._meta.model_name}"
    client = person(view, permission)
    address = undo_url(do(client))
    after = state(model)
    other = person(view, permission)
    assert "This can no longer be undone." in messages_of(other.post(address, follow=True))
    assert "This can no longer be undone." in messages_of(client.post(f"{address}x", follow=True))
    assert client.put(address).status_code == 405
    strict = Client(enforce_csrf_checks=True)
    user = User.objects.order_by("pk")[0]
    strict.force_login(user)
    assert strict.post(address).status_code == 403
    user.user_permissions.remove(Permission.objects.get(codename=permission, content_type__app_label="resty_limits"))
    assert client.get(address).status_code == client.post(address).status_code == 403
    assert state(model) == after


def test_a_change_that_is_too_long_for_a_url_has_no_undo(admin_client: Client) -> None:
    row = LimitPolicy.objects.get(name="pay")
    row.exempt_users = "\n".join(f"user:{number * 7919}" for number in range(900))
    row.save()
    reply = delete_policy(admin_client)
    assert "was deleted successfully" in messages_of(reply)
    assert "/undo/" not in messages_of(reply)


# --- quotas ---


@pytest.fixture
def quota() -> Quota:
    exports = monthly()
    exports.use("7", 10)
    exports.grant("7", 20)
    return exports


def grant(client: Client) -> str:
    form = {"units": "50", "reason": "paid"}
    return undo_url(client.post(f"{QUOTAS}{row_of().pk}/grant/", form, follow=True))


def test_a_grant_is_undone_unless_others_were_granted_since(admin_client: Client, quota: Quota) -> None:
    before = state(QuotaUsage)
    address = grant(admin_client)
    assert row_of().granted == 70
    assert "Undone: " in undo(admin_client, address)
    assert state(QuotaUsage) == before
    assert logged()[-1] == "Undone: granted units from 70 back to 20."
    entries = LogEntry.objects.count()
    assert f"{NOTHING}Other units were granted since then: there were 70, and are 20." in undo(admin_client, address)
    address = grant(admin_client)
    quota.grant("7", 5)
    assert f"{NOTHING}Other units were granted since then: there were 70, and are 75." in undo(admin_client, address)
    assert row_of().granted == 75
    assert LogEntry.objects.count() == entries + 1  # of the second grant


def test_the_undo_of_a_grant_needs_the_permission_to_grant(quota: Quota) -> None:
    client = person("view_quotausage", "grant_quotausage")
    address = grant(client)
    User.objects.get().user_permissions.remove(Permission.objects.get(codename="grant_quotausage"))
    assert client.post(address).status_code == 403
    assert row_of().granted == 70


def test_a_grant_of_an_ended_period_is_not_undone(admin_client: Client, quota: Quota) -> None:
    address = grant(admin_client)
    QuotaUsage.objects.update(ends_at=row_of().starts_at + 1)
    assert f"{NOTHING}The period of this row has ended" in undo(admin_client, address)
    assert row_of().granted == 70


def test_a_reset_has_no_undo_and_says_so(admin_client: Client, quota: Quota) -> None:
    page = f"{QUOTAS}{row_of().pk}/reset/"
    assert "This cannot be undone" in admin_client.get(page).content.decode()
    assert "/undo/" not in messages_of(admin_client.post(page, {"reason": "x"}, follow=True))
