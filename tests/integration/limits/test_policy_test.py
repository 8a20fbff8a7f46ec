"""The test of an edited policy with recorded requests: what it shows, who may do it, and that it saves nothing."""

from __future__ import annotations

import html
import re
import time
from typing import Any

import pytest
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from resty_django.limits import Decision, declare_policy
from resty_django.limits.models import LimitOverride, LimitPolicy
from resty_django.limits.policies import registry
from resty_django.limits.statistics import recorder as recorder_module
from resty_django.limits.statistics.recorder import recorder
from tests.integration.limits import served_urls
from tests.integration.limits.policy_tools import HOSTILE, POLICIES, logged, make_policy, person
from tests.integration.limits.test_limits_admin import data

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.db,
    pytest.mark.usefixtures("limits_site"),
]

BUTTON = 'name="_test"'


def record(requests: dict[str, int], name: str = "pay") -> None:
    """Record requests of these keys, decided by the policy."""
    policy = registry.get_policy(name)
    assert policy is not None
    for key, count in requests.items():
        for _ in range(count):
            policy.record(key, policy.limiter.hit(key))


def edited(row: LimitPolicy, **fields: Any) -> dict[str, Any]:
    """What the browser sends if somebody edits these fields and presses the button."""
    numbers = {"algorithm": "fixed_window", "rate": "", "burst": "", "limit": row.limit, "window": row.window}
    return data(**{**numbers, "key": row.key, "seen_version": row.version, "_test": "Test", **fields})


def posted(client: Client, row: LimitPolicy | None, sent: dict[str, Any]) -> str:
    reply = client.post(f"{POLICIES}{row.pk}/change/" if row else f"{POLICIES}add/", sent)
    assert reply.status_code == 200, reply
    return reply.content.decode()


def result(page: str) -> str:
    """The text of the result."""
    (part,) = re.findall(r'<fieldset class="module resty-policy-test".*?</fieldset>', page, re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", part)).split())


def rows(page: str) -> list[list[str]]:
    body = page[page.index("Keys with the most refusals") :]
    return [
        [" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
        for row in re.findall(r"<tr><th scope=\"row\" class=\"resty-wrap\">.*?</tr>", body)
    ]


def test_the_edited_policy_is_tested_and_nothing_is_saved(admin_client: Client) -> None:
    row = make_policy(limit=3, key="ip")
    record({"192.0.2.1": 10, "192.0.2.2": 4, "192.0.2.3": 1})
    before = LimitPolicy.objects.values().get()
    page = posted(admin_client, row, edited(row, limit=6))
    text = result(page)
    assert "6 requests per hour from the first one on, then refused" in text
    assert "Requests 15 15" in text
    assert "Refused 8 4" in text
    assert "Passed after a delay 0 0" in text
    assert "These are the requests of all keys." in text
    assert "Keys with the most refusals (3 of 3)" in text
    assert rows(page) == [
        ["192.0.2.1", "10", "7", "4", "0"],
        ["192.0.2.2", "4", "1", "0", "0"],
        ["192.0.2.3", "1", "0", "0", "0"],
    ]
    assert 'name="limit" value="6"' in page, "the edit is still in the form"
    assert "Please correct" not in page
    assert LimitPolicy.objects.values().get() == before
    assert logged() == []
    policy = registry.get_policy("pay")
    assert policy is not None
    assert policy.limiter.peek("192.0.2.3").remaining == 2, "the limit was not used"
    reply = admin_client.post(f"{POLICIES}{row.pk}/change/", {**edited(row, limit=6), "_test": [], "_save": "Save"})
    assert reply.status_code == 302
    assert LimitPolicy.objects.get().limit == 6


def test_delays_costs_and_another_algorithm(admin_client: Client) -> None:
    row = make_policy(limit=100, key="ip")
    record({"192.0.2.1": 10})
    text = result(posted(admin_client, row, edited(row, cost=20)))
    assert "Refused 0 5" in text
    leaky = {"algorithm": "leaky_bucket", "rate": "1/h", "burst": "3", "limit": "", "window": ""}
    text = result(posted(admin_client, row, edited(row, **leaky)))
    assert "Refused 0 6" in text
    assert "Passed after a delay 0 3" in text
    concurrency = {"algorithm": "concurrency", "limit": "1", "window": ""}
    text = result(posted(admin_client, row, edited(row, **concurrency)))
    assert "Concurrency cannot be tested with these requests: their durations were not measured" in text


def test_shadow_refusals_are_shown_apart(admin_client: Client) -> None:
    row = make_policy(limit=1, key="ip", mode="shadow")
    record({"192.0.2.1": 4})
    text = result(posted(admin_client, row, edited(row, mode="enforce", limit=2)))
    assert "Refused 0 + 3 in shadow mode 2" in text


def test_what_the_test_cannot_show_is_said(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    row = make_policy(limit=1, key="ip", path="/pay/*")
    record({"192.0.2.1": 2, "192.0.2.2": 2})
    text = result(posted(admin_client, row, edited(row, path="/shop/*", exempt_networks="10.0.0.0/8", ban="1h")))
    assert "The changes of exempt_networks, ban are ignored, because the addresses and users" in text
    assert "For 4 requests this depends on a part of the path that was not recorded" in text
    assert "Requests to which only the edited policy applies are missing" in text
    assert "the key user cannot be tested" in result(posted(admin_client, row, edited(row, key="user", path="/pay/*")))
    assert "Refused 2 3" in result(posted(admin_client, row, edited(row, key="all", path="/pay/*")))
    monkeypatch.setattr(recorder_module, "MOST", 100)
    record({f"10.0.0.{number}": 1 for number in range(200)})
    page = posted(admin_client, row, edited(row, path="/pay/*"))
    level = recorder.read("pay:ip").level
    assert level > 0
    assert f"these are all requests of {100 / 2**level:.3g} % of the keys" in result(page)
    assert "Only some of the keys were recorded" in result(
        posted(admin_client, row, edited(row, key="all", path="/pay/*"))
    )


@pytest.fixture
def visitor(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A client of a site with a few views next to the admin."""

    def view(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        return HttpResponse(b"done")

    urls = [path("items/", view), path("items/<int:pk>/", view), path("admin/", admin.site.urls)]
    monkeypatch.setattr(served_urls, "urlpatterns", urls)
    settings.ROOT_URLCONF = served_urls.__name__
    return Client()


def test_a_narrower_condition_is_tested(admin_client: Client, visitor: Client) -> None:
    row = make_policy(limit=100, key="ip", path="/items/*")
    for _ in range(3):
        visitor.get("/items/")
        visitor.post("/items/")
        visitor.get("/items/7/?secret=1")
    text = result(posted(admin_client, row, edited(row, limit=2, path="/items/", methods="GET")))
    assert "Requests 9 3" in text
    assert "Refused 0 1" in text
    assert "The edited policy would not limit 6 of the requests." in text
    assert "depends on a part of the path" not in text
    assert "Requests to which only the edited policy applies are missing" in text
    text = result(posted(admin_client, row, edited(row, limit=2, path="/items/7/")))
    assert "Requests 9 3" in text
    assert "For 3 requests this depends on a part of the path that was not recorded: they count as limited." in text
    text = result(posted(admin_client, row, edited(row, limit=2, path="/items/*")))
    assert "Requests 9 9" in text
    assert "would not limit" not in text
    assert "missing" not in text
    assert {request.target for request in recorder.read("pay:ip").requests} == {
        *("GET items/", "POST items/", "GET items/<int:pk>/")
    }, "neither the path nor the query is recorded"


def test_concurrency_is_tested_with_durations(admin_client: Client, visitor: Client) -> None:
    row = make_policy(algorithm="concurrency", limit=5, key="ip", path="/items/*")
    for _ in range(3):
        assert visitor.get("/items/").status_code == 200
    policy = registry.get_policy("pay")
    assert policy is not None
    recorder.flush()
    assert [request.target for request in recorder.read("pay:ip").requests] == ["GET items/"] * 3
    assert all(request.duration >= 0 for request in recorder.read("pay:ip").requests)
    now = time.time_ns() - 60_000_000_000
    for begin, duration in ((0, 500), (100, 500), (200, 500), (900, 100)):
        policy.record_end("10.0.0.1", Decision(True), None, (now + begin * 1_000_000, duration))
    policy.record("10.0.0.1", Decision(False))
    numbers = {"algorithm": "concurrency", "window": "", "path": "/items/*"}
    text = result(posted(admin_client, row, edited(row, **numbers, limit=1)))
    assert "Requests 8 8" in text
    assert "Refused 1 2" in text
    assert "Requests that were refused have no duration:" in text
    assert "Refused 1 0" in result(posted(admin_client, row, edited(row, **numbers, limit=3)))
    window = {"algorithm": "fixed_window", "limit": 4, "window": "1h", "path": "/items/*"}
    assert "Refused 1 1" in result(posted(admin_client, row, edited(row, **window)))


def test_tiers_are_tested_if_they_were_recorded(admin_client: Client, settings: Any) -> None:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "LIMITS": {"TIER": "builtins.str"}}
    row = make_policy(limit=1, key="ip", tiers="pro: 2/h")
    policy = registry.get_policy("pay")
    assert policy is not None
    for tier in ("", "pro"):
        for _ in range(4):
            policy.record("192.0.2.1", Decision(True), tier=tier)
    text = result(posted(admin_client, row, edited(row, limit=2, tiers="pro: 3/h\ngold: 1/h\nstaff: none")))
    assert "Refused 0 3" in text
    assert "were not recorded separately: gold." in text
    text = result(posted(admin_client, row, edited(row, limit=2, tiers="pro: 3/h")))
    assert "not recorded separately" not in text


def test_overrides_apply(admin_client: Client) -> None:
    row = make_policy(limit=1, key="ip")
    record({f"192.0.2.{number}": 6 for number in (1, 2, 3, 4)})
    for number, rate in ((1, "none"), (2, "blocked"), (3, "4/h")):
        LimitOverride.objects.create(kind="address", key=f"192.0.2.{number}", limit="pay", rate=rate)
    LimitOverride.objects.create(kind="address", key="192.0.2.4", limit="other", rate="none")
    registry.forget_policies()  # as in a process that has limited nothing yet
    page = posted(admin_client, row, edited(row, limit=2))
    assert {cells[0]: cells[3] for cells in rows(page)} == {
        "192.0.2.1": "0",
        "192.0.2.2": "6",
        "192.0.2.3": "2",
        "192.0.2.4": "4",
    }
    assert "Overrides in force apply in the test, too: to 3 of the keys." in result(page)
    assert "Bans are not simulated" not in result(page)


def test_bans_are_not_simulated_and_the_page_says_so(admin_client: Client) -> None:
    row = make_policy(limit=1, key="ip", ban="15m", ban_after=2)
    record({"192.0.2.1": 6})
    text = result(posted(admin_client, row, edited(row, limit=2, ban="15m", ban_after=2)))
    assert "Refused 5 4" in text
    assert "Bans are not simulated" in text


def test_nothing_recorded_is_said(admin_client: Client, settings: Any) -> None:
    row = make_policy(limit=1, key="ip")
    text = result(posted(admin_client, row, edited(row)))
    assert "No request of this policy was recorded in the last hour. Save the policy in shadow mode" in text
    text = result(posted(admin_client, None, data(name="new", _test="Test")))
    assert "No policy has the name new yet." in text
    assert LimitPolicy.objects.count() == 1
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "LIMITS": {"RECORD_REQUESTS": False}}
    assert "the setting RECORD_REQUESTS is off" in result(posted(admin_client, row, edited(row)))
    broken = {"limits": {"PATH": "/proc/nowhere"}}
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "LIMITS": {}, "SHARED_DICTS": broken}
    assert "The recorded requests cannot be read" in result(posted(admin_client, row, edited(row)))


def test_a_policy_declared_in_code_is_tested_before_it_is_replaced(admin_client: Client) -> None:
    declare_policy("pay", "fixed_window", limit=2, window="1h", key="ip")
    record({"192.0.2.1": 5})
    sent = data(algorithm="fixed_window", rate="", burst="", limit="4", window="1h", _test="Test")
    assert "Refused 3 1" in result(posted(admin_client, None, sent))
    assert not LimitPolicy.objects.exists()


def test_an_error_in_the_form_is_shown_instead(admin_client: Client) -> None:
    row = make_policy(limit=1, key="ip")
    record({"192.0.2.1": 5})
    page = posted(admin_client, row, edited(row, limit="", window="never"))
    assert "resty-policy-test" not in page
    assert "Please correct the errors below" in page
    assert "Fixed window requires this field, or a rate." in page


def test_a_conflict_with_another_editor_does_not_prevent_a_test(admin_client: Client) -> None:
    row = make_policy(limit=1, key="ip")
    record({"192.0.2.1": 5})
    sent = edited(row, limit=3)
    row.limit = 2
    row.save()
    assert "Refused 4 2" in result(posted(admin_client, row, sent))
    reply = admin_client.post(f"{POLICIES}{row.pk}/change/", {**sent, "_test": [], "_save": "Save"})
    assert "Another user has saved this object" in reply.content.decode(), "the conflict is shown when saving"


def test_hostile_keys_are_escaped_and_long_ones_shortened(admin_client: Client) -> None:
    row = make_policy(limit=1, key="header:X")
    policy = registry.get_policy("pay")
    assert policy is not None
    for key in (HOSTILE, "\udc80<i>", "x" * 150 + "<u>" * 15, "y" * 100_000):
        for _ in range(2):
            policy.record(key, Decision(False))
    page = posted(admin_client, row, edited(row))
    assert "<b>&quot;" not in page
    assert HOSTILE not in page
    assert html.escape("\\udc80<i>") in page
    assert "<u>" not in page
    assert "yyyyy" not in page
    assert len(rows(page)) == 4


def test_only_users_who_may_change_the_policy_may_test_it() -> None:
    row = make_policy(limit=1, key="ip")
    sent = edited(row, limit=2)
    url = f"{POLICIES}{row.pk}/change/"
    changer, viewer, adder = (
        person("change_limitpolicy", "view_limitpolicy"),
        person("view_limitpolicy"),
        person("add_limitpolicy", "view_limitpolicy"),
    )
    assert BUTTON in changer.get(url).content.decode()
    assert changer.post(url, sent).status_code == 200
    assert BUTTON not in viewer.get(url).content.decode()
    assert viewer.post(url, sent).status_code == 403
    assert BUTTON not in adder.get(url).content.decode()
    assert adder.post(url, sent).status_code == 403
    assert BUTTON in adder.get(f"{POLICIES}add/").content.decode()
    assert adder.post(f"{POLICIES}add/", data(name="new", _test="Test")).status_code == 200
    assert changer.post(f"{POLICIES}add/", data(name="new", _test="Test")).status_code == 403
    assert person().post(url, sent).status_code == 403
    assert Client().post(url, sent).status_code == 302
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = changer.cookies
    assert strict.post(url, sent).status_code == 403
    assert "resty-policy-test" not in changer.get(f"{url}?_test=1").content.decode(), "GET tests nothing"
    assert list(LimitPolicy.objects.values_list("limit", flat=True)) == [1]
    assert logged() == []
