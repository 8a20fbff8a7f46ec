"""The decisions of the last hour on one key: recorded requests of policies, or of all limits, and stored refusals."""

from __future__ import annotations

import contextlib
import html
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory, override_settings
from django.urls import path
from django.utils import timezone

from resty_django.limits import Decision, LeakyBucket, Limited, limited
from resty_django.limits.admin import key_decisions
from resty_django.limits.decorators import limit_count
from resty_django.limits.jobs import JobLimit
from resty_django.limits.models import LimitOverride
from resty_django.limits.overrides.spec import ALL_LIMITS
from resty_django.limits.policies import registry
from resty_django.limits.statistics import catalog
from resty_django.limits.statistics import recorder as recorder_module
from resty_django.limits.statistics.events import UNKNOWN, delay_code
from resty_django.limits.statistics.recorder import recorder, recording_of_limit
from tests.integration.limits import served_urls
from tests.integration.limits.policy_tools import HOSTILE, POLICIES, make_policy, person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("limits_site")]

KEY = f"{POLICIES}limits/key/"
TABLE = "resty-decisions"
GET = SimpleNamespace(method="GET", resolver_match=SimpleNamespace(route="items/<int:pk>/"))


@pytest.fixture(autouse=True)
def empty_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits that other tests have declared are not asked."""
    monkeypatch.setattr(catalog, "_limits", {})


def page(client: Client, key: str) -> str:
    reply = client.get(KEY, {"key": key})
    assert reply.status_code == 200
    return reply.content.decode()


def rows(client: Client, key: str) -> list[list[str]]:
    """The listed decisions without their times, as the texts of their cells."""
    table = page(client, key).partition(TABLE)[2].partition("</table>")[0]
    return [
        [" ".join(html.unescape(re.sub(r"<[^>]+>", "", cell)).split()) for cell in re.findall(r"<td.*?</td>", row)][1:]
        for row in re.findall(r"<tr><td>.*?</tr>", table, re.DOTALL)
    ]


def record_all(settings: Any) -> None:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "LIMITS": {"REFRESH": 60.0, "RECORD_ALL_LIMITS": True}}


def call(function: Any, times: int) -> None:
    for _ in range(times):
        with contextlib.suppress(Limited):
            function()


def shown(request: HttpRequest, pk: int) -> HttpResponse:
    return HttpResponse(b"done")


@pytest.fixture
def served() -> Iterator[Client]:
    before, served_urls.urlpatterns = served_urls.urlpatterns, [path("items/<int:pk>/", shown)]
    middleware = ["resty_django.limits.middleware.LimitMiddleware"]
    with override_settings(ROOT_URLCONF=served_urls.__name__, MIDDLEWARE=middleware):
        yield Client()
    served_urls.urlpatterns = before


def test_requests_of_a_policy_are_listed_with_their_outcome(served: Client) -> None:
    make_policy(key="ip", limit=2, path="/items/*")
    registry.refresh_policies()
    assert [served.get("/items/7/").status_code for _ in range(3)] == [200, 200, 429]
    served.post("/items/7/", REMOTE_ADDR="192.0.2.9")
    found = key_decisions.decisions_of("127.0.0.1", [])
    assert sorted((decision.outcome, decision.target, decision.key) for decision in found.decisions) == [
        ("passed", "GET items/<int:pk>/", "127.0.0.1"),
        ("passed", "GET items/<int:pk>/", "127.0.0.1"),
        ("refused", "GET items/<int:pk>/", "127.0.0.1"),
    ]
    assert [decision.target for decision in key_decisions.decisions_of("192.0.2.9", []).decisions] == [
        "POST items/<int:pk>/"
    ]


def test_the_page_lists_and_draws_them(admin_client: Client) -> None:
    make_policy(key="ip")
    policy = registry.get_policy("pay")
    assert policy is not None
    policy.record("192.0.2.1", Decision(True), GET)
    policy.record("192.0.2.1", Decision(True, delay=1.5))
    policy.record("192.0.2.1", Decision(False), GET, "pro")
    policy.record("192.0.2.2", Decision(True), GET)
    policy.record("192.0.2.1|/a", Decision(True))
    assert sorted(rows(admin_client, "192.0.2.1")) == [  # all in one or two milliseconds
        ["pay", "Policy", "", "192.0.2.1", "", "delayed", "1.5 s", ""],
        ["pay", "Policy", "", "192.0.2.1|/a", "", "passed", "", ""],
        ["pay", "Policy", "GET items/<int:pk>/", "192.0.2.1", "", "passed", "", ""],
        ["pay", "Policy", "GET items/<int:pk>/", "192.0.2.1", "pro", "refused", "", ""],
    ]
    text = page(admin_client, "192.0.2.1")
    assert "4 of 4 decisions. Policies are recorded." in text
    assert "2 passed, 1 delayed, 1 refused" in text
    assert "Of other limits, the stored refusals are known; the setting RECORD_ALL_LIMITS" in text
    nothing = page(admin_client, "192.0.2.77")
    assert TABLE not in nothing
    assert "No decision on this key was recorded in the last hour. Policies are recorded." in nothing


def test_of_other_limits_refusals_are_known(admin_client: Client) -> None:
    call(limited("1/h", key="k", name="sms")(lambda: None), 3)
    assert rows(admin_client, "k") == [["sms", "Function", "", "k", "refused", "", ""]] * 2


def test_with_the_setting_all_limits_are_recorded(admin_client: Client, settings: Any) -> None:
    call(limited("1/h", key="k", name="sms")(lambda: None), 1)
    record_all(settings)
    call(limited("1/h", key="k", name="sms")(lambda: None), 1)
    view = limit_count(1, per="1h", key=lambda request: "k", name="search")(lambda request: HttpResponse("found"))
    request = RequestFactory().get("/items/7/")
    request.resolver_match = GET.resolver_match
    assert [view(request).status_code for _ in range(2)] == [200, 429]
    job = JobLimit(LeakyBucket(100, 5, prefix="qless:", name="mails"), "shop.jobs")
    with job.slot("k", 1):
        pass
    assert sorted(rows(admin_client, "k")) == [
        ["mails", "Jobs", "", "k", "passed", "", ""],
        ["search:count", "Decorator", "GET items/<int:pk>/", "k", "passed", "", ""],
        ["search:count", "Decorator", "GET items/<int:pk>/", "k", "refused", "", ""],
        ["sms", "Function", "", "k", "refused", "", ""],
    ]
    assert "All limits are recorded." in page(admin_client, "k")
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "LIMITS": {"REFRESH": 60.0}}
    call(limited("1/h", key="k", name="sms")(lambda: None), 1)
    assert len(recorder.read(recording_of_limit("function:sms")).requests) == 1
    assert recorder.records_limits is False


def test_a_wait_is_listed(admin_client: Client, settings: Any) -> None:
    record_all(settings)
    call(limited("10/s capacity=1", key="k", wait=5, name="sms")(lambda: None), 2)
    (delayed, _) = rows(admin_client, "k")
    assert delayed[4] == "delayed"
    assert re.fullmatch(r"\d+ ms|0\.1\d* s", delayed[5])


def test_without_a_recording_the_page_says_so(admin_client: Client, settings: Any) -> None:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "LIMITS": {"REFRESH": 60.0, "RECORD_REQUESTS": False}}
    make_policy(key="ip")
    policy = registry.get_policy("pay")
    assert policy is not None
    for decision in (Decision(True), Decision(False)):
        policy.record("192.0.2.1", decision)
    assert rows(admin_client, "192.0.2.1") == [["pay", "Policy", "", "192.0.2.1", "refused", "", ""]]
    assert "Nothing is recorded (settings RECORD_REQUESTS and RECORD_ALL_LIMITS)" in page(admin_client, "192.0.2.1")


def test_the_override_is_the_one_of_that_time(admin_client: Client) -> None:
    make_policy(key="ip")
    policy = registry.get_policy("pay")
    assert policy is not None
    now = timezone.now()
    times = [now - timedelta(minutes=minutes) for minutes in (50, 30, 10, 0)]
    for at in times:
        recorder.record(policy.recording, "192.0.2.1", Decision(True), ran=(int(at.timestamp() * 1e9), 20))
    for start, end, rate, limit in ((40, 20, "50/h", "pay"), (15, -60, "90/h", ALL_LIMITS)):
        LimitOverride.objects.create(
            kind="address",
            key="192.0.2.1",
            limit=limit,
            rate=rate,
            starts_at=now - timedelta(minutes=start),
            ends_at=now - timedelta(minutes=end),
        )
    registry.refresh_policies()
    assert [row[-1] for row in rows(admin_client, "192.0.2.1")] == ["90/h", "90/h", "50/h", ""]
    without_permission = person("view_limitpolicy")
    assert "limitoverride" not in page(without_permission, "192.0.2.1").partition(TABLE)[2].partition("</table>")[0]


def test_a_sample_is_declared(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "MOST", 100)
    make_policy(key="ip")
    policy = registry.get_policy("pay")
    assert policy is not None
    for number in range(350):
        policy.record(f"key{number}", Decision(True))
    text = page(admin_client, "key7")
    assert re.search(r"Of pay, which has many requests, (25|12\.5) % of the keys are recorded\.", text)


def test_the_table_is_bounded_and_all_decisions_are_exported(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_decisions, "SHOWN", 3)
    make_policy(key="ip")
    policy = registry.get_policy("pay")
    assert policy is not None
    for _ in range(5):
        policy.record("192.0.2.1", Decision(True, delay=0.25), GET)
    assert len(rows(admin_client, "192.0.2.1")) == 3
    assert "3 of 5 decisions." in page(admin_client, "192.0.2.1")
    reply = admin_client.get(KEY, {"key": "192.0.2.1", "export": "json", "of": "key-decisions"})
    exported = json.loads(b"".join(reply.streaming_content))["rows"]  # type: ignore[attr-defined]
    assert len(exported) == 5
    assert {name: value for name, value in exported[0].items() if name != "time"} == {
        "limit": "pay",
        "kind": "policy",
        "request": "GET items/<int:pk>/",
        "key": "192.0.2.1",
        "tier": "",
        "outcome": "delayed",
        "delay_seconds": 0.25,
        "override": "",
    }


def test_the_url_sorts_and_filters_all_decisions(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those beyond the rows of the page, and the export."""
    monkeypatch.setattr(key_decisions, "SHOWN", 2)
    make_policy(key="ip")
    policy = registry.get_policy("pay")
    assert policy is not None
    now = timezone.now().timestamp()
    for age, delay in ((40, 2.0), (30, 1.0), (20, 3.0), (10, 0.0)):
        ran = (int((now - age) * 1e9), delay_code(delay) if delay else UNKNOWN)
        request = GET if delay > 1 else None
        recorder.record(policy.recording, "192.0.2.1", Decision(True, delay=delay), request=request, ran=ran)

    def delays(**query: str) -> list[str]:
        text = admin_client.get(KEY, {"key": "192.0.2.1", **query}).content.decode()
        return re.findall(r'<td class="resty-number">([\d.]* ?s?)</td><td></td></tr>', text.partition(TABLE)[2])

    def exported(**query: str) -> list[float | None]:
        reply = admin_client.get(KEY, {"key": "192.0.2.1", **query, "export": "json", "of": "key-decisions"})
        sheet = json.loads(b"".join(reply.streaming_content))  # type: ignore[attr-defined]
        return [row["delay_seconds"] for row in sheet["rows"]]

    assert delays() == ["", "3 s"]
    assert delays(**{"o-decisions": "-delay"}) == ["3 s", "2 s"]
    assert delays(**{"o-decisions": "time"}) == ["2 s", "1 s"]
    assert delays(**{"o-decisions": "time", "find": "get items"}) == ["2 s", "3 s"]
    assert exported(**{"o-decisions": "-delay"}) == [3, 2, 1, None]
    assert exported(**{"o-decisions": "delay", "find": "get items"}) == [2, 3]
    text = admin_client.get(KEY, {"key": "192.0.2.1", "find": "nothing"}).content.decode()
    assert "No rows match. Change the filter." in text
    assert "0 of 4 decisions." in text


def test_foreign_text_is_escaped(admin_client: Client) -> None:
    make_policy(key="ip")
    policy = registry.get_policy("pay")
    assert policy is not None
    policy.record(HOSTILE, Decision(True), GET, "<i>")
    text = page(admin_client, HOSTILE)
    assert TABLE in text
    assert "<b>" not in text.partition(TABLE)[2].partition("</table>")[0]
    assert "<i>" not in text
