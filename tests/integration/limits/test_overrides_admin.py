"""Operators edit and search overrides; every change is logged, and bad input says what to change."""

from __future__ import annotations

import datetime
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.admin.models import ADDITION, DELETION, LogEntry
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from resty_django.limits import limit_count
from resty_django.limits.models import LimitOverride
from resty_django.limits.overrides.current import current
from resty_django.limits.policies import registry
from resty_django.limits.statistics import catalog
from tests.integration.limits.policy_tools import HOSTILE, POLICIES, make_policy, person, policy_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("limits_site")]

OVERRIDES = "/admin/resty_limits/limitoverride/"
KEY = f"{POLICIES}limits/key/"
EMPTY = {f"{name}_{part}": "" for name in ("starts_at", "ends_at") for part in (0, 1)}
EDIT = ("view_limitoverride", "add_limitoverride", "change_limitoverride", "delete_limitoverride")


def entered(**fields: Any) -> dict[str, Any]:
    return {"kind": "address", "key": "192.0.2.1", "limit": "", "rate": "60/m", "reason": "", **EMPTY, **fields}


def make_override(**fields: Any) -> LimitOverride:
    row = LimitOverride(**{"kind": "address", "key": "192.0.2.1", "rate": "60/m", **fields})
    row.full_clean()
    row.save()
    return row


def errors(html: str) -> str:
    return " ".join(re.findall(r'<ul class="errorlist[^>]*>(.*?)</ul>', html, re.DOTALL))


# --- list and form -------------------------------------------------------------------------------------------------


@pytest.mark.db
def test_an_override_is_added_changed_deleted_and_logged() -> None:
    operator = person(*EDIT)
    make_policy(limit=1, key="ip")
    assert registry.get_policy("pay") is not None
    assert operator.post(f"{OVERRIDES}add/", entered(limit="pay", reason="a big customer")).status_code == 302
    row = LimitOverride.objects.get()
    found = current.find("pay", "192.0.2.1", ("ip",))
    assert found is not None
    assert found.rate == "60/m"
    page = operator.get(f"{OVERRIDES}{row.pk}/change/").content.decode()
    version = re.search(r'name="seen_version" value="(\d+)"', page)
    assert version is not None
    changed = entered(limit="pay", rate="blocked", seen_version=version[1])
    assert operator.post(f"{OVERRIDES}{row.pk}/change/", changed).status_code == 302
    found = current.find("pay", "192.0.2.1", ("ip",))
    assert found is not None
    assert found.blocks
    # A second editor, who has not seen this change, gets an error.
    reply = operator.post(f"{OVERRIDES}{row.pk}/change/", {**changed, "rate": "none"})
    assert "Another user has saved this object" in reply.content.decode()
    assert operator.post(f"{OVERRIDES}{row.pk}/delete/", {"post": "yes"}).status_code == 302
    assert current.active is None
    entries = list(LogEntry.objects.order_by("pk"))
    assert [entry.action_flag for entry in entries] == [ADDITION, 2, DELETION]
    assert {entry.object_repr for entry in entries} == {"address 192.0.2.1 in pay"}
    assert len({entry.user_id for entry in entries}) == 1
    # The old values are in the history, so that a change can be taken back by hand.
    changes = "Rate: 60/m → blocked and Reason: a big customer → empty"
    assert entries[1].get_change_message() == f"Changed {changes}."


def test_each_input_of_a_time_has_a_label(admin_client: Client) -> None:
    html = admin_client.get(f"{OVERRIDES}add/").content.decode()
    for name, label in (("starts_at", "From"), ("ends_at", "Until")):
        for part, text in enumerate(("date", "time")):
            (tag,) = re.findall(rf'<input [^>]*name="{name}_{part}"[^>]*>', html)
            assert f'aria-label="{label}: {text}"' in tag


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"key": "nobody"}, "is not an IP address such as 192.0.2.7"),
        ({"limit": "apy"}, "There is no limit &#x27;apy&#x27;. Copy its name from its figures"),
        ({"rate": ""}, "This field is required."),
        (
            {"starts_at_0": "2027-02-01", "starts_at_1": "12:00", "ends_at_0": "2027-01-01", "ends_at_1": "12:00"},
            "The override ends before it begins.",
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_input_is_reported_at_its_field(admin_client: Client, fields: dict[str, str], message: str) -> None:
    make_policy()
    html = admin_client.post(f"{OVERRIDES}add/", entered(**fields)).content.decode()
    assert message in errors(html)
    assert not LimitOverride.objects.exists()


@pytest.mark.db
def test_a_user_is_entered_by_id(admin_client: Client) -> None:
    ann = User.objects.create_user("ann")
    html = admin_client.post(f"{OVERRIDES}add/", entered(kind="user", key="ann")).content.decode()
    assert f"The user “ann” has the ID {ann.pk}. Enter the ID." in errors(html)
    User.objects.create_user(str(ann.pk))
    for key in (str(ann.pk), "4f5c", "9" * 30):
        assert admin_client.post(f"{OVERRIDES}add/", entered(kind="user", key=key)).status_code == 302


def test_an_override_of_a_deleted_policy_says_so(admin_client: Client) -> None:
    policy = make_policy()
    make_override(limit="pay")
    assert "in force" in admin_client.get(OVERRIDES).content.decode()
    policy.delete()
    assert "no such policy" in admin_client.get(OVERRIDES).content.decode()


def test_a_limit_of_code_needs_the_setting(admin_client: Client, settings: Any, limits_site: dict[str, Any]) -> None:
    limit_count("5/h", name="search")(lambda request: None)
    fields = entered(limit="decorator:search:count")
    html = admin_client.post(f"{OVERRIDES}add/", fields).content.decode()
    assert "set RESTY_DJANGO[&quot;LIMITS&quot;][&quot;OVERRIDES&quot;] to &quot;all&quot;" in errors(html)
    assert "Overrides apply to policies." in admin_client.get(OVERRIDES).content.decode()
    settings.RESTY_DJANGO = {**limits_site, "LIMITS": {**limits_site["LIMITS"], "OVERRIDES": "all"}}
    assert admin_client.post(f"{OVERRIDES}add/", fields).status_code == 302
    assert "Overrides apply to policies." not in admin_client.get(OVERRIDES).content.decode()


@pytest.mark.db
def test_the_list_is_searched_and_filtered(admin_client: Client) -> None:
    day = datetime.timedelta(days=1)
    make_override(key="192.0.2.1", rate="none", reason="office")
    make_override(key="192.0.2.2", rate="blocked", ends_at=timezone.now() + day)
    make_override(key="192.0.2.3", starts_at=timezone.now() + day)
    make_override(key="192.0.2.4", ends_at=timezone.now() - day)
    make_override(kind="key", key=HOSTILE.replace("\x00", ""))

    def keys(**query: str) -> set[str]:
        html = admin_client.get(OVERRIDES, query).content.decode()
        assert "<b>" not in html
        return set(re.findall(r"192\.0\.2\.\d", html.partition("<tbody>")[2]))

    everything = {f"192.0.2.{number}" for number in range(1, 5)}
    assert keys() == everything
    assert keys(q="office") == {"192.0.2.1"}
    assert keys(q="192.0.2.4") == {"192.0.2.4"}
    assert keys(time="now") == {"192.0.2.1", "192.0.2.2"}
    assert keys(time="soon") == {"192.0.2.2"}
    assert keys(time="later") == {"192.0.2.3"}
    assert keys(time="ended") == {"192.0.2.4"}
    assert keys(effect="rate") == {"192.0.2.3", "192.0.2.4"}
    assert keys(effect="none") == {"192.0.2.1"}
    assert keys(effect="blocked") == {"192.0.2.2"}
    assert keys(effect="else") == everything


# --- find a key ----------------------------------------------------------------------------------------------------


def rows(html: str) -> list[str]:
    cells = re.findall(r'<tr><th scope="row">.*?</tr>', html, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", row).split()) for row in cells]


def test_the_override_of_a_key_is_next_to_each_limit(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_limits", {})
    make_policy("free", limit=3, key="ip")
    make_policy("more", limit=3, key="ip")
    make_policy("never", limit=3, key="user|ip")
    make_policy("unused", limit=3, key="user")
    row = make_override(rate="none", limit="free")
    make_override(rate="5/h", limit="more")
    make_override(rate="blocked", limit="never")
    html = admin_client.get(KEY, {"key": "192.0.2.1"}).content.decode()
    free, more, never = rows(html)
    assert re.search(r"192\.0\.2\.1 none passed Reset$", free)
    assert re.search(r"more Policy 5 requests per hour .* 192\.0\.2\.1 5/h passed 5 Reset$", more)
    assert re.search(r"ip:192\.0\.2\.1 blocked refused 0 never Reset$", never)
    assert f'href="{OVERRIDES}{row.pk}/change/"' in html
    assert f'href="{OVERRIDES}' not in person("view_limitpolicy").get(KEY, {"key": "192.0.2.1"}).content.decode()


@pytest.mark.parametrize(
    ("key", "stored", "limit_key", "kind", "prefilled"),
    [
        ("192.0.2.1", "192.0.2.1", "ip", "address", "192.0.2.1"),
        ("192.0.2.1", "ip:192.0.2.1", "user|ip", "address", "192.0.2.1"),
        ("2001:db8::7", "2001:db8::/64", "ip", "network", "2001:db8::/64"),
        ("7", "7", "user", "user", "7"),
        ("7", "user:7", "user|ip", "user", "7"),
        ("7", "7", "arg:pk", "key", "7"),
        (HOSTILE, HOSTILE, "all", "key", HOSTILE),
    ],
)
def test_an_override_is_added_from_the_page_of_a_key(
    admin_client: Client, key: str, stored: str, limit_key: str, kind: str, prefilled: str
) -> None:
    make_policy(limit=3, key=limit_key)
    policy = policy_of()
    policy.limiter.hit(stored)
    html = admin_client.get(KEY, {"key": key}).content.decode()
    links = [link.replace("&amp;", "&") for link in re.findall(rf'href="({OVERRIDES}add/\?[^"]*)"', html)]
    one = next(link for link in links if "limit=pay" in link)
    assert parse_qs(urlsplit(one).query) == {"kind": [kind], "key": [prefilled], "limit": ["pay"]}
    assert len(links) == 2  # the other one is for all limits
    form = admin_client.get(one).content.decode()
    assert f'<option value="{kind}" selected>' in form
    assert 'value="pay"' in form
    if key != HOSTILE:
        assert admin_client.post(one, entered(kind=kind, key=prefilled, limit="pay", rate="none")).status_code == 302
        assert [row.split()[-3] for row in rows(admin_client.get(KEY, {"key": key}).content.decode())] == ["none"]
